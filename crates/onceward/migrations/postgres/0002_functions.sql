-- What a service in any language calls inside its own transaction, so that its effect and the end of
-- the operation commit together. There is no `claim`: who may run is decided in one place only.
--
-- Errors: OW001, the execution is over (another one took over, or it has ended before); OW002, an
-- argument cannot be used. Both abort the caller's transaction, and with it the effect.

-- Bytes are written as E'\\x…', which means the same in every session. Every argument has the very type of
-- its parameter, so that no other function of the same name can come before the one that is meant.

-- Messages that were received once: `onceward.first_time`.
CREATE TABLE onceward.inbox (
    consumer    text        NOT NULL,
    message_id  text        NOT NULL,
    received_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX inbox_expires_at ON onceward.inbox (expires_at);

-- The head of a CBOR item: its kind and its length or value.
CREATE FUNCTION onceward.cbor_head(kind integer, value bigint) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN value < 24 THEN set_byte(E'\\x00', 0, kind * 32 + value::integer)
        WHEN value < 256 THEN set_byte(E'\\x00', 0, kind * 32 + 24) || set_byte(E'\\x00', 0, value::integer)
        WHEN value < 65536 THEN set_byte(E'\\x00', 0, kind * 32 + 25) || substr(int4send(value::integer), 3)
        ELSE set_byte(E'\\x00', 0, kind * 32 + 26) || substr(int8send(value), 5)
    END
$$;

CREATE FUNCTION onceward.cbor_bytes(value bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT onceward.cbor_head(2, length(value)::bigint) || value
$$;

CREATE FUNCTION onceward.cbor_text(value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT onceward.cbor_head(3, octet_length(value)::bigint) || convert_to(value, 'UTF8')
$$;

-- Header lines as they are stored: [["name", "value"], …] in their order, names in small letters.
CREATE FUNCTION onceward.cbor_headers(headers jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    line jsonb;
    lines bytea := '';
    items integer := 0;
BEGIN
    IF jsonb_typeof(headers) <> 'array' THEN
        RAISE EXCEPTION 'headers must be an array of pairs like [["content-type", "application/json"]], not %', jsonb_typeof(headers)
            USING ERRCODE = 'OW002';
    END IF;
    FOR line IN SELECT value FROM jsonb_array_elements(headers) LOOP
        IF jsonb_typeof(line) <> 'array' OR jsonb_array_length(line) <> 2
            OR jsonb_typeof(line -> 0) <> 'string' OR jsonb_typeof(line -> 1) <> 'string' THEN
            RAISE EXCEPTION 'a header line must be a pair of texts like ["content-type", "application/json"]'
                USING ERRCODE = 'OW002';
        END IF;
        IF line ->> 0 !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]+$' OR line ->> 1 ~ '[\x01-\x08\x0A-\x1F\x7F]' THEN
            RAISE EXCEPTION 'the header line % cannot be sent', left(line ->> 0, 80)
                USING ERRCODE = 'OW002', HINT = 'A name has no spaces or colons, a value no line breaks.';
        END IF;
        -- The length is that of the body, whatever is said here.
        CONTINUE WHEN lower(line ->> 0) = 'content-length';
        lines := lines || onceward.cbor_text(lower(line ->> 0))
            || onceward.cbor_bytes(convert_to(line ->> 1, 'UTF8'));
        items := items + 2;
    END LOOP;
    IF length(lines) > 32768 THEN
        RAISE EXCEPTION 'the header lines have % bytes; at most 32768 are kept', length(lines)
            USING ERRCODE = 'OW002';
    END IF;
    RETURN onceward.cbor_head(4, items::bigint) || lines;
END
$$;

-- Ends the operation of an execution inside the caller's transaction. The record is found by the
-- digest in the text, and must still belong to the execution in it. `tail` is what the record ends
-- with from now on: an open record ends with its state and with the end of its map.
CREATE FUNCTION onceward.settle(execution text, next_state smallint, tail bytea) RETURNS void
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id bytea;
    owner uuid;
    stored record;
    content bytea;
    moment timestamptz;
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
    content := substr(content, 1, length(content) - 3) || tail || E'\\xff';
    moment := clock_timestamp();
    -- A commit that is acknowledged is durable, whatever this session or its role was told.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE onceward.record r SET
        fence = gen_random_uuid(),
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
-- retry gets it. `execution` is the request header Onceward-Execution; headers as [["name", "value"], …].
CREATE FUNCTION onceward.complete(execution text, status integer, headers jsonb DEFAULT '[]', body bytea DEFAULT '')
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    went_well boolean := status BETWEEN 200 AND 399;
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
    PERFORM onceward.settle(
        execution,
        CASE WHEN went_well THEN 3 ELSE 4 END::smallint,
        CASE WHEN went_well THEN E'\\x0901'::bytea ELSE E'\\x0902'::bytea END
            || E'\\x0a' || onceward.cbor_head(0, status::bigint)
            || E'\\x0b' || onceward.cbor_headers(headers)
            || E'\\x0c' || onceward.cbor_bytes(body)
    );
END
$$;

-- Ends the operation without success. `retryable`: nothing is kept, and the next request runs it again;
-- otherwise this answer is final, and its status is needed.
CREATE FUNCTION onceward.fail(execution text, retryable boolean, status integer DEFAULT NULL, headers jsonb DEFAULT '[]', body bytea DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF execution IS NULL OR retryable IS NULL THEN
        RAISE EXCEPTION 'execution and retryable must not be null' USING ERRCODE = 'OW002';
    END IF;
    IF retryable THEN
        PERFORM onceward.settle(execution, 2::smallint, E'\\x0903');
    ELSIF status IS NULL OR status BETWEEN 200 AND 399 THEN
        RAISE EXCEPTION 'a final failure needs a status of its own, like 422' USING ERRCODE = 'OW002';
    ELSE
        PERFORM onceward.complete(execution, status, coalesce(headers, '[]'), coalesce(body, ''));
    END IF;
END
$$;

-- Whether a message comes for the first time: true once for each consumer and message, in the caller's
-- transaction. A second delivery waits for the first one to commit or roll back.
CREATE FUNCTION onceward.first_time(consumer text, message_id text, retain interval DEFAULT '7 days') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF consumer IS NULL OR message_id IS NULL OR retain IS NULL OR retain <= interval '0' THEN
        RAISE EXCEPTION 'consumer, message_id and a positive retain are needed' USING ERRCODE = 'OW002';
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO onceward.inbox AS i (consumer, message_id, received_at, expires_at)
        VALUES (consumer, message_id, clock_timestamp(), clock_timestamp() + retain)
        ON CONFLICT ON CONSTRAINT inbox_pkey DO UPDATE
            SET received_at = excluded.received_at, expires_at = excluded.expires_at
            WHERE i.expires_at < clock_timestamp();
    RETURN FOUND;
END
$$;

REVOKE ALL ON SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

-- Services are members of this role: `GRANT onceward_app TO shop`. It may call the functions, and
-- nothing else: no service can read the answers of another one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'onceward_app') THEN
        CREATE ROLE onceward_app NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'the role onceward_app could not be made; let an administrator run: CREATE ROLE onceward_app NOLOGIN; GRANT USAGE ON SCHEMA onceward TO onceward_app; GRANT EXECUTE ON FUNCTION onceward.complete, onceward.fail, onceward.first_time TO onceward_app';
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'onceward_app') THEN
        GRANT USAGE ON SCHEMA onceward TO onceward_app;
        GRANT EXECUTE ON FUNCTION onceward.complete(text, integer, jsonb, bytea) TO onceward_app;
        GRANT EXECUTE ON FUNCTION onceward.fail(text, boolean, integer, jsonb, bytea) TO onceward_app;
        GRANT EXECUTE ON FUNCTION onceward.first_time(text, text, interval) TO onceward_app;
    END IF;
END
$$;

INSERT INTO onceward.migration (version, needs) VALUES (2, 1);
