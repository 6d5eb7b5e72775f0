-- How far each sink is in the outbox, and which relay moves it on. Relays call these functions with rights of their own,
-- and no other role is granted them. `docs/adr/0045-the-outbox-in-postgresql.md` says why this is right.
--
-- Errors: OW004, relays must not go on; the message says what to do.
SET LOCAL search_path = pg_catalog, pg_temp;

-- In whose numbers of transactions the outbox is counted: a copy of the database has other ones.
CREATE TABLE onceward.cluster (
    one               smallint PRIMARY KEY CHECK (one = 1),
    system_identifier bigint   NOT NULL,
    database          oid      NOT NULL
);

INSERT INTO onceward.cluster (one, system_identifier, database)
    SELECT 1, s.system_identifier, d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database();

-- Where messages go. The number of a removed one is not given again.
CREATE TABLE onceward.sink (
    id   smallint    PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text        NOT NULL UNIQUE COLLATE "C",
    at   timestamptz NOT NULL
);

-- Relays that live.
CREATE TABLE onceward.relay (
    sink  smallint    NOT NULL,
    relay uuid        NOT NULL,
    until timestamptz NOT NULL,
    CONSTRAINT relay_pkey PRIMARY KEY (sink, relay)
);

-- Who holds a lane.
CREATE TABLE onceward.lane (
    sink  smallint    NOT NULL,
    lane  smallint    NOT NULL,
    relay uuid,
    until timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (sink, lane)
) WITH (fillfactor = 50);

-- Where a sink is in a lane: the newest row says it. Each row follows the one before by its number and has a fence of its
-- own. Everything that `base` sees is dealt with. While `target` is set, everything that it sees is dealt with up to
-- `done`. A message that `base` does not see has a `seq` above `floor`, or its transaction is in the list of `base`;
-- `next_floor` is the same for `target`.
CREATE TABLE onceward.step (
    sink       smallint    NOT NULL,
    lane       smallint    NOT NULL,
    step       bigint      NOT NULL,
    fence      uuid        NOT NULL,
    base       pg_snapshot NOT NULL,
    floor      bigint      NOT NULL,
    target     pg_snapshot,
    next_floor bigint,
    done       bigint      NOT NULL DEFAULT 0,
    at         timestamptz NOT NULL,
    CONSTRAINT step_pkey PRIMARY KEY (sink, lane, step)
) WITH (fillfactor = 70);

-- Messages that a lane has passed without delivering them. States: 0 waiting, 1 held, 2 dead, 3 scheduled, 4 dead and
-- skipped, 5 expired, 6 discarded; those below 3 block their aggregate. `due` is when it is tried again; `try_at` is the
-- same where time alone decides: in the first one of an aggregate, and in scheduled ones.
CREATE TABLE onceward.parked (
    sink      smallint    NOT NULL,
    seq       bigint      NOT NULL,
    lane      smallint    NOT NULL,
    state     smallint    NOT NULL,
    attempts  integer     NOT NULL,
    due       timestamptz,
    try_at    timestamptz,
    at        timestamptz NOT NULL,
    id        uuid        NOT NULL,
    aggregate text        NOT NULL COLLATE "C",
    why       text        NOT NULL,
    CONSTRAINT parked_pkey PRIMARY KEY (sink, seq)
);

CREATE INDEX parked_chain ON onceward.parked (sink, aggregate, seq) WHERE state < 3;
CREATE INDEX parked_head ON onceward.parked (sink, aggregate) WHERE state = 0 AND try_at IS NOT NULL;
CREATE INDEX parked_try ON onceward.parked (sink, lane, try_at) WHERE try_at IS NOT NULL;
CREATE INDEX parked_state ON onceward.parked (sink, state, seq);

-- Whether the outbox has numbers of transactions that this server has not come to.
CREATE FUNCTION onceward.has_foreign_numbers() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN coalesce(
        (SELECT m.xid FROM onceward.message m ORDER BY m.xid DESC LIMIT 1) >= pg_snapshot_xmax(pg_current_snapshot()), false
    ) OR EXISTS (
        SELECT FROM onceward.lane l CROSS JOIN LATERAL (
            SELECT s.base, s.target FROM onceward.step s
                WHERE s.sink = l.sink AND s.lane = l.lane ORDER BY s.step DESC LIMIT 1
        ) newest
        WHERE greatest(pg_snapshot_xmax(newest.base), pg_snapshot_xmax(newest.target)) > pg_snapshot_xmax(pg_current_snapshot())
    );
END
$$;

