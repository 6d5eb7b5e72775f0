-- What people read with tools of their own: one line for each operation, in words. No process of Onceward reads
-- it. `Stored::status` decides what a record means; the view says the same, and a test compares them (ADR 0041).
--
-- `members` are those of a record's map that are shown, as JSON: {"8.0": 1} is that member 8 is the number 1. The
-- walk has a row for the head of each item in the map, and for each byte of a number behind it: `value` is whole
-- where nothing `more` of it comes. Of the items of a member, `items_left` come from this one on; with 0 it is the
-- key of the next one. The numbers are those of `onceward_core::wire`.
--
-- SQLite has no SHA-256: the view cannot tell a damaged record from others, as `onceward keys` does. `is_open` finds
-- what has not ended by an index.
CREATE VIEW onceward_operations AS
WITH nibble (digit, value) AS (
    VALUES ('0', 0), ('1', 1), ('2', 2), ('3', 3), ('4', 4), ('5', 5), ('6', 6), ('7', 7),
        ('8', 8), ('9', 9), ('A', 10), ('B', 11), ('C', 12), ('D', 13), ('E', 14), ('F', 15)
), byte (digits, value, kind, small, more) AS MATERIALIZED (
    SELECT high.digit || low.digit, high.value * 16 + low.value, high.value / 2,
        CASE WHEN high.value % 2 * 16 + low.value < 24 THEN high.value % 2 * 16 + low.value ELSE 0 END,
        -- The length of a number; null: the end of the map, or what no version writes in it.
        CASE WHEN high.value % 2 * 16 + low.value < 24 THEN 0
            WHEN high.value % 2 = 1 AND low.value BETWEEN 8 AND 11 THEN 1 << (low.value - 8) END
    FROM nibble AS high, nibble AS low
)
SELECT
    r.id,
    r.scope,
    r.operation,
    json_extract(r.members, '$."2.0"') AS key_digest,
    json_extract(r.members, '$."7.0"') AS request_hash,
    CASE
        WHEN NOT r.is_readable THEN 'unknown'
        WHEN r.state = 5 THEN 'released'
        WHEN r.state = 0 AND NOT r.is_over THEN 'in_progress'
        WHEN r.state = 0 AND json_extract(r.members, '$."4.0"') = 0 THEN 'interrupted'
        WHEN r.state = 0 AND r.age_micros < json_extract(r.members, '$."5.0"') THEN 'interrupted'
        WHEN r.state = 0 THEN 'unknown'
        WHEN r.is_over THEN 'expired'
        WHEN r.state = 1 THEN 'unknown'
        WHEN r.state = 2 AND r.age_micros >= json_extract(r.members, '$."5.0"') THEN 'unknown'
        WHEN r.state = 2 THEN 'failed_retryable'
        WHEN r.state = 3 THEN 'succeeded'
        WHEN r.state = 4 THEN 'failed_final'
    END AS status,
    r.id || '.' || json_extract(r.members, '$."3.0"') AS owner_execution,
    json_extract(r.members, '$."10.0"') AS response_code,
    json_extract(r.members, '$."15.1"') AS reference_type,
    json_extract(r.members, '$."15.2"') AS reference_id,
    json_extract(r.members, '$."8.0"') AS attempts,
    strftime('%Y-%m-%dT%H:%M:%S', r.started_at / 1000000, 'unixepoch')
        || printf('.%06dZ', r.started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', r.updated_at / 1000000, 'unixepoch')
        || printf('.%06dZ', r.updated_at % 1000000) AS updated_at,
    CASE WHEN r.state <> 0 THEN r.end_text END AS expires_at,
    CASE WHEN r.state = 0 THEN r.end_text END AS lease_until,
    -- The index is one of states that are not 3.
    r.state <> 3 AND r.state < 3 AS is_open
FROM (
    SELECT
        stored.state, stored.scope, stored.operation, stored.started_at, stored.updated_at,
        strftime('%Y-%m-%dT%H:%M:%S', stored.expires_at / 1000000, 'unixepoch')
            || printf('.%06dZ', stored.expires_at % 1000000) AS end_text,
        coalesce(stored.expires_at <= (julianday('now') - 2440587.5) * 86400000000, 0) AS is_over,
        max((julianday('now') - 2440587.5) * 86400000000 - stored.started_at, 0) AS age_micros,
        coalesce(substr(stored.body, 1, 2) = X'01BF' AND substr(stored.body, -9, 1) = X'FF', 0) AS is_readable,
        (
            -- Base64 without padding, with `-` and `_`: three hex digits are two letters.
            WITH RECURSIVE letters (text, place) AS (
                SELECT '', 1
                UNION ALL
                SELECT text
                    || substr('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_',
                        first.value * 4 + second.value / 4 + 1, 1)
                    || substr('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_',
                        second.value % 4 * 16 + third.value + 1, 1),
                    place + 3
                FROM letters
                JOIN nibble AS first ON first.digit = substr(hex(stored.digest) || '00', place, 1)
                JOIN nibble AS second ON second.digit = substr(hex(stored.digest) || '00', place + 1, 1)
                JOIN nibble AS third ON third.digit = substr(hex(stored.digest) || '00', place + 2, 1)
            )
            SELECT substr(text, 1, 43) FROM letters WHERE place = 67
        ) AS id,
        (
            WITH RECURSIVE walk (behind, member, place, items_left, kind, value, more) AS (
                SELECT 3, 0, 0, 1, 0, 0, 0 WHERE substr(stored.body, 1, 2) = X'01BF'
                UNION ALL
                SELECT
                    behind + CASE WHEN walk.more = 0 AND walk.kind IN (2, 3) THEN walk.value ELSE 0 END + 1,
                    CASE WHEN walk.more = 0 AND items_left = 0 THEN walk.value ELSE member END,
                    CASE WHEN walk.more > 0 THEN place WHEN items_left = 0 THEN 0 ELSE place + 1 END,
                    CASE WHEN walk.more > 0 THEN items_left WHEN items_left = 0 THEN 1
                        ELSE items_left - 1 + CASE walk.kind
                            WHEN 4 THEN walk.value WHEN 5 THEN 2 * walk.value WHEN 6 THEN 1 ELSE 0 END END,
                    CASE WHEN walk.more > 0 THEN walk.kind ELSE byte.kind END,
                    CASE WHEN walk.more > 0 THEN walk.value * 256 + byte.value ELSE byte.small END,
                    CASE WHEN walk.more > 0 THEN walk.more - 1 ELSE byte.more END
                FROM walk CROSS JOIN byte ON byte.digits = hex(substr(stored.body,
                    behind + CASE WHEN walk.more = 0 AND walk.kind IN (2, 3) THEN walk.value ELSE 0 END, 1))
                WHERE walk.more > 0 OR byte.more IS NOT NULL
            )
            SELECT json_group_object(member || '.' || place, CASE
                WHEN member = 3 THEN lower(hex(substr(stored.body, behind, 4))
                    || '-' || hex(substr(stored.body, behind + 4, 2))
                    || '-' || hex(substr(stored.body, behind + 6, 2))
                    || '-' || hex(substr(stored.body, behind + 8, 2))
                    || '-' || hex(substr(stored.body, behind + 10, 6)))
                WHEN kind = 0 THEN value
                WHEN kind = 2 THEN lower(hex(substr(stored.body, behind, value)))
                WHEN kind = 3 THEN CAST(substr(stored.body, behind, value) AS TEXT) END)
            FROM walk WHERE more = 0 AND items_left > 0 AND member IN (2, 3, 4, 5, 7, 8, 10, 15)
        ) AS members
    FROM onceward_record AS stored
) AS r;
