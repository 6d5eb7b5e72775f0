-- What people read with tools of their own: one line for each operation, in words. No process of Onceward reads
-- it. `Stored::status` decides what a record means; the view says the same, and a test compares them (ADR 0041).
SET LOCAL search_path = pg_catalog, pg_temp;

-- A member of a record's map, if it is of this kind: 0, a number, in digits; 2, bytes, in hex; 3, a text. Of a member
-- that is a list, `place` is which of its items is wanted, counted from 1. Null: there is none.
CREATE FUNCTION onceward.member(body bytea, wanted integer, of_kind integer, place integer DEFAULT 0) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    content bytea := substr(body, 1, greatest(length(body) - 8, 0));
    -- What was read so far: the version, and the head of the map.
    behind bigint := 2;
    head integer;
    kind integer;
    more integer;
    value bigint;
    key bigint;
    items_left bigint;
    item integer;
    bytes bytea;
BEGIN
    WHILE behind < length(content) LOOP
        head := get_byte(content, behind::integer);
        kind := head >> 5;
        -- The end of the map, or an item whose length is not said: no version writes one in it.
        EXIT WHEN head & 31 > 27;
        more := CASE head & 31 WHEN 24 THEN 1 WHEN 25 THEN 2 WHEN 26 THEN 4 WHEN 27 THEN 8 ELSE 0 END;
        value := CASE more WHEN 0 THEN head & 31
            ELSE ('x' || lpad(encode(substr(content, behind::integer + 2, more), 'hex'), 16, '0'))::bit(64)::bigint END;
        IF value < 0 THEN
            value := 9223372036854775807;
        END IF;
        behind := behind + 1 + more;
        -- No record is that long: it was not written by this software.
        EXIT WHEN kind IN (2, 3, 4, 5) AND value > length(content) - behind;
        IF key IS NULL THEN
            key := value;
            items_left := 1;
            item := 0;
            CONTINUE;
        END IF;
        IF kind IN (2, 3) THEN
            bytes := substr(content, behind::integer + 1, value::integer);
            behind := behind + value;
        END IF;
        IF key = wanted AND item = place AND kind = of_kind THEN
            RETURN CASE
                WHEN kind = 0 THEN value::text
                WHEN kind = 2 THEN encode(bytes, 'hex')
                WHEN kind = 3 AND getdatabaseencoding() = 'UTF8' AND position(E'\\x00'::bytea IN bytes) = 0
                    THEN convert_from(bytes, 'UTF8')
                WHEN kind = 3 THEN encode(bytes, 'escape') END;
        END IF;
        items_left := items_left - 1 + CASE kind WHEN 4 THEN value WHEN 5 THEN 2 * value WHEN 6 THEN 1 ELSE 0 END;
        item := item + 1;
        IF items_left = 0 THEN
            key := NULL;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The numbers are those of `onceward_core::wire`. A record that does not match its checksum, or that newer software
-- wrote, has no `content`: nothing is read of it, and its outcome is unknown. `status` is that of the moment at which
-- the statement began. `is_open` finds what has not ended without reading what has.
CREATE VIEW onceward.operations AS
SELECT
    r.id,
    r.scope,
    r.operation,
    onceward.member(r.content, 2, 2) AS key_digest,
    onceward.member(r.content, 7, 2) AS request_hash,
    CASE
        WHEN r.content IS NULL THEN 'unknown'
        WHEN r.state = 5 THEN 'released'
        WHEN r.state = 0 AND NOT r.is_over THEN 'in_progress'
        WHEN r.state = 0 AND onceward.member(r.content, 4, 0) = '0' THEN 'interrupted'
        WHEN r.state = 0 AND r.age_micros < onceward.member(r.content, 5, 0)::numeric THEN 'interrupted'
        WHEN r.state = 0 THEN 'unknown'
        WHEN r.is_over THEN 'expired'
        WHEN r.state = 1 THEN 'unknown'
        WHEN r.state = 2 AND r.age_micros >= onceward.member(r.content, 5, 0)::numeric THEN 'unknown'
        WHEN r.state = 2 THEN 'failed_retryable'
        WHEN r.state = 3 THEN 'succeeded'
        WHEN r.state = 4 THEN 'failed_final'
    END AS status,
    r.id || '.' || r.execution AS owner_execution,
    onceward.member(r.content, 10, 0)::bigint AS response_code,
    onceward.member(r.content, 15, 3, 1) AS reference_type,
    onceward.member(r.content, 15, 3, 2) AS reference_id,
    onceward.member(r.content, 8, 0)::bigint AS attempts,
    r.started_at,
    r.updated_at,
    CASE WHEN r.state <> 0 THEN r.expires_at END AS expires_at,
    CASE WHEN r.state = 0 THEN r.expires_at END AS lease_until,
    open.digest IS NOT NULL AS is_open
FROM (
    SELECT
        stored.*,
        translate(encode(stored.digest, 'base64'), '+/=', '-_') AS id,
        coalesce(stored.expires_at <= statement_timestamp(), false) AS is_over,
        greatest(extract(epoch FROM statement_timestamp() - stored.started_at), 0)::numeric * 1000000 AS age_micros,
        CASE WHEN substr(stored.body, 1, 1) = E'\\x01'
            AND substr(sha256(stored.digest || substr(stored.body, 1, greatest(length(stored.body) - 8, 0))), 1, 8)
                = substr(stored.body, greatest(length(stored.body) - 7, 1))
            THEN stored.body END AS content
    FROM onceward.record stored
) r
LEFT JOIN onceward.open open ON open.digest = r.digest;

REVOKE ALL ON TABLE onceward.operations FROM PUBLIC;
REVOKE ALL ON FUNCTION onceward.member(bytea, integer, integer, integer) FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (6, 1);
