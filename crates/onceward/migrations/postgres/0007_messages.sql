-- Messages that leave with a commit. Producers call `onceward.enqueue` inside their own transactions; relays go through
-- the table without changing a row of it (0009), and sweeps delete what is over (0010).
SET LOCAL search_path = pg_catalog, pg_temp;

-- `xid` is the transaction that enqueued it, also inside a savepoint. A transaction has its number before it draws its
-- first `seq`, so that whatever a snapshot does not know yet has a larger `seq` than all before the snapshot.
-- `lane` is the first byte of SHA-256(aggregate) & 63; without an aggregate of the producer's that is the id.
CREATE TABLE onceward.message (
    seq        bigint      GENERATED ALWAYS AS IDENTITY,
    xid        xid8        NOT NULL,
    at         timestamptz NOT NULL,
    not_before timestamptz,
    expires_at timestamptz,
    id         uuid        NOT NULL,
    lane       smallint    NOT NULL,
    topic      text        NOT NULL,
    aggregate  text        NOT NULL COLLATE "C",
    operation  bytea,
    trace      text,
    headers    jsonb       NOT NULL,
    body       bytea       NOT NULL,
    CONSTRAINT message_pkey PRIMARY KEY (lane, seq),
    CONSTRAINT message_id_key UNIQUE (id)
);

-- Finds the messages of a transaction that was open for long.
CREATE INDEX message_xid ON onceward.message (xid, lane, seq);

-- Puts a message into the outbox: the caller's commit sends it. `headers` as [["name", "value"], …]; without an
-- aggregate it keeps no order; without an id it gets one (UUIDv7). `execution` is the request header
-- Onceward-Execution, or the reference of an operation. Returns the id, which is its `Idempotency-Key`.
CREATE FUNCTION onceward.enqueue(
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
    own_id uuid := coalesce(id, encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substr(int8send(floor(extract(epoch FROM moment) * 1000)::bigint), 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid);
    whose text := coalesce(aggregate, own_id::text);
    named_by text := '';
BEGIN
    IF topic IS NULL OR body IS NULL OR headers IS NULL THEN
        RAISE EXCEPTION 'topic, body and headers must not be null; nothing was enqueued' USING ERRCODE = 'OW002';
    END IF;
    named_by := CASE WHEN octet_length(topic) NOT BETWEEN 1 AND 255 OR topic ~ '[\x01-\x1F\x7F-\x9F]' THEN 'topic'
        WHEN octet_length(whose) NOT BETWEEN 1 AND 255 OR whose ~ '[\x01-\x1F\x7F-\x9F]' THEN 'aggregate'
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
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO onceward.message AS m (xid, at, not_before, expires_at, id, lane, topic, aggregate, operation, trace, headers, body)
        VALUES (own_xid, moment, not_before, expires_at, own_id,
            get_byte(sha256(convert_to(whose, 'UTF8')), 0) & 63, topic, whose,
            decode(translate(substr(execution, 1, 43), '-_', '+/') || '=', 'base64'), traceparent, headers, body)
        ON CONFLICT ON CONSTRAINT message_id_key DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a message with the id % is in the outbox already, and keeps its body; nothing was enqueued', own_id
            USING ERRCODE = 'unique_violation', HINT = 'Roll back: the transaction that enqueued it was committed, or this message needs an id of its own.';
    END IF;
    RETURN own_id;
END
$$;

-- Whether header lines can be sent: [["name", "value"], …].
CREATE FUNCTION onceward.check_lines(headers jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes integer := 0;
    line jsonb;
BEGIN
    IF jsonb_typeof(headers) <> 'array' THEN
        RAISE EXCEPTION 'headers must be an array of pairs like [["content-type", "application/json"]], not %; nothing was enqueued', jsonb_typeof(headers)
            USING ERRCODE = 'OW002';
    END IF;
    FOR line IN SELECT value FROM jsonb_array_elements(headers) LOOP
        IF jsonb_typeof(line) <> 'array' OR jsonb_array_length(line) <> 2
            OR jsonb_typeof(line -> 0) <> 'string' OR jsonb_typeof(line -> 1) <> 'string' THEN
            RAISE EXCEPTION 'a header line must be a pair of texts like ["content-type", "application/json"]; nothing was enqueued'
                USING ERRCODE = 'OW002';
        END IF;
        IF line ->> 0 !~ '^[-!#$%&''*+.^_`|~0-9A-Za-z]+$' OR line ->> 1 ~ '[\x01-\x08\x0A-\x1F\x7F-\x9F]' THEN
            RAISE EXCEPTION 'the header line % cannot be sent; nothing was enqueued', left(line ->> 0, 80)
                USING ERRCODE = 'OW002', HINT = 'A name has no spaces or colons, a value no control characters.';
        END IF;
        bytes := bytes + octet_length(line ->> 0) + octet_length(line ->> 1);
    END LOOP;
    IF bytes > 32768 THEN
        RAISE EXCEPTION 'the header lines have % bytes, and a message takes at most 32768; nothing was enqueued', bytes
            USING ERRCODE = 'OW002';
    END IF;
END
$$;

REVOKE ALL ON TABLE onceward.message FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA onceward FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA onceward FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'onceward_app') THEN
        GRANT EXECUTE ON FUNCTION onceward.enqueue(text, text, bytea, jsonb, uuid, timestamptz, timestamptz, text, text)
            TO onceward_app;
    END IF;
END
$$;

INSERT INTO onceward.migration (version, needs) VALUES (7, 1);
