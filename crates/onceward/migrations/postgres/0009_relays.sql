-- What a relay does with a lane that it holds: it asks which have something, takes a page, sends it, and settles it in
-- one step. Plans are pinned to ranges of indexes: what lies before and behind a page must not cost anything.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Whether no entry blocks an aggregate that is not due itself.
CREATE FUNCTION onceward.is_free(of_sink smallint, of_aggregate text, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM onceward.parked p WHERE p.sink = of_sink AND p.aggregate = of_aggregate AND p.state < 3
            AND (p.state <> 0 OR p.due > moment)
    );
END
$$;

-- Which of these lanes have something to take.
CREATE FUNCTION onceward.waiting(sinks smallint[], lanes smallint[], bases text[], floors bigint[], opened boolean[])
RETURNS SETOF smallint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
        SELECT h.lane FROM unnest(sinks, lanes, bases, floors, opened) AS h (sink, lane, base, floor, is_open)
        WHERE h.is_open
            OR EXISTS (
                SELECT FROM onceward.parked p
                    WHERE p.sink = h.sink AND p.lane = h.lane AND p.try_at <= moment
                        AND (p.state = 0 OR onceward.is_free(p.sink, p.aggregate, moment)) OFFSET 0)
            OR onceward.is_behind(h.lane, h.base::pg_snapshot, h.floor);
END
$$;

-- Entries of a lane that can be tried: of an aggregate those up to the first one that is not due. Callers pin the plans.
CREATE FUNCTION onceward.due_messages(of_sink smallint, of_lane smallint, moment timestamptz, most integer)
RETURNS TABLE (seq bigint, attempts integer)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT chain.seq, chain.attempts FROM (
        SELECT p.aggregate FROM onceward.parked p
            WHERE p.sink = of_sink AND p.lane = of_lane AND p.try_at <= moment AND p.state = 0
            ORDER BY p.try_at LIMIT most
    ) head CROSS JOIN LATERAL (
        SELECT c.seq, c.attempts FROM (
            SELECT p.seq, p.attempts, bool_and(p.state = 0 AND p.due <= moment) OVER (ORDER BY p.seq) AS is_due FROM (
                SELECT q.seq, q.attempts, q.state, q.due FROM onceward.parked q
                    WHERE q.sink = of_sink AND q.aggregate = head.aggregate AND q.state < 3
                    ORDER BY q.sink, q.aggregate, q.seq LIMIT most
            ) p
        ) c WHERE c.is_due
    ) chain
    UNION ALL (
        SELECT p.seq, p.attempts FROM onceward.parked p
            WHERE p.sink = of_sink AND p.lane = of_lane AND p.try_at <= moment AND p.state = 3
                AND onceward.is_free(of_sink, p.aggregate, moment)
            ORDER BY p.try_at LIMIT most
    )
    ORDER BY seq LIMIT most;
END
$$;

