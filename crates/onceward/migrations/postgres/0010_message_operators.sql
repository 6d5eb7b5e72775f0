-- What operators see of the outbox and change in it, and how it is kept small.
SET LOCAL search_path = pg_catalog, pg_temp;

-- What operators changed. It outlives the messages. Without an id it is about a sink, without a sink about all.
CREATE TABLE onceward.message_trail (
    seq    bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL,
    id     uuid,
    sink   text,
    kind   text        NOT NULL,
    actor  text,
    reason text        NOT NULL
);

CREATE INDEX message_trail_id ON onceward.message_trail (id, seq);

-- What a message is at a sink: the state of its entry, else 7, delivered, or 8, not come to yet.
CREATE FUNCTION onceward.state_at(of_sink smallint, of_lane smallint, of_seq bigint, of_xid xid8) RETURNS smallint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_state smallint;
BEGIN
    SELECT p.state INTO found_state FROM onceward.parked p WHERE p.sink = of_sink AND p.seq = of_seq;
    IF NOT FOUND THEN
        SELECT CASE WHEN onceward.is_passed(s, of_seq, of_xid) THEN 7 ELSE 8 END INTO found_state
            FROM onceward.step s WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1;
    END IF;
    RETURN found_state;
END
$$;

CREATE FUNCTION onceward.is_passed(newest onceward.step, of_seq bigint, of_xid xid8) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_visible_in_snapshot(of_xid, newest.base)
        OR coalesce(of_seq <= newest.done AND pg_visible_in_snapshot(of_xid, newest.target), false)
$$;

