-- Mends the outbox of a restored dump, or of another copy of a database, whose places are counted in the transactions of
-- the database that it was copied from.
SET LOCAL search_path = pg_catalog, pg_temp;

-- `is_kept`: the numbers of transactions were kept, as by pg_upgrade, and only the database has another identity. Else
-- what a sink has not got becomes new: messages that no sink has got carry the number of this transaction, which
-- no place sees; what only some sinks have got waits at the others as parked entries. Both keep their order. What was
-- enqueued since the copy was made counts as new, whatever its number. Producers and relays wait meanwhile.
CREATE FUNCTION onceward.rebase_outbox(
    is_kept boolean, actor text, reason text, OUT renewed bigint, OUT waiting bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '30s' SET jit = off AS $$
DECLARE
    now_at record;
    own xid8;
    moment timestamptz := clock_timestamp();
    new_base pg_snapshot;
    parked_now jsonb;
BEGIN
    renewed := 0;
    waiting := 0;
    LOCK TABLE onceward.message, onceward.sink, onceward.lane, onceward.step, onceward.parked IN SHARE ROW EXCLUSIVE MODE;
    IF is_kept THEN
        IF onceward.has_foreign_numbers() THEN
            RAISE EXCEPTION 'this server has not come to the numbers of transactions in the outbox: they were not kept. Nothing was changed: run `onceward relay rebase` without --keep'
                USING ERRCODE = 'OW004';
        END IF;
    ELSE
        SELECT e.place, e.floor INTO now_at FROM onceward.end_of_outbox() e;
        IF now_at.floor IS NULL THEN
            RAISE EXCEPTION 'too many transactions begin at this moment; nothing was changed: try again'
                USING ERRCODE = 'OW004';
        END IF;
        own := pg_current_xact_id();
        -- It lists this transaction, as one that is open and whose messages are to come.
        new_base := (pg_snapshot_xmin(now_at.place)::text || ':' || own::text::bigint + 1 || ':' || concat_ws(',',
            nullif(split_part(now_at.place::text, ':', 3), ''), own::text))::pg_snapshot;
        WITH not_got AS MATERIALIZED (
            SELECT m.lane, m.seq, l.sink, count(*) OVER (PARTITION BY m.seq) AS sinks
                FROM onceward.lane l CROSS JOIN LATERAL (
                    SELECT s.* FROM onceward.step s WHERE s.sink = l.sink AND s.lane = l.lane ORDER BY s.step DESC LIMIT 1
                ) newest JOIN onceward.message m ON m.lane = l.lane
                -- A larger number than the floor may be of this server, whose transactions the place does not know.
                WHERE (m.seq > newest.floor OR NOT pg_visible_in_snapshot(m.xid, newest.base))
                    AND NOT coalesce(m.seq <= newest.done AND pg_visible_in_snapshot(m.xid, newest.target), false)
                    AND NOT EXISTS (SELECT FROM onceward.parked p WHERE p.sink = l.sink AND p.seq = m.seq)
        ), stamped AS (
            UPDATE onceward.message m SET xid = CASE WHEN missed.is_by_all THEN own ELSE '1' END
                FROM (
                    SELECT n.lane, n.seq, coalesce(bool_or(g.sinks = (SELECT count(*) FROM onceward.sink)), false) AS is_by_all
                        FROM onceward.message n LEFT JOIN not_got g ON g.seq = n.seq GROUP BY n.lane, n.seq
                ) missed
                WHERE m.lane = missed.lane AND m.seq = missed.seq
                    AND (missed.is_by_all OR NOT pg_visible_in_snapshot(m.xid, new_base))
                RETURNING missed.is_by_all
        ), kept_waiting AS (
            INSERT INTO onceward.parked AS p (sink, seq, lane, state, attempts, due, try_at, at, id, aggregate, why)
                SELECT g.sink, m.seq, m.lane, 0, 0, moment, NULL, moment, m.id, m.aggregate, ''
                    FROM not_got g JOIN onceward.message m ON m.lane = g.lane AND m.seq = g.seq
                    WHERE g.sinks < (SELECT count(*) FROM onceward.sink)
                RETURNING p.sink, p.aggregate
        )
        SELECT (SELECT count(*) FROM stamped s WHERE s.is_by_all), (SELECT count(*) FROM kept_waiting),
            (SELECT jsonb_object_agg(k.sink, k.aggregates) FROM (
                SELECT w.sink, jsonb_agg(DISTINCT w.aggregate) AS aggregates FROM kept_waiting w GROUP BY w.sink) k)
            INTO renewed, waiting, parked_now;
        PERFORM onceward.set_heads(of_sink.key::smallint, ARRAY(SELECT jsonb_array_elements_text(of_sink.value)))
            FROM jsonb_each(parked_now) AS of_sink;
        INSERT INTO onceward.step (sink, lane, step, fence, base, floor, at)
            SELECT l.sink, l.lane, newest.step + 1, gen_random_uuid(), new_base, now_at.floor, moment
                FROM onceward.lane l CROSS JOIN LATERAL (
                    SELECT s.step FROM onceward.step s WHERE s.sink = l.sink AND s.lane = l.lane ORDER BY s.step DESC LIMIT 1
                ) newest;
        UPDATE onceward.lane SET relay = NULL, until = '-infinity';
        DELETE FROM onceward.relay;
    END IF;
    UPDATE onceward.cluster SET system_identifier = (SELECT s.system_identifier FROM pg_control_system() s),
        database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    INSERT INTO onceward.message_trail (at, kind, actor, reason)
        VALUES (moment, CASE WHEN is_kept THEN 'rebase-keep' ELSE 'rebase' END, actor, reason);
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (11, 1);
