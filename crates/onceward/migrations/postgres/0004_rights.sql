-- No name in here, and none in a function, is looked for in a schema that another role may write to: some role may
-- have the right to make functions and operators there. And what a route does not keep is not stored by SQL.

SET LOCAL search_path = pg_catalog, pg_temp;

-- As before, but with a `search_path` of its own and without the product of a bigint and an interval, which
-- PostgreSQL itself does not have: one that another role had made would have run with the rights of the caller.
CREATE OR REPLACE FUNCTION onceward.swap(
    id bytea, expected uuid, next_fence uuid, next_execution uuid, next_state smallint, is_anew boolean,
    ttl bigint, retain bigint, sweep bigint, keeps_sweep boolean, next_scope text, next_operation text,
    next_body bytea, note_kind text, note_execution uuid, note_actor text, note_reason text,
    patience integer, is_listed boolean, is_last boolean, is_durable boolean,
    OUT was_made boolean, OUT found_fence uuid, OUT found_started_at bigint, OUT found_updated_at bigint,
    OUT found_expires_at bigint, OUT found_body bytea, OUT read_at bigint,
    OUT has_standbys boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
                moment + ttl::double precision * interval '1 microsecond',
                moment + sweep::double precision * interval '1 microsecond',
                swap.retain::double precision * interval '1 microsecond', next_scope, next_operation, next_body)
            ON CONFLICT ON CONSTRAINT record_pkey DO NOTHING
            RETURNING r.xmin INTO writer;
    ELSE
        UPDATE onceward.record r SET
            fence = next_fence,
            execution = next_execution,
            state = next_state,
            started_at = CASE WHEN is_anew THEN moment ELSE r.started_at END,
            updated_at = moment,
            expires_at = moment + ttl::double precision * interval '1 microsecond',
            retain = coalesce(swap.retain::double precision * interval '1 microsecond', r.retain),
            sweep_after = CASE WHEN keeps_sweep AND r.state = 0 THEN r.sweep_after
                ELSE coalesce(moment + sweep::double precision * interval '1 microsecond', r.sweep_after) END,
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