-- Entries that a list looks at, in its order: messages and sinks. Without a state, and for what was delivered (7), all
-- messages; else what is parked so, and for what waits (8) what is to come. The caller pins the plans.
CREATE FUNCTION onceward.look_for(
    of_id uuid, of_sink text, of_states smallint[], of_lane smallint, after_seq bigint, after_sink smallint, looks integer
)
RETURNS TABLE (seq bigint, sink smallint, lane smallint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    looks_at_all boolean := of_states IS NULL OR 7 = ANY (of_states);
BEGIN
    RETURN QUERY
    -- In the middle of a page a parked message has not been passed yet, and would be found twice.
    SELECT DISTINCT found.seq, s.id AS sink, found.lane FROM onceward.sink s CROSS JOIN LATERAL (
        SELECT m.seq, m.lane FROM onceward.message m WHERE m.id = of_id
        UNION ALL
        SELECT m.seq, l.lane FROM onceward.lane l CROSS JOIN LATERAL (
            SELECT n.seq FROM onceward.message n
                WHERE n.lane = l.lane AND n.seq >= after_seq ORDER BY n.lane, n.seq LIMIT looks
        ) m WHERE of_id IS NULL AND looks_at_all AND l.sink = s.id AND l.lane = coalesce(of_lane, l.lane)
        UNION ALL
        SELECT p.seq, p.lane FROM unnest(of_states) AS wanted (state) CROSS JOIN LATERAL (
            SELECT q.seq, q.lane FROM onceward.parked q
                WHERE q.sink = s.id AND q.state = wanted.state AND q.seq >= after_seq
                ORDER BY q.sink, q.state, q.seq LIMIT looks
        ) p WHERE of_id IS NULL AND NOT looks_at_all
        UNION ALL
        SELECT f.seq, l.lane FROM onceward.lane l CROSS JOIN LATERAL (
            SELECT n.* FROM onceward.step n WHERE n.sink = l.sink AND n.lane = l.lane ORDER BY n.step DESC LIMIT 1
        ) newest CROSS JOIN LATERAL (
            (SELECT m.seq FROM onceward.message m
                WHERE m.lane = l.lane AND m.seq >= greatest(after_seq, newest.floor + 1)
                    AND NOT pg_visible_in_snapshot(m.xid, newest.base)
                ORDER BY m.lane, m.seq LIMIT looks)
            UNION ALL
            SELECT m.seq FROM pg_snapshot_xip(newest.base) AS late (xid) CROSS JOIN LATERAL (
                SELECT n.seq FROM onceward.message n
                    WHERE n.xid = late.xid AND n.lane = l.lane AND n.seq >= after_seq AND n.seq <= newest.floor
                    ORDER BY n.xid, n.lane, n.seq LIMIT looks
            ) m
        ) f WHERE of_id IS NULL AND NOT looks_at_all AND 8 = ANY (of_states)
            AND l.sink = s.id AND l.lane = coalesce(of_lane, l.lane)
    ) found
    WHERE (of_sink IS NULL OR s.name = of_sink) AND (found.seq, s.id) > (after_seq, after_sink)
    ORDER BY found.seq, s.id LIMIT looks;
END
$$;

-- One message at each sink, or a page of them: first a row that says up to where it was looked and whether there is
-- more, then the messages, oldest first. `of_states` null: all.
CREATE FUNCTION onceward.list_messages(
    of_id uuid, of_sink text, of_states smallint[], of_topic text, of_aggregate text, older interval,
    after_seq bigint, after_sink smallint, most integer
)
RETURNS TABLE (
    is_full boolean, seq bigint, sink smallint, picked bigint, sink_name text, state smallint, attempts integer, due timestamptz, why text,
    id uuid, topic text, aggregate text, body bytea, headers text, at timestamptz, not_before timestamptz,
    expires_at timestamptz, operation bytea, trace text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    -- How many entries a page looks at, at most: filters are applied to these.
    looks integer := 1000;
    moment timestamptz := clock_timestamp();
    of_lane smallint := get_byte(sha256(convert_to(of_aggregate, 'UTF8')), 0) & 63;
    looked_seqs bigint[];
    looked_sinks smallint[];
    looked_lanes smallint[];
BEGIN
    SELECT array_agg(w.seq ORDER BY w.seq, w.sink), array_agg(w.sink ORDER BY w.seq, w.sink), array_agg(w.lane ORDER BY w.seq, w.sink)
        INTO looked_seqs, looked_sinks, looked_lanes
        FROM onceward.look_for(of_id, of_sink, of_states, of_lane, after_seq, after_sink, looks) w;
    is_full := cardinality(looked_seqs) >= looks;
    seq := looked_seqs[cardinality(looked_seqs)];
    sink := looked_sinks[cardinality(looked_seqs)];
    RETURN NEXT;
    RETURN QUERY
    SELECT NULL::boolean, found.seq, found.sink, found.picked, found.name, found.state, found.attempts, found.due, found.why,
        found.id, found.topic, found.aggregate, found.body, found.headers::text, found.at, found.not_before,
        found.expires_at, found.operation, found.trace
    FROM (
        SELECT wanted.*, count(*) OVER () AS picked,
            sum(length(wanted.body)) OVER (ORDER BY wanted.seq, wanted.sink) - length(wanted.body) AS bytes_before
        FROM (
            SELECT w.seq, w.sink, s.name::text AS name, what.state, coalesce(p.attempts, 0) AS attempts,
                CASE WHEN p.state IN (0, 3) THEN p.due END AS due, coalesce(p.why, '') AS why, m.id, m.topic,
                m.aggregate::text AS aggregate, m.body, m.headers, m.at, m.not_before, m.expires_at, m.operation, m.trace
            FROM unnest(looked_seqs, looked_sinks, looked_lanes) AS w (seq, sink, lane)
            CROSS JOIN LATERAL (
                SELECT n.* FROM onceward.message n WHERE n.lane = w.lane AND n.seq = w.seq OFFSET 0
            ) m
            CROSS JOIN LATERAL (SELECT onceward.state_at(w.sink, w.lane, w.seq, m.xid) AS state OFFSET 0) what
            JOIN onceward.sink s ON s.id = w.sink
            LEFT JOIN onceward.parked p ON p.sink = w.sink AND p.seq = w.seq
            WHERE (of_states IS NULL OR what.state = ANY (of_states))
                AND (of_topic IS NULL OR m.topic = of_topic)
                AND (of_aggregate IS NULL OR m.aggregate = of_aggregate)
                AND (older IS NULL OR m.at <= moment - older)
            ORDER BY w.seq, w.sink LIMIT most
        ) wanted
    ) found
    WHERE found.bytes_before < 8388608 ORDER BY found.seq, found.sink;
END
$$;

-- Sends a parked message again from its first attempt, or discards it, in a step of its lane. Returns -1: it is done; -2:
-- there is no such message or sink; -3: others made steps again and again; else the state in which that cannot be done.
CREATE FUNCTION onceward.repair_message(
    sink_name text, message_id uuid, kind text, next_fence uuid, actor text, reason text
) RETURNS smallint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off SET jit = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    of_sink smallint;
    found onceward.message;
    is_in_step boolean := false;
    what smallint;
BEGIN
    PERFORM onceward.check_relay_alarm();
    SELECT s.id INTO of_sink FROM onceward.sink s WHERE s.name = sink_name;
    SELECT m.* INTO found FROM onceward.message m WHERE m.id = message_id;
    IF of_sink IS NULL OR found.seq IS NULL THEN
        RETURN -2;
    END IF;
    LOOP
        what := onceward.state_at(of_sink, found.lane, found.seq, found.xid);
        IF NOT (CASE kind WHEN 'redrive' THEN what IN (0, 1, 2, 4) WHEN 'discard' THEN what <= 4 END) THEN
            RETURN what;
        END IF;
        EXIT WHEN is_in_step;
        IF NOT onceward.repeat_step(of_sink, found.lane, next_fence) THEN
            RETURN -3;
        END IF;
        -- No relay settles this lane before the commit: what it is now stays so.
        is_in_step := true;
    END LOOP;
    UPDATE onceward.parked p SET
        state = CASE kind WHEN 'redrive' THEN 0 ELSE 6 END,
        attempts = CASE kind WHEN 'redrive' THEN 0 ELSE p.attempts END,
        due = CASE kind WHEN 'redrive' THEN moment END, try_at = NULL, at = moment
        WHERE p.sink = of_sink AND p.seq = found.seq;
    PERFORM onceward.set_heads(of_sink, ARRAY[found.aggregate]);
    INSERT INTO onceward.message_trail (at, id, sink, kind, actor, reason)
        VALUES (moment, message_id, sink_name, kind, actor, reason);
    RETURN -1;
END
$$;

-- Forgets a sink: its places and what it parked.
CREATE FUNCTION onceward.remove_sink(sink_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    of_sink smallint;
BEGIN
    LOCK TABLE onceward.sink IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM onceward.sink s WHERE s.name = sink_name RETURNING s.id INTO of_sink;
    IF of_sink IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM onceward.lane l WHERE l.sink = of_sink;
    DELETE FROM onceward.relay r WHERE r.sink = of_sink;
    DELETE FROM onceward.step s WHERE s.sink = of_sink;
    DELETE FROM onceward.parked p WHERE p.sink = of_sink;
    INSERT INTO onceward.message_trail (at, sink, kind, reason) VALUES (clock_timestamp(), sink_name, 'remove-sink', '');
    RETURN true;
END
$$;

-- Deletes messages that every sink has passed, that are older than `retain` and that no entry names which may still be
-- sent, from a place on; then steps of more than an hour ago that are not the newest of their lanes. Looks at a bounded
-- number of rows and returns where to go on; null: it is through. Without a sink nothing was delivered, and all stays.
CREATE FUNCTION onceward.sweep_messages(
    retain interval, most integer, INOUT of_lane smallint, INOUT behind bigint, OUT messages integer, OUT steps integer
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    until timestamptz := clock_timestamp() - retain;
    bases pg_snapshot[];
    seen record;
    gone bigint[];
    looked integer := 0;
    size integer;
BEGIN
    PERFORM onceward.check_relay_alarm();
    -- A new sink that begins with the oldest message comes before or after.
    LOCK TABLE onceward.sink IN SHARE MODE;
    messages := 0;
    steps := 0;
    WHILE of_lane < 64 AND messages < most AND looked < 20000 LOOP
        SELECT array_agg(newest.base) INTO bases FROM onceward.sink s CROSS JOIN LATERAL (
            SELECT n.base FROM onceward.step n WHERE n.sink = s.id AND n.lane = of_lane ORDER BY n.step DESC LIMIT 1
        ) newest;
        EXIT WHEN bases IS NULL;
        size := least(1000, most - messages);
        SELECT count(*) AS looked, max(w.seq) AS last,
            coalesce((array_agg(w.at ORDER BY w.seq DESC))[1] < until, false) AS is_old,
            array_agg(w.seq) FILTER (WHERE w.at < until
                AND NOT EXISTS (SELECT FROM unnest(bases) AS sink (base) WHERE NOT pg_visible_in_snapshot(w.xid, sink.base))
                AND NOT EXISTS (
                    SELECT FROM onceward.sink s JOIN onceward.parked p ON p.sink = s.id AND p.seq = w.seq WHERE p.state <= 4)
            ) AS gone
            INTO seen
            FROM (
                SELECT m.seq, m.xid, m.at FROM onceward.message m
                    WHERE m.lane = of_lane AND m.seq > behind ORDER BY m.lane, m.seq LIMIT size
            ) w;
        WITH deleted AS (
            DELETE FROM onceward.message m WHERE m.lane = of_lane AND m.seq = ANY (ARRAY(
                SELECT n.seq FROM onceward.message n
                    WHERE n.lane = of_lane AND n.seq = ANY (seen.gone) FOR UPDATE SKIP LOCKED))
                RETURNING m.seq
        ) SELECT array_agg(d.seq) INTO gone FROM deleted d;
        IF gone IS NOT NULL THEN
            DELETE FROM onceward.parked p USING onceward.sink s WHERE p.sink = s.id AND p.seq = ANY (gone);
            messages := messages + cardinality(gone);
        END IF;
        looked := looked + seen.looked;
        behind := seen.last;
        IF NOT seen.is_old OR seen.looked < size THEN
            of_lane := of_lane + 1;
            behind := 0;
        END IF;
    END LOOP;
    IF of_lane < 64 AND bases IS NOT NULL THEN
        RETURN;
    END IF;
    of_lane := NULL;
    behind := 0;
    DELETE FROM onceward.step s USING (
        SELECT l.sink, l.lane, o.step FROM onceward.lane l CROSS JOIN LATERAL (
            SELECT n.step FROM onceward.step n WHERE n.sink = l.sink AND n.lane = l.lane ORDER BY n.step DESC LIMIT 1
        ) newest CROSS JOIN LATERAL (
            SELECT p.step, p.at FROM onceward.step p WHERE p.sink = l.sink AND p.lane = l.lane AND p.step < newest.step
                ORDER BY p.sink, p.lane, p.step LIMIT 200
        ) o WHERE o.at < clock_timestamp() - interval '1 hour'
    ) old WHERE s.sink = old.sink AND s.lane = old.lane AND s.step = old.step;
    GET DIAGNOSTICS steps = ROW_COUNT;
    DELETE FROM onceward.relay r WHERE r.until < clock_timestamp() - interval '1 hour';
END
$$;

-- How the outbox is as a whole. Exact up to ten thousand messages, else about.
CREATE FUNCTION onceward.outbox_condition(OUT messages bigint, OUT oldest_micros bigint, OUT alarm text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off AS $$
BEGIN
    SELECT count(*) INTO messages FROM (SELECT FROM onceward.message m LIMIT 10000) m;
    IF messages = 10000 THEN
        SELECT greatest(messages, c.reltuples::bigint, pg_stat_get_live_tuples(c.oid)) INTO messages
            FROM pg_class c WHERE c.oid = 'onceward.message'::regclass;
    END IF;
    SELECT (extract(epoch FROM clock_timestamp() - min(m.at)) * 1000000)::bigint INTO oldest_micros
        FROM generate_series(0, 63) AS l (lane) CROSS JOIN LATERAL (
            SELECT n.at FROM onceward.message n WHERE n.lane = l.lane::smallint ORDER BY n.lane, n.seq LIMIT 1
        ) m;
    alarm := onceward.relay_alarm();
END
$$;

-- When messages were enqueued that a lane has not come to yet, at most so many of those first ones.
CREATE FUNCTION onceward.to_come(of_sink smallint, of_lane smallint, most integer) RETURNS SETOF timestamptz
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    newest onceward.step;
BEGIN
    SELECT s.* INTO newest FROM onceward.step s
        WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1;
    RETURN QUERY
    SELECT f.at FROM (
        (SELECT m.seq, m.at FROM onceward.message m
            WHERE m.lane = of_lane AND m.seq > newest.floor AND NOT onceward.is_passed(newest, m.seq, m.xid)
            ORDER BY m.lane, m.seq LIMIT most)
        UNION ALL
        SELECT m.seq, m.at FROM pg_snapshot_xip(newest.base) AS late (xid) CROSS JOIN LATERAL (
            SELECT n.seq, n.at FROM onceward.message n
                WHERE n.xid = late.xid AND n.lane = of_lane AND n.seq <= newest.floor
                    AND NOT onceward.is_passed(newest, n.seq, n.xid)
                ORDER BY n.xid, n.lane, n.seq LIMIT most
        ) m
    ) f ORDER BY f.seq LIMIT most;
END
$$;

-- How each sink is. What it has not come to yet is counted up to about ten thousand.
CREATE FUNCTION onceward.sink_conditions()
RETURNS TABLE (
    sink smallint, name text, to_come bigint, oldest_micros bigint, waiting bigint, scheduled bigint, held bigint, dead bigint,
    relays uuid[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT s.id, s.name::text,
        (SELECT count(*) FROM (
            SELECT FROM onceward.lane l CROSS JOIN LATERAL onceward.to_come(s.id, l.lane, 10000)
                WHERE l.sink = s.id LIMIT 10000) c),
        (extract(epoch FROM moment - least(parked.oldest, (
            SELECT min(c.at) FROM onceward.lane l CROSS JOIN LATERAL onceward.to_come(s.id, l.lane, 1) AS c (at)
                WHERE l.sink = s.id))) * 1000000)::bigint,
        parked.waiting, parked.scheduled, parked.held, parked.dead,
        ARRAY(SELECT CASE WHEN l.until > moment THEN l.relay END FROM onceward.lane l WHERE l.sink = s.id ORDER BY l.lane)
    FROM onceward.sink s CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE p.state = 0) AS waiting, count(*) FILTER (WHERE p.state = 3) AS scheduled,
            count(*) FILTER (WHERE p.state = 1) AS held, count(*) FILTER (WHERE p.state IN (2, 4)) AS dead,
            (SELECT min(m.at) FROM generate_series(0, 4) AS of (state) CROSS JOIN LATERAL (
                SELECT q.seq, q.lane FROM onceward.parked q
                    WHERE q.sink = s.id AND q.state = of.state::smallint ORDER BY q.sink, q.state, q.seq LIMIT 1
            ) q CROSS JOIN LATERAL (
                SELECT n.at FROM onceward.message n WHERE n.lane = q.lane AND n.seq = q.seq
            ) m) AS oldest
            FROM onceward.parked p WHERE p.sink = s.id AND p.state <= 4
    ) parked
    ORDER BY s.name;
END
$$;

REVOKE ALL ON TABLE onceward.message_trail FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (10, 1);