-- Sets the target of a step, or gives that which is set. The commit of this is a barrier: a standby that is promoted
-- later has what the target sees. It is written in any case, for the commit of an earlier one may not have come there.
CREATE FUNCTION onceward.open_target(
    of_sink smallint, of_lane smallint, of_step bigint, of_fence uuid, OUT target pg_snapshot, OUT next_floor bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    now_at record;
BEGIN
    IF current_setting('synchronous_standby_names') = '' THEN
        -- If a crash undoes it, the settlement misses, and nothing is lost.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT e.place, e.floor INTO now_at FROM onceward.end_of_outbox() e;
    UPDATE onceward.step s SET
        target = coalesce(s.target, now_at.place),
        next_floor = CASE WHEN s.target IS NULL THEN now_at.floor ELSE s.next_floor END
        WHERE s.sink = of_sink AND s.lane = of_lane AND s.step = of_step AND s.fence = of_fence
        RETURNING s.target, s.next_floor INTO open_target.target, open_target.next_floor;
    -- The row may be gone with its owner's lease; what is read then is settled in vain.
    IF NOT FOUND THEN
        open_target.target := now_at.place;
        open_target.next_floor := now_at.floor;
    END IF;
END
$$;

-- What is next at a place: first a row that says with which target, then the parked messages that are due, then new
-- ones. If there are new ones and no target is given, this opens one.
CREATE FUNCTION onceward.take(
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
    moment timestamptz := clock_timestamp();
    past pg_snapshot := take.base::pg_snapshot;
    present pg_snapshot := take.target::pg_snapshot;
    present_floor bigint := take.next_floor;
    due_seqs bigint[];
    due_attempts integer[];
BEGIN
    SELECT array_agg(d.seq ORDER BY d.seq), array_agg(d.attempts ORDER BY d.seq) INTO due_seqs, due_attempts
        FROM onceward.due_messages(of_sink, of_lane, moment, most) d;
    IF present IS NULL AND coalesce(cardinality(due_seqs), 0) < most AND onceward.is_behind(of_lane, past, take.floor) THEN
        SELECT o.target, o.next_floor INTO present, present_floor
            FROM onceward.open_target(of_sink, of_lane, of_step, of_fence) o;
    END IF;
    opened := present::text;
    opened_floor := present_floor;
    read_at := moment;
    RETURN NEXT;
    RETURN QUERY
    WITH fresh AS MATERIALIZED (
        SELECT f.seq FROM (
            SELECT m.seq FROM pg_snapshot_xip(past) AS late (xid) CROSS JOIN LATERAL (
                SELECT n.seq FROM onceward.message n
                    WHERE n.xid = late.xid AND n.lane = of_lane AND n.seq > take.done AND n.seq <= take.floor
                    ORDER BY n.xid, n.lane, n.seq LIMIT most
            ) m WHERE pg_visible_in_snapshot(late.xid, present)
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
            p.is_fresh AND EXISTS (
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
    WHERE w.bytes_before < 4194304 ORDER BY w.is_fresh, w.seq;
END
$$;

-- After a change of parked messages: the first one that blocks an aggregate, and no other, is found by its time.
CREATE FUNCTION onceward.set_heads(of_sink smallint, of_aggregates text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed text;
    head bigint;
BEGIN
    FOREACH changed IN ARRAY of_aggregates LOOP
        SELECT p.seq INTO head FROM onceward.parked p
            WHERE p.sink = of_sink AND p.aggregate = changed AND p.state < 3
            ORDER BY p.sink, p.aggregate, p.seq LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        UPDATE onceward.parked p SET try_at = NULL
            WHERE p.sink = of_sink AND p.aggregate = changed AND p.state = 0 AND p.try_at IS NOT NULL AND p.seq <> head;
        UPDATE onceward.parked p SET try_at = p.due
            WHERE p.sink = of_sink AND p.seq = head AND p.state = 0 AND p.try_at IS DISTINCT FROM p.due;
    END LOOP;
END
$$;

-- Moves a lane on, if `of_step` with its fence is still the newest. `opened`: the target that was read with; null: the
-- lane stays. `next_done`: up to there; null: past the target. Messages change as the arrays say, each its place
-- in them; a state of null: it was delivered. The row that comes back says where the lane is: `made`; or where it may
-- be tried again, null: the lane is not this relay's any more.
CREATE FUNCTION onceward.settle_lane(
    of_sink smallint, of_lane smallint, me uuid, of_step bigint, of_fence uuid, next_fence uuid, opened text, next_done bigint,
    seqs bigint[], ids uuid[], were_parked boolean[], states smallint[], attempts integer[], waits interval[], whys text[]
)
RETURNS TABLE (
    was_made boolean, step bigint, fence uuid, base text, floor bigint, target text, next_floor bigint, done bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    newest onceward.step;
    made onceward.step;
    is_past boolean := opened IS NOT NULL AND next_done IS NULL;
BEGIN
    SELECT s.* INTO newest FROM onceward.step s
        WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1;
    IF newest.step = of_step AND newest.fence = of_fence AND (opened IS NULL OR newest.target::text = opened) THEN
        INSERT INTO onceward.step AS s (sink, lane, step, fence, base, floor, target, next_floor, done, at)
            VALUES (of_sink, of_lane, of_step + 1, next_fence,
                CASE WHEN is_past THEN newest.target ELSE newest.base END,
                CASE WHEN is_past THEN coalesce(newest.next_floor, newest.floor) ELSE newest.floor END,
                CASE WHEN is_past THEN NULL ELSE newest.target END,
                CASE WHEN is_past THEN NULL ELSE newest.next_floor END,
                CASE WHEN is_past THEN 0 ELSE coalesce(next_done, newest.done) END,
                moment)
            ON CONFLICT ON CONSTRAINT step_pkey DO NOTHING
            RETURNING s.* INTO made;
    END IF;
    IF made.step IS NOT NULL THEN
        IF cardinality(seqs) > 0 THEN
            PERFORM onceward.park(of_sink, of_lane, moment, seqs, ids, were_parked, states, attempts, waits, whys);
        END IF;
        RETURN QUERY SELECT true, made.step, made.fence, made.base::text, made.floor, made.target::text, made.next_floor, made.done;
        RETURN;
    END IF;
    -- Read again: another one may have appended between the two statements above.
    SELECT s.* INTO newest FROM onceward.step s
        WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1;
    SELECT s.* INTO made FROM onceward.step s
        WHERE s.sink = of_sink AND s.lane = of_lane AND s.step = of_step + 1 AND s.fence = next_fence;
    RETURN QUERY
        SELECT made.step IS NOT NULL, newest.step, newest.fence, newest.base::text, newest.floor, newest.target::text,
            newest.next_floor, newest.done
            FROM onceward.lane l WHERE l.sink = of_sink AND l.lane = of_lane AND l.relay = me;
    IF NOT FOUND AND made.step IS NOT NULL THEN
        RETURN QUERY SELECT true, made.step, made.fence, made.base::text, made.floor, made.target::text, made.next_floor, made.done;
    END IF;
END
$$;

-- What becomes of messages that are not simply delivered. An entry that waits no longer, nor is scheduled, stays.
CREATE FUNCTION onceward.park(
    of_sink smallint, of_lane smallint, moment timestamptz, seqs bigint[], ids uuid[], were_parked boolean[],
    states smallint[], attempts integer[], waits interval[], whys text[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM onceward.parked p USING unnest(seqs, states) AS c (seq, state)
        WHERE c.state IS NULL AND p.sink = of_sink AND p.seq = c.seq AND p.state IN (0, 3);
    UPDATE onceward.parked p SET state = c.state, attempts = c.attempts, at = moment, why = left(c.why, 1000),
        due = CASE c.state WHEN 0 THEN moment + c.wait WHEN 3 THEN m.not_before END,
        try_at = CASE c.state WHEN 3 THEN m.not_before END
        FROM unnest(seqs, were_parked, states, park.attempts, waits, whys) AS c (seq, was_parked, state, attempts, wait, why)
        CROSS JOIN LATERAL (
            SELECT n.not_before FROM onceward.message n WHERE n.lane = of_lane AND n.seq = c.seq OFFSET 0
        ) m
        WHERE c.was_parked AND c.state IS NOT NULL AND p.sink = of_sink AND p.seq = c.seq AND p.state IN (0, 3);
    INSERT INTO onceward.parked (sink, seq, lane, state, attempts, due, try_at, at, id, aggregate, why)
        SELECT of_sink, c.seq, of_lane, c.state, c.attempts,
            CASE c.state WHEN 0 THEN moment + c.wait WHEN 3 THEN m.not_before END,
            CASE c.state WHEN 3 THEN m.not_before END, moment, c.id, m.aggregate, left(c.why, 1000)
            FROM unnest(seqs, ids, were_parked, states, park.attempts, waits, whys)
                AS c (seq, id, was_parked, state, attempts, wait, why)
            CROSS JOIN LATERAL (
                SELECT n.id, n.not_before, n.aggregate FROM onceward.message n WHERE n.lane = of_lane AND n.seq = c.seq OFFSET 0
            ) m
            WHERE NOT c.was_parked AND c.state IS NOT NULL AND m.id = c.id
        ON CONFLICT ON CONSTRAINT parked_pkey DO NOTHING;
    PERFORM onceward.set_heads(of_sink, ARRAY(
        SELECT DISTINCT m.aggregate FROM unnest(seqs) AS c (seq) CROSS JOIN LATERAL (
            SELECT n.aggregate FROM onceward.message n WHERE n.lane = of_lane AND n.seq = c.seq OFFSET 0) m
    ));
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (9, 1);
