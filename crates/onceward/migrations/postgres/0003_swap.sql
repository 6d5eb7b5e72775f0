-- What the Rust library calls inside a transaction of the user's own. It has the rights of whoever
-- calls it, and nobody is granted it: services in other languages call `complete` and `fail`.

-- Replaces a record if its fence is the expected one; without an expected one, if there is none.
-- Gives what was done, or what is stored instead; nulls if nothing is stored.
--
-- Lengths are microseconds; null for `ttl` means that it does not end by itself, for `retain` and
-- `sweep` that they stay as they are. `patience` is how many milliseconds an open transaction that
-- holds the record is waited for; after that the error is 55P03; null: as the session is told, or 5 s if it
-- would wait for ever. `is_listed`: a claim that is seen before it has ended, so that it is among what is
-- open. One that shall end in its own transaction is not: if somebody commits that without the end, nothing
-- lists the claim before it is changed again, and only a request with its key finds it. `is_last`: a COMMIT is on its way,
-- so that nothing but an error can keep it from being done: OW001, the claim is over; OW003, this is
-- a savepoint inside another transaction. `is_durable`: whatever the session was told, an
-- acknowledged commit shall survive.
CREATE FUNCTION onceward.swap(
    id bytea, expected uuid, next_fence uuid, next_execution uuid, next_state smallint, is_anew boolean,
    ttl bigint, retain bigint, sweep bigint, keeps_sweep boolean, next_scope text, next_operation text,
    next_body bytea, note_kind text, note_execution uuid, note_actor text, note_reason text,
    patience integer, is_listed boolean, is_last boolean, is_durable boolean,
    OUT was_made boolean, OUT found_fence uuid, OUT found_started_at bigint, OUT found_updated_at bigint,
    OUT found_expires_at bigint, OUT found_body bytea, OUT read_at bigint,
    OUT has_standbys boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    usual_patience text;
    writer xid;
BEGIN
    IF is_durable AND current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    usual_patience := current_setting('lock_timeout');
    IF patience IS NULL AND usual_patience = '0' THEN
        patience := 5000;
    END IF;
    IF patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', patience::text, true);
    END IF;
    IF expected IS NULL THEN
        INSERT INTO onceward.record AS r (digest, fence, execution, state, started_at, updated_at,
                expires_at, sweep_after, retain, scope, operation, body)
            VALUES (id, next_fence, next_execution, next_state, moment, moment,
                moment + ttl * interval '1 microsecond', moment + sweep * interval '1 microsecond',
                swap.retain * interval '1 microsecond', next_scope, next_operation, next_body)
            ON CONFLICT ON CONSTRAINT record_pkey DO NOTHING
            RETURNING r.xmin INTO writer;
    ELSE
        UPDATE onceward.record r SET
            fence = next_fence,
            execution = next_execution,
            state = next_state,
            started_at = CASE WHEN is_anew THEN moment ELSE r.started_at END,
            updated_at = moment,
            expires_at = moment + ttl * interval '1 microsecond',
            retain = coalesce(swap.retain * interval '1 microsecond', r.retain),
            sweep_after = CASE WHEN keeps_sweep AND r.state = 0 THEN r.sweep_after
                ELSE coalesce(moment + sweep * interval '1 microsecond', r.sweep_after) END,
            body = next_body
            WHERE r.digest = id AND r.fence = expected
            RETURNING r.xmin INTO writer;
    END IF;
    was_made := writer IS NOT NULL;
    IF was_made THEN
        IF next_state >= 3 THEN
            DELETE FROM onceward.open o WHERE o.digest = id AND expected IS NOT NULL;
        ELSIF is_listed THEN
            INSERT INTO onceward.open (digest) VALUES (id) ON CONFLICT ON CONSTRAINT open_pkey DO NOTHING;
        END IF;
        IF note_kind IS NOT NULL THEN
            INSERT INTO onceward.trail (digest, at, kind, execution, actor, reason)
                VALUES (id, moment, note_kind, note_execution, note_actor, note_reason);
        END IF;
        -- What is written in a savepoint has a number of its own.
        IF is_last AND writer <> pg_current_xact_id()::xid THEN
            RAISE EXCEPTION 'this is a savepoint inside another transaction' USING ERRCODE = 'OW003',
                HINT = 'Propose the end, and commit the outer transaction.';
        END IF;
        found_updated_at := (extract(epoch FROM moment) * 1000000)::bigint;
    ELSIF is_last THEN
        RAISE EXCEPTION 'this execution is over: another one took over, or it has ended before'
            USING ERRCODE = 'OW001';
    ELSE
        SELECT r.fence, (extract(epoch FROM r.started_at) * 1000000)::bigint,
            (extract(epoch FROM r.updated_at) * 1000000)::bigint,
            (extract(epoch FROM r.expires_at) * 1000000)::bigint, r.body,
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
            INTO found_fence, found_started_at, found_updated_at, found_expires_at, found_body, read_at
            FROM onceward.record r WHERE r.digest = id;
    END IF;
    has_standbys := current_setting('synchronous_standby_names') <> '';
    IF patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', usual_patience, true);
    END IF;
END
$$;

REVOKE ALL ON FUNCTION onceward.swap FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (3, 1);
