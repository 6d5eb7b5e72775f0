-- The same answers for less: what a producer adds to its transaction, what an idle relay asks, and what a page reads.
-- Names and rights of the functions are those of 0007 to 0009, so that older relays and producers call these as well.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Says whether a lane has messages that block others, so that a page asks that once and not for each message.
CREATE INDEX parked_lane ON onceward.parked (sink, lane) WHERE state < 3;

-- Why `onceward.enqueue` refuses a message. It is asked when the one condition over all of it has failed, and for
-- messages with more than a topic, an aggregate and a body.
CREATE FUNCTION onceward.check_message(
    topic text, aggregate text, body bytea, headers jsonb, not_before timestamptz, expires_at timestamptz, execution text,
    traceparent text
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named_by text := '';
BEGIN
    IF topic IS NULL OR body IS NULL OR headers IS NULL THEN
        RAISE EXCEPTION 'topic, body and headers must not be null; nothing was enqueued' USING ERRCODE = 'OW002';
    END IF;
    named_by := CASE WHEN octet_length(topic) NOT BETWEEN 1 AND 255 OR topic ~ '[\x01-\x1F\x7F-\x9F]' THEN 'topic'
        WHEN octet_length(aggregate) NOT BETWEEN 1 AND 255 OR aggregate ~ '[\x01-\x1F\x7F-\x9F]' THEN 'aggregate'
        WHEN octet_length(traceparent) NOT BETWEEN 1 AND 255 OR traceparent ~ '[\x01-\x1F\x7F-\x9F]' THEN 'trace context'
        ELSE '' END;
    IF named_by <> '' THEN
        RAISE EXCEPTION 'the % of a message has 1 to 255 bytes and no control characters; nothing was enqueued', named_by
            USING ERRCODE = 'OW002';
    END IF;
    IF length(body) > 1048576 THEN
        RAISE EXCEPTION 'the body has % bytes, and a message takes at most 1048576; nothing was enqueued', length(body)
            USING ERRCODE = 'OW002', HINT = 'Store it elsewhere and send a reference to it.';
    END IF;
    IF headers <> '[]' THEN
        PERFORM onceward.check_lines(headers);
    END IF;
    IF expires_at <= not_before OR NOT isfinite(expires_at) OR NOT isfinite(not_before) THEN
        RAISE EXCEPTION 'the message would expire before it may be sent, or one of both times is infinite; nothing was enqueued'
            USING ERRCODE = 'OW002';
    END IF;
    IF execution !~ '^[-_0-9A-Za-z]{43}(\.[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})?$' THEN
        RAISE EXCEPTION 'not an execution: %', quote_literal(left(execution, 100))
            USING ERRCODE = 'OW002', HINT = 'Pass the value of the request header Onceward-Execution as it is.';
    END IF;
END
$$;

-- As in 0007, for about half the processor time: what nearly every message has is one condition, and that an id is there
-- already is said by the table's own constraint.
CREATE OR REPLACE FUNCTION onceward.enqueue(
    topic text, aggregate text, body bytea, headers jsonb DEFAULT '[]', id uuid DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, execution text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    -- Before a number is drawn for the message.
    own_xid xid8 := pg_current_xact_id();
    moment timestamptz := clock_timestamp();
    -- The time in milliseconds, then the version, then chance.
    own_id uuid := coalesce(id, (lpad(to_hex(floor(date_part('epoch', moment) * 1000)::bigint), 12, '0')
        || '7' || substr(gen_random_uuid()::text, 16))::uuid);
    whose text := coalesce(aggregate, own_id::text);
    digest bytea;
BEGIN
    IF (octet_length(topic) BETWEEN 1 AND 255 AND octet_length(whose) BETWEEN 1 AND 255
        AND topic || whose !~ '[\x01-\x1F\x7F-\x9F]' AND length(body) <= 1048576 AND headers = '[]'
        AND not_before IS NULL AND expires_at IS NULL AND execution IS NULL AND traceparent IS NULL) IS NOT TRUE
    THEN
        PERFORM onceward.check_message(topic, whose, body, headers, not_before, expires_at, execution, traceparent);
        digest := decode(translate(substr(execution, 1, 43), '-_', '+/') || '=', 'base64');
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO onceward.message (xid, at, not_before, expires_at, id, lane, topic, aggregate, operation, trace, headers, body)
        VALUES (own_xid, moment, not_before, expires_at, own_id,
            get_byte(sha256(convert_to(whose, 'UTF8')), 0) & 63, topic, whose, digest, traceparent, headers, body);
    RETURN own_id;
END
$$;

-- Which of these lanes have something to take: as in 0009, without a call of a function for each of them.
CREATE OR REPLACE FUNCTION onceward.waiting(sinks smallint[], lanes smallint[], bases text[], floors bigint[], opened boolean[])
RETURNS SETOF smallint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
        SELECT h.lane FROM (
            SELECT u.sink, u.lane, u.floor, u.is_open, u.base::pg_snapshot AS base, right(u.base, 1) <> ':' AS has_late
                FROM unnest(sinks, lanes, bases, floors, opened) AS u (sink, lane, base, floor, is_open) OFFSET 0
        ) h
        WHERE h.is_open
            OR EXISTS (
                SELECT FROM onceward.parked p
                    WHERE p.sink = h.sink AND p.lane = h.lane AND p.try_at <= moment
                        AND (p.state = 0 OR onceward.is_free(p.sink, p.aggregate, moment)) OFFSET 0)
            -- What follows is `is_behind`.
            OR EXISTS (
                SELECT FROM onceward.message m
                    WHERE m.lane = h.lane AND m.seq > h.floor AND NOT pg_visible_in_snapshot(m.xid, h.base)
                    ORDER BY m.lane, m.seq OFFSET 0)
            OR h.has_late AND EXISTS (
                SELECT FROM pg_snapshot_xip(h.base) AS late (xid) CROSS JOIN LATERAL (
                    SELECT FROM onceward.message m
                        WHERE m.xid = late.xid AND m.lane = h.lane AND m.seq <= h.floor
                        ORDER BY m.xid, m.lane, m.seq OFFSET 0
                ) m
                -- Without this it would look at everything that an open transaction has written so far.
                WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot()));
END
$$;

-- What is next at a place: as in 0009. Where nothing is due and nothing came late, which is nearly always, a page is
-- one walk along an index in the order of the messages. A page has a mebibyte of bodies, or one message.
CREATE OR REPLACE FUNCTION onceward.take(
    of_sink smallint, of_lane smallint, of_step bigint, of_fence uuid, base text, floor bigint, target text,
    next_floor bigint, done bigint, most integer
)
RETURNS TABLE (
    opened text, opened_floor bigint, read_at timestamptz, picked bigint, seq bigint, attempts integer, is_blocked boolean,
    id uuid, topic text, aggregate text, body bytea, headers text, at timestamptz, not_before timestamptz,
    expires_at timestamptz, operation bytea, trace text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    most_bytes CONSTANT integer := 1048576;
    moment timestamptz := clock_timestamp();
    past pg_snapshot := take.base::pg_snapshot;
    present pg_snapshot := take.target::pg_snapshot;
    present_floor bigint := take.next_floor;
    due_seqs bigint[];
    due_attempts integer[];
    late_seqs bigint[];
    has_blocked boolean;
    found_bytes bigint;
    found_count bigint;
BEGIN
    IF EXISTS (SELECT FROM onceward.parked p WHERE p.sink = of_sink AND p.lane = of_lane AND p.try_at <= moment OFFSET 0) THEN
        SELECT array_agg(d.seq ORDER BY d.seq), array_agg(d.attempts ORDER BY d.seq) INTO due_seqs, due_attempts
            FROM onceward.due_messages(of_sink, of_lane, moment, most) d;
    END IF;
    IF present IS NULL AND coalesce(cardinality(due_seqs), 0) < most AND onceward.is_behind(of_lane, past, take.floor) THEN
        SELECT o.target, o.next_floor INTO present, present_floor
            FROM onceward.open_target(of_sink, of_lane, of_step, of_fence) o;
    END IF;
    opened := present::text;
    opened_floor := present_floor;
    read_at := moment;
    RETURN NEXT;
    IF present IS NULL AND due_seqs IS NULL THEN
        RETURN;
    END IF;
    IF present IS NOT NULL AND right(take.base, 1) <> ':' THEN
        SELECT array_agg(late.seq) INTO late_seqs FROM (
            SELECT m.seq FROM pg_snapshot_xip(past) AS late (xid) CROSS JOIN LATERAL (
                SELECT n.seq FROM onceward.message n
                    WHERE n.xid = late.xid AND n.lane = of_lane AND n.seq > take.done AND n.seq <= take.floor
                    ORDER BY n.xid, n.lane, n.seq LIMIT most
            ) m WHERE pg_visible_in_snapshot(late.xid, present)
            ORDER BY m.seq LIMIT most
        ) late;
    END IF;
    has_blocked := EXISTS (
        SELECT FROM onceward.parked p WHERE p.sink = of_sink AND p.lane = of_lane AND p.state < 3 OFFSET 0);
    IF due_seqs IS NULL AND late_seqs IS NULL THEN
        SELECT count(*), sum(length(k.body)) INTO found_count, found_bytes FROM (
            SELECT n.body FROM onceward.message n
                WHERE n.lane = of_lane AND n.seq > greatest(take.done, take.floor)
                    AND pg_visible_in_snapshot(n.xid, present) AND NOT pg_visible_in_snapshot(n.xid, past)
                ORDER BY n.lane, n.seq LIMIT most
        ) k;
        IF found_count = 0 THEN
            RETURN;
        ELSIF found_bytes <= most_bytes THEN
            RETURN QUERY
            SELECT NULL::text, NULL::bigint, NULL::timestamptz, found_count, m.seq, NULL::integer,
                has_blocked AND EXISTS (
                    SELECT FROM onceward.parked q
                        WHERE q.sink = of_sink AND q.aggregate = m.aggregate AND q.state < 3 OFFSET 0
                ), m.id, m.topic, m.aggregate, m.body, m.headers::text, m.at, m.not_before, m.expires_at, m.operation, m.trace
                FROM onceward.message m
                    WHERE m.lane = of_lane AND m.seq > greatest(take.done, take.floor)
                        AND pg_visible_in_snapshot(m.xid, present) AND NOT pg_visible_in_snapshot(m.xid, past)
                    ORDER BY m.lane, m.seq LIMIT most;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
    WITH fresh AS MATERIALIZED (
        SELECT f.seq FROM (
            SELECT l.seq FROM unnest(late_seqs) AS l (seq)
            UNION ALL (
                SELECT m.seq FROM onceward.message m
                    WHERE m.lane = of_lane AND m.seq > greatest(take.done, take.floor)
                        AND pg_visible_in_snapshot(m.xid, present) AND NOT pg_visible_in_snapshot(m.xid, past)
                    ORDER BY m.lane, m.seq LIMIT most
            )
        ) f
        WHERE present IS NOT NULL
        ORDER BY f.seq LIMIT greatest(most - coalesce(cardinality(due_seqs), 0), 0)
    )
    SELECT NULL::text, NULL::bigint, NULL::timestamptz, w.picked, w.seq, w.attempts, w.is_blocked, w.id, w.topic,
        w.aggregate, w.body, w.headers, w.at, w.not_before, w.expires_at, w.operation, w.trace
    FROM (
        SELECT p.seq, p.attempts, p.is_fresh, m.*,
            has_blocked AND p.is_fresh AND EXISTS (
                SELECT FROM onceward.parked q
                    WHERE q.sink = of_sink AND q.aggregate = m.aggregate AND q.state < 3
                        AND (due_seqs IS NULL OR q.seq <> ALL (due_seqs)) OFFSET 0
            ) AS is_blocked,
            count(*) OVER () AS picked,
            sum(length(m.body)) OVER (ORDER BY p.is_fresh, p.seq) - length(m.body) AS bytes_before
        FROM (
            SELECT d.seq, d.attempts, false AS is_fresh FROM unnest(due_seqs, due_attempts) AS d (seq, attempts)
            UNION ALL
            SELECT f.seq, NULL, true FROM fresh f
        ) p
        CROSS JOIN LATERAL (
            SELECT n.id, n.topic, n.aggregate, n.body, n.headers::text AS headers, n.at, n.not_before, n.expires_at,
                n.operation, n.trace
                FROM onceward.message n WHERE n.lane = of_lane AND n.seq = p.seq OFFSET 0
        ) m
    ) w
    -- The first is taken however long it is.
    WHERE w.bytes_before < most_bytes ORDER BY w.is_fresh, w.seq;
END
$$;

-- As in 0010, with `is_passed` written out: a relay asks this before it begins, and then of up to ten thousand messages.
CREATE OR REPLACE FUNCTION onceward.to_come(of_sink smallint, of_lane smallint, most integer) RETURNS SETOF timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    newest onceward.step;
    past pg_snapshot;
    present pg_snapshot;
    done bigint;
BEGIN
    SELECT s.* INTO newest FROM onceward.step s
        WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1;
    past := newest.base;
    present := coalesce(newest.target, past);
    done := newest.done;
    RETURN QUERY
    SELECT f.at FROM (
        (SELECT m.seq, m.at FROM onceward.message m
            WHERE m.lane = of_lane AND m.seq > newest.floor AND NOT pg_visible_in_snapshot(m.xid, past)
                AND (m.seq > done OR NOT pg_visible_in_snapshot(m.xid, present))
            ORDER BY m.lane, m.seq LIMIT most)
        UNION ALL
        SELECT m.seq, m.at FROM pg_snapshot_xip(past) AS late (xid) CROSS JOIN LATERAL (
            SELECT n.seq, n.at FROM onceward.message n
                WHERE n.xid = late.xid AND n.lane = of_lane AND n.seq <= newest.floor
                    AND (n.seq > done OR NOT pg_visible_in_snapshot(n.xid, present))
                ORDER BY n.xid, n.lane, n.seq LIMIT most
        ) m
    ) f ORDER BY f.seq LIMIT most;
END
$$;

REVOKE ALL ON FUNCTION onceward.check_message(text, text, bytea, jsonb, timestamptz, timestamptz, text, text) FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (12, 1);