CREATE FUNCTION onceward.ends_with(value bytea, tail bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT substr(value, greatest(length(value) - length(tail), 0) + 1) = tail
$$;

DROP FUNCTION onceward.settle(text, smallint, bytea);

-- Ends the operation of an execution inside the caller's transaction. The record is found by the
-- digest in the text, and must still belong to the execution in it. An open record ends with what may be kept of an
-- answer (nothing is said if that is everything), with its state and with the end of its map. From now on it ends with
-- `ending`, and with as much of the answer as may be kept: `answer`, its lines and its body; `location`, that line; or
-- nothing. What may be kept was said with the claim, by the route; where answers are sealed SQL has no key for them.
-- `large` is the body that `answer` only names: it is kept in chunks beside the record, so that who reads many records
-- does not read all their answers.
CREATE FUNCTION onceward.settle(
    execution text, next_state smallint, ending bytea, location bytea, answer bytea, large bytea
)
RETURNS void
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id bytea;
    owner uuid;
    stored record;
    content bytea;
    kept bytea;
    moment timestamptz;
    next_fence uuid := gen_random_uuid();
BEGIN
    IF execution !~ '^[-_0-9A-Za-z]{43}\.[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$' THEN
        RAISE EXCEPTION 'not an execution: %', quote_literal(left(execution, 100))
            USING ERRCODE = 'OW002', HINT = 'Pass the value of the request header Onceward-Execution as it is.';
    END IF;
    id := decode(translate(split_part(execution, '.', 1), '-_', '+/') || '=', 'base64');
    owner := split_part(execution, '.', 2)::uuid;
    SELECT r.fence, r.state, r.body, r.retain INTO stored
        FROM onceward.record r
        WHERE r.digest = id AND r.execution = owner AND r.state IN (0, 1)
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this execution is over: another one took over, or it has ended before'
            USING ERRCODE = 'OW001', DETAIL = execution,
                HINT = 'Roll back and answer as you like: the gateway tells the client what counts.';
    END IF;
    content := substr(stored.body, 1, length(stored.body) - 8);
    IF substr(sha256(id || content), 1, 8) <> substr(stored.body, length(stored.body) - 7) THEN
        RAISE EXCEPTION 'the record of this execution is damaged' USING ERRCODE = 'OW001', DETAIL = execution;
    END IF;
    IF get_byte(content, 0) <> 1 OR substr(content, length(content) - 2) NOT IN (E'\\x0900ff', E'\\x0904ff') THEN
        RAISE EXCEPTION 'the record of this execution was written by newer software'
            USING ERRCODE = 'OW002', HINT = 'Run `onceward migrate` of the newest version that is in use.';
    END IF;
    content := substr(content, 1, length(content) - 3);
    kept := CASE
        WHEN onceward.ends_with(content, E'\\x13' || onceward.cbor_text('location')) THEN location
        WHEN onceward.ends_with(content, E'\\x13' || onceward.cbor_text('sealed'))
            OR onceward.ends_with(content, E'\\x13' || onceward.cbor_text('sealed-location'))
            OR onceward.ends_with(content, E'\\x13' || onceward.cbor_text('status')) THEN ''
        ELSE answer END;
    content := content || ending || kept || E'\\xff';
    moment := clock_timestamp();
    IF kept = answer AND length(large) > 0 THEN
        -- In chunks of 256 KiB, as the library writes and reads them.
        INSERT INTO onceward.spool (digest, fence, chunk, at, bytes)
            SELECT id, next_fence, at.chunk, moment, substr(large, at.chunk * 262144 + 1, 262144)
                FROM generate_series(0, (length(large) - 1) / 262144) AS at (chunk);
    END IF;
    -- A commit that is acknowledged is durable, whatever this session or its role was told.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE onceward.record r SET
        fence = next_fence,
        state = next_state,
        updated_at = moment,
        expires_at = moment + stored.retain,
        sweep_after = CASE WHEN stored.state = 0 AND next_state IN (3, 4) THEN r.sweep_after
            ELSE moment + stored.retain + interval '1 hour' END,
        body = content || substr(sha256(id || content), 1, 8)
        WHERE r.digest = id;
    IF next_state IN (3, 4) THEN
        DELETE FROM onceward.open o WHERE o.digest = id;
    END IF;
END
$$;

-- Ends the operation with this answer: 2xx and 3xx as a success, all others as a final failure. Every
-- retry gets it, unless its route keeps no more than the status: then lines and body are not stored. `execution` is the
-- request header Onceward-Execution; headers as [["name", "value"], …].
CREATE OR REPLACE FUNCTION onceward.complete(execution text, status integer, headers jsonb DEFAULT '[]', body bytea DEFAULT '')
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    went_well boolean := status BETWEEN 200 AND 399;
    is_large boolean := length(body) > 65536;
    lines bytea;
    location bytea;
BEGIN
    IF execution IS NULL OR status IS NULL OR headers IS NULL OR body IS NULL THEN
        RAISE EXCEPTION 'execution, status, headers and body must not be null' USING ERRCODE = 'OW002';
    END IF;
    IF status NOT BETWEEN 200 AND 599 THEN
        RAISE EXCEPTION '% is not the status of an answer', status USING ERRCODE = 'OW002';
    END IF;
    IF length(body) > 8388608 THEN
        RAISE EXCEPTION 'the body has % bytes; at most 8388608 are kept', length(body) USING ERRCODE = 'OW002';
    END IF;
    lines := onceward.cbor_headers(headers);
    SELECT onceward.cbor_headers(jsonb_build_array(line.value)) INTO location
        FROM jsonb_array_elements(headers) WITH ORDINALITY AS line (value, place)
        WHERE lower(line.value ->> 0) = 'location' ORDER BY line.place LIMIT 1;
    PERFORM onceward.settle(
        execution,
        CASE WHEN went_well THEN 3 ELSE 4 END::smallint,
        CASE WHEN went_well THEN E'\\x0901'::bytea ELSE E'\\x0902'::bytea END
            || E'\\x0a' || onceward.cbor_head(0, status::bigint),
        coalesce(E'\\x0b' || location, ''),
        E'\\x0b' || lines || CASE
            WHEN is_large THEN E'\\x0d' || onceward.cbor_head(0, length(body)::bigint)
                || E'\\x0e' || onceward.cbor_bytes(sha256(body))
            ELSE E'\\x0c' || onceward.cbor_bytes(body) END,
        CASE WHEN is_large THEN body ELSE '' END
    );
END
$$;

-- Ends the operation without success. `retryable`: nothing is kept, and the next request runs it again;
-- otherwise this answer is final, and its status is needed.
CREATE OR REPLACE FUNCTION onceward.fail(execution text, retryable boolean, status integer DEFAULT NULL, headers jsonb DEFAULT '[]', body bytea DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF execution IS NULL OR retryable IS NULL THEN
        RAISE EXCEPTION 'execution and retryable must not be null' USING ERRCODE = 'OW002';
    END IF;
    IF retryable THEN
        PERFORM onceward.settle(execution, 2::smallint, E'\\x0903', '', '', '');
    ELSIF status IS NULL OR status BETWEEN 200 AND 399 THEN
        RAISE EXCEPTION 'a final failure needs a status of its own, like 422' USING ERRCODE = 'OW002';
    ELSE
        PERFORM onceward.complete(execution, status, coalesce(headers, '[]'), coalesce(body, ''));
    END IF;
END
$$;

-- Only what is granted by name: defaults of the database may have given more when these were made.
REVOKE ALL ON SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (4, 1);