-- Why relays must not go on; null: they may. By the numbers of another server new messages would look delivered.
CREATE FUNCTION onceward.relay_alarm() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM onceward.cluster c, pg_control_system() s, pg_database d
            WHERE c.system_identifier = s.system_identifier AND c.database = d.oid AND d.datname = current_database()
    ) THEN
        RETURN 'the outbox was made in another database, of which this one is a copy: it counts its places by the transactions of that one, and new messages would look delivered. Nothing is lost. No relay sends until an operator runs `onceward relay rebase` (after pg_upgrade, which keeps the numbers of transactions: `onceward relay rebase --keep`)';
    ELSIF onceward.has_foreign_numbers() THEN
        RETURN 'the outbox has numbers of transactions that this server has not come to: it was restored from another one, and new messages would look delivered. Nothing is lost. No relay sends until an operator runs `onceward relay rebase`';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION onceward.check_relay_alarm() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    alarm text := onceward.relay_alarm();
BEGIN
    IF alarm IS NOT NULL THEN
        RAISE EXCEPTION '%', alarm USING ERRCODE = 'OW004';
    END IF;
END
$$;

-- Where the outbox ends now. What `place` does not see has a `seq` above `floor`, or its transaction is in the list of
-- `place`. A snapshot does not list transactions that run and are younger than the last one that has ended: those are
-- added, up to the number of this transaction. As that number is written with the place, a crash gives none below it
-- again. A floor of null: too many are to be added.
CREATE FUNCTION onceward.end_of_outbox(OUT place pg_snapshot, OUT floor bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own bigint;
    behind bigint;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'the place of an outbox is found before anything is written';
    END IF;
    SELECT pg_current_snapshot(), CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO place, floor
        FROM onceward.message_seq_seq s;
    -- After that: a transaction with a larger number than this one draws a larger `seq` than the floor.
    own := pg_current_xact_id()::text::bigint;
    behind := pg_snapshot_xmax(place)::text::bigint;
    IF own - behind > 10000 THEN
        floor := NULL;
    ELSIF own > behind THEN
        place := (pg_snapshot_xmin(place)::text || ':' || own || ':' || concat_ws(',',
            nullif(split_part(place::text, ':', 3), ''),
            (SELECT string_agg(open.xid::text, ',' ORDER BY open.xid) FROM generate_series(behind, own - 1) AS open (xid))
        ))::pg_snapshot;
    END IF;
END
$$;

-- The sink of this name; if there is none it begins with what commits from now on, or with the oldest message.
CREATE FUNCTION onceward.open_sink(sink_name text, is_from_oldest boolean) RETURNS smallint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    found_id smallint;
    first_floor bigint := 0;
    first_base pg_snapshot := '1:1:';
BEGIN
    PERFORM onceward.check_relay_alarm();
    SELECT s.id INTO found_id FROM onceward.sink s WHERE s.name = sink_name;
    IF FOUND THEN
        RETURN found_id;
    END IF;
    -- No other one makes it at the same time, and no sweep deletes what it is to begin with.
    LOCK TABLE onceward.sink IN SHARE ROW EXCLUSIVE MODE;
    SELECT s.id INTO found_id FROM onceward.sink s WHERE s.name = sink_name;
    IF FOUND THEN
        RETURN found_id;
    END IF;
    IF NOT is_from_oldest THEN
        SELECT e.place, coalesce(e.floor, 0) INTO first_base, first_floor FROM onceward.end_of_outbox() e;
    END IF;
    INSERT INTO onceward.sink AS s (name, at) VALUES (sink_name, clock_timestamp()) RETURNING s.id INTO found_id;
    INSERT INTO onceward.lane (sink, lane) SELECT found_id, l.lane FROM generate_series(0, 63) AS l (lane);
    INSERT INTO onceward.step (sink, lane, step, fence, base, floor, at)
        SELECT found_id, l.lane, 0, gen_random_uuid(), first_base, first_floor, clock_timestamp()
            FROM generate_series(0, 63) AS l (lane);
    RETURN found_id;
END
$$;

-- Appends a step that leaves the lane where it is: whatever was proposed on the step before misses. False: the lane is
-- not there, or others appended again and again.
CREATE FUNCTION onceward.repeat_step(of_sink smallint, of_lane smallint, next_fence uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR tries IN 1..20 LOOP
        INSERT INTO onceward.step (sink, lane, step, fence, base, floor, target, next_floor, done, at)
            SELECT s.sink, s.lane, s.step + 1, next_fence, s.base, s.floor, s.target, s.next_floor, s.done, clock_timestamp()
                FROM onceward.step s WHERE s.sink = of_sink AND s.lane = of_lane ORDER BY s.step DESC LIMIT 1
            ON CONFLICT ON CONSTRAINT step_pkey DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;

-- Whether a lane has messages that a place does not see. Callers pin the plans.
CREATE FUNCTION onceward.is_behind(of_lane smallint, base pg_snapshot, floor bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN EXISTS (
        SELECT FROM onceward.message m
            WHERE m.lane = of_lane AND m.seq > is_behind.floor AND NOT pg_visible_in_snapshot(m.xid, is_behind.base)
            ORDER BY m.lane, m.seq OFFSET 0
    ) OR EXISTS (
        SELECT FROM pg_snapshot_xip(is_behind.base) AS late (xid) CROSS JOIN LATERAL (
            SELECT FROM onceward.message m
                WHERE m.xid = late.xid AND m.lane = of_lane AND m.seq <= is_behind.floor
                ORDER BY m.xid, m.lane, m.seq OFFSET 0
        ) m
        -- Without this it would look at everything that an open transaction has written so far.
        WHERE pg_visible_in_snapshot(late.xid, pg_current_snapshot())
    );
END
$$;

-- Renews the lanes of a relay, gives back what is above its fair share, and takes over free ones up to that. `idle_place`
-- and `idle_floor` are where the outbox ended, if a lane had come so far: who asks whether it has something to take need
-- not look at what came before.
CREATE FUNCTION onceward.lease(of_sink smallint, me uuid, lasts interval)
RETURNS TABLE (
    lane smallint, step bigint, fence uuid, base text, floor bigint, target text, next_floor bigint, done bigint,
    idle_place text, idle_floor bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    now_at record;
    moment timestamptz := clock_timestamp();
    relays bigint;
    place bigint;
    share bigint;
    free smallint;
BEGIN
    PERFORM onceward.check_relay_alarm();
    PERFORM FROM onceward.sink s WHERE s.id = of_sink;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the sink was removed while a relay worked for it; nothing more is sent: end the relay, or let it open the sink again'
            USING ERRCODE = 'OW004';
    END IF;
    SELECT e.place, e.floor INTO now_at FROM onceward.end_of_outbox() e;
    INSERT INTO onceward.relay AS r (sink, relay, until) VALUES (of_sink, me, moment + lasts)
        ON CONFLICT ON CONSTRAINT relay_pkey DO UPDATE SET until = excluded.until;
    SELECT count(*), count(*) FILTER (WHERE r.relay < me) INTO relays, place
        FROM onceward.relay r WHERE r.sink = of_sink AND r.until > moment;
    share := 64 / relays + CASE WHEN place < 64 % relays THEN 1 ELSE 0 END;
    UPDATE onceward.lane l SET
        relay = CASE WHEN own.place <= share THEN me END,
        until = CASE WHEN own.place <= share THEN moment + lasts ELSE '-infinity' END
        FROM (
            SELECT held.lane, row_number() OVER (ORDER BY held.lane) AS place FROM (
                SELECT h.lane FROM onceward.lane h WHERE h.sink = of_sink AND h.relay = me FOR NO KEY UPDATE SKIP LOCKED
            ) held
        ) own
        WHERE l.sink = of_sink AND l.lane = own.lane;
    SELECT share - count(*) INTO share FROM onceward.lane l WHERE l.sink = of_sink AND l.relay = me;
    FOR free IN
        UPDATE onceward.lane l SET relay = me, until = moment + lasts
            FROM (
                SELECT f.lane FROM onceward.lane f
                    WHERE f.sink = of_sink AND (f.relay IS NULL OR f.until <= moment)
                    ORDER BY f.lane LIMIT greatest(share, 0) FOR NO KEY UPDATE SKIP LOCKED
            ) unheld
            WHERE l.sink = of_sink AND l.lane = unheld.lane
            RETURNING l.lane
    LOOP
        -- The owner before may be alive: whatever it still settles misses.
        IF NOT onceward.repeat_step(of_sink, free, gen_random_uuid()) THEN
            UPDATE onceward.lane l SET relay = NULL WHERE l.sink = of_sink AND l.lane = free;
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT l.lane, s.step, s.fence, s.base::text, s.floor, s.target::text, s.next_floor, s.done,
            CASE WHEN idle.is_so THEN now_at.place::text END, CASE WHEN idle.is_so THEN now_at.floor END
            FROM onceward.lane l CROSS JOIN LATERAL (
                SELECT n.* FROM onceward.step n WHERE n.sink = l.sink AND n.lane = l.lane ORDER BY n.step DESC LIMIT 1
            ) s CROSS JOIN LATERAL (
                SELECT now_at.floor IS NOT NULL AND s.done = 0 AND NOT onceward.is_behind(l.lane, s.base, s.floor) AS is_so
                    OFFSET 0
            ) idle
            WHERE l.sink = of_sink AND l.relay = me ORDER BY l.lane;
END
$$;

CREATE FUNCTION onceward.give_back(of_sink smallint, me uuid) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE onceward.lane l SET relay = NULL, until = '-infinity' WHERE l.sink = of_sink AND l.relay = me;
    DELETE FROM onceward.relay r WHERE r.sink = of_sink AND r.relay = me;
$$;

REVOKE ALL ON onceward.cluster, onceward.sink, onceward.relay, onceward.lane, onceward.step, onceward.parked FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (8, 1);
