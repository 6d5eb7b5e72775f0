//! The statements, each with the types of its parameters, so that one can be sent unprepared.
//!
//! `clock` is the store's time, read once for each statement.
//!
//! Every function, type and operator is named with its schema. Another role may be allowed to make some of the
//! same name, and where a session looks first is not ours to say behind a pooler or on a user's connection.
//! What has no name to qualify is not used: `IN`, `BETWEEN`, `CASE x WHEN`, `IS DISTINCT FROM`. Several arrays in
//! one `UNNEST` are taken apart by the server itself, and need none. All operators with a schema bind equally:
//! parentheses say what is meant.

use tokio_postgres::types::Type;

/// A statement and the types of its parameters.
pub(super) struct Query {
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
    /// Its place among the statements that a connection has prepared.
    pub(super) slot: usize,
}

macro_rules! types {
    ($($name:ident),*) => { &[$(Type::$name),*] };
}
pub(super) use types;

/// How many statements have a slot.
pub(super) const SLOTS: usize = 23;

/// The columns of a row, in the order in which [`rows`](super::rows) reads them. The last three: who
/// wrote it, whether that must be on a standby before it may be believed, and since when this server runs: by
/// that it differs between servers, and between starts of one.
macro_rules! columns {
    ($xid:literal) => {
        concat!(
            "r.digest, r.fence, r.started_at, r.updated_at, r.expires_at, r.body, \
             pg_catalog.clock_timestamp(), ",
            $xid
        )
    };
}

/// The last three where PostgreSQL knows them.
macro_rules! known {
    () => {
        columns!(
            "r.xmin::pg_catalog.text::pg_catalog.int8, \
             pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '', \
             pg_catalog.pg_postmaster_start_time()"
        )
    };
}

/// The last three where they do not matter.
macro_rules! looked_at {
    () => {
        columns!("0::pg_catalog.int8, false, pg_catalog.clock_timestamp()")
    };
}

/// For lists and the census, which answer no request by these rows.
pub(super) const LOOKED_AT: &str = looked_at!();

/// The names of a route. Without a row it is made; a row that is not the expected one stays.
pub(super) static KEEP_ROUTE: Query = Query {
    text: "
        INSERT INTO onceward.route AS kept (template, path, operation, parts, key_source, upstream)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (template) DO UPDATE
        SET path = excluded.path, operation = excluded.operation, parts = excluded.parts,
            key_source = excluded.key_source, upstream = excluded.upstream
        WHERE kept.path OPERATOR(pg_catalog.=) $7 AND kept.operation OPERATOR(pg_catalog.=) $8
            AND kept.parts OPERATOR(pg_catalog.=) $9 AND kept.key_source OPERATOR(pg_catalog.=) $10
            AND kept.upstream OPERATOR(pg_catalog.=) $11
        RETURNING kept.template",
    types: types![TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT],
    slot: 13,
};

/// A first claim, or another first record.
pub(super) static CLAIM: Query = Query {
    text: "
        WITH made AS (
            INSERT INTO onceward.record (digest, fence, execution, state, started_at, updated_at,
                expires_at, sweep_after, retain, scope, operation, body)
            SELECT $1, $2, $3, $4, now, now, now OPERATOR(pg_catalog.+) $5,
                now OPERATOR(pg_catalog.+) $6, $7, $8, $9, $10
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock
            ON CONFLICT (digest) DO NOTHING
            RETURNING digest, state, updated_at
        ), opened AS (
            INSERT INTO onceward.open (digest)
            SELECT digest FROM made WHERE state OPERATOR(pg_catalog.<) 3
            ON CONFLICT (digest) DO NOTHING
        )
        SELECT digest, updated_at FROM made",
    types: types![BYTEA, UUID, UUID, INT2, INTERVAL, INTERVAL, INTERVAL, TEXT, TEXT, BYTEA],
    slot: 0,
};

/// Many first claims. They come in the order of their digests, so that two batches cannot wait for
/// each other.
pub(super) static CLAIM_MANY: Query = Query {
    text: "
        WITH made AS (
            INSERT INTO onceward.record (digest, fence, execution, state, started_at, updated_at,
                expires_at, sweep_after, retain, scope, operation, body)
            SELECT p.digest, p.fence, p.execution, p.state, now, now,
                now OPERATOR(pg_catalog.+) p.ttl, now OPERATOR(pg_catalog.+) p.sweep,
                p.retain, p.scope, p.operation, p.body
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock,
                UNNEST($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                AS p (digest, fence, execution, state, ttl, sweep, retain, scope, operation, body)
            ON CONFLICT (digest) DO NOTHING
            RETURNING digest, state, updated_at
        ), opened AS (
            INSERT INTO onceward.open (digest)
            SELECT digest FROM made WHERE state OPERATOR(pg_catalog.<) 3
            ON CONFLICT (digest) DO NOTHING
        )
        SELECT digest, updated_at FROM made",
    types: types![
        BYTEA_ARRAY,
        UUID_ARRAY,
        UUID_ARRAY,
        INT2_ARRAY,
        INTERVAL_ARRAY,
        INTERVAL_ARRAY,
        INTERVAL_ARRAY,
        TEXT_ARRAY,
        TEXT_ARRAY,
        BYTEA_ARRAY
    ],
    slot: 1,
};

/// The end of a claim with an outcome. `sweep_after` stays where it is, so that this is a heap-only
/// update; only what was unknown before has none that could stay.
pub(super) static END: Query = Query {
    text: "
        WITH ended AS (
            UPDATE onceward.record r SET fence = $3, state = $4, updated_at = now,
                expires_at = now OPERATOR(pg_catalog.+) $5,
                sweep_after = CASE WHEN r.state OPERATOR(pg_catalog.=) 0 THEN r.sweep_after
                    ELSE (now OPERATOR(pg_catalog.+) $5) OPERATOR(pg_catalog.+) interval '1 hour' END,
                body = $6
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock
            WHERE r.digest OPERATOR(pg_catalog.=) $1 AND r.fence OPERATOR(pg_catalog.=) $2
            RETURNING r.digest, r.updated_at
        ), closed AS (
            DELETE FROM onceward.open o
            WHERE o.digest OPERATOR(pg_catalog.=) $1 AND EXISTS (SELECT FROM ended)
        )
        SELECT digest, updated_at FROM ended",
    types: types![BYTEA, UUID, UUID, INT2, INTERVAL, BYTEA],
    slot: 2,
};

/// Many ends. Rows that an open transaction holds are left out, so that one cannot stall all; so is one
/// that was changed since the statement began, whose new version it cannot see.
pub(super) static END_MANY: Query = Query {
    text: "
        WITH proposed AS (
            SELECT * FROM UNNEST($1, $2, $3, $4, $5, $6) AS p (digest, expected, fence, state, ttl, body)
        ), taken AS (
            SELECT p.*, r.place FROM proposed p, LATERAL (
                SELECT ctid AS place FROM onceward.record
                WHERE digest OPERATOR(pg_catalog.=) p.digest
                    AND fence OPERATOR(pg_catalog.=) p.expected
                FOR NO KEY UPDATE SKIP LOCKED
            ) r
        ), ended AS (
            UPDATE onceward.record r SET fence = p.fence, state = p.state, updated_at = now,
                expires_at = now OPERATOR(pg_catalog.+) p.ttl,
                sweep_after = CASE WHEN r.state OPERATOR(pg_catalog.=) 0 THEN r.sweep_after
                    ELSE (now OPERATOR(pg_catalog.+) p.ttl) OPERATOR(pg_catalog.+) interval '1 hour' END,
                body = p.body
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock, taken p
            WHERE r.ctid OPERATOR(pg_catalog.=) p.place AND r.fence OPERATOR(pg_catalog.=) p.expected
            RETURNING r.digest, r.updated_at
        ), closed AS (
            DELETE FROM onceward.open o
            WHERE o.digest OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT digest FROM ended))
        )
        SELECT digest, updated_at FROM ended",
    types: END_MANY_TYPES,
    slot: 3,
};

const END_MANY_TYPES: &[Type] =
    types![BYTEA_ARRAY, UUID_ARRAY, UUID_ARRAY, INT2_ARRAY, INTERVAL_ARRAY, BYTEA_ARRAY];

/// The same for engines that know no `SKIP LOCKED` as PostgreSQL means it.
pub(super) static END_MANY_PLAIN: Query = Query {
    text: "
        WITH proposed AS (
            SELECT * FROM UNNEST($1, $2, $3, $4, $5, $6) AS p (digest, expected, fence, state, ttl, body)
        ), ended AS (
            UPDATE onceward.record r SET fence = p.fence, state = p.state, updated_at = now,
                expires_at = now OPERATOR(pg_catalog.+) p.ttl,
                sweep_after = CASE WHEN r.state OPERATOR(pg_catalog.=) 0 THEN r.sweep_after
                    ELSE (now OPERATOR(pg_catalog.+) p.ttl) OPERATOR(pg_catalog.+) interval '1 hour' END,
                body = p.body
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock, proposed p
            WHERE r.digest OPERATOR(pg_catalog.=) p.digest AND r.fence OPERATOR(pg_catalog.=) p.expected
            RETURNING r.digest, r.updated_at
        ), closed AS (
            DELETE FROM onceward.open o
            WHERE o.digest OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT digest FROM ended))
        )
        SELECT digest, updated_at FROM ended",
    types: END_MANY_TYPES,
    slot: 3,
};

/// Every other change: renewals, take-overs, releases, repairs. `$8` and `$9` are null where they stay.
pub(super) static CHANGE: Query = Query {
    text: "
        WITH changed AS (
            UPDATE onceward.record r SET fence = $3, execution = $4, state = $5,
                started_at = CASE WHEN $6 THEN now ELSE r.started_at END, updated_at = now,
                expires_at = now OPERATOR(pg_catalog.+) $7,
                retain = coalesce($8, r.retain),
                sweep_after = coalesce(now OPERATOR(pg_catalog.+) $9, r.sweep_after),
                body = $10
            FROM (SELECT pg_catalog.clock_timestamp() AS now) clock
            WHERE r.digest OPERATOR(pg_catalog.=) $1 AND r.fence OPERATOR(pg_catalog.=) $2
            RETURNING r.digest, r.state, r.updated_at
        ), opened AS (
            INSERT INTO onceward.open (digest)
            SELECT digest FROM changed WHERE state OPERATOR(pg_catalog.<) 3
            ON CONFLICT (digest) DO NOTHING
        ), closed AS (
            DELETE FROM onceward.open o
            WHERE o.digest OPERATOR(pg_catalog.=) $1
                AND EXISTS (SELECT FROM changed WHERE state OPERATOR(pg_catalog.>=) 3)
        ), noted AS (
            INSERT INTO onceward.trail (digest, at, kind, execution, actor, reason)
            SELECT digest, updated_at, $11, $12, $13, $14 FROM changed WHERE $11 IS NOT NULL
        )
        SELECT digest, updated_at FROM changed",
    types: types![
        BYTEA, UUID, UUID, UUID, INT2, BOOL, INTERVAL, INTERVAL, INTERVAL, BYTEA, TEXT, UUID, TEXT,
        TEXT
    ],
    slot: 4,
};

/// Reads rows by digests, with the columns that say where they are.
macro_rules! read {
    ($known:expr, $digests:literal, $type:ident, $slot:literal) => {
        Query {
            text: concat!(
                "SELECT ",
                $known,
                " FROM onceward.record r WHERE r.digest OPERATOR(pg_catalog.=) ",
                $digests
            ),
            types: types![$type],
            slot: $slot,
        }
    };
}

pub(super) static READ: Query = read!(known!(), "ANY($1)", BYTEA_ARRAY, 5);
pub(super) static READ_ONE: Query = read!(known!(), "$1", BYTEA, 6);

/// For engines whose rows do not know who wrote them, and whose commits are replicated in any case.
pub(super) static READ_PLAIN: Query = read!(looked_at!(), "ANY($1)", BYTEA_ARRAY, 5);
pub(super) static READ_ONE_PLAIN: Query = read!(looked_at!(), "$1", BYTEA, 6);

/// Deletes a record that was not changed for a minute, if it still has this fence.
pub(super) static PURGE: Query = Query {
    text: "
        WITH gone AS (
            DELETE FROM onceward.record r
            WHERE r.digest OPERATOR(pg_catalog.=) $1 AND r.fence OPERATOR(pg_catalog.=) $2
                AND r.updated_at OPERATOR(pg_catalog.<=)
                    (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '60 seconds')
            RETURNING r.digest, r.fence
        ), closed AS (
            DELETE FROM onceward.open o
            WHERE o.digest OPERATOR(pg_catalog.=) $1 AND EXISTS (SELECT FROM gone)
        ), dropped AS (
            DELETE FROM onceward.spool s USING gone
            WHERE s.digest OPERATOR(pg_catalog.=) gone.digest AND s.fence OPERATOR(pg_catalog.=) gone.fence
        ), noted AS (
            INSERT INTO onceward.trail (digest, at, kind, execution, actor, reason)
            SELECT digest, pg_catalog.clock_timestamp(), $3, $4, $5, $6 FROM gone
        )
        SELECT digest, pg_catalog.clock_timestamp() FROM gone",
    types: types![BYTEA, UUID, TEXT, UUID, TEXT, TEXT],
    slot: 7,
};

/// Waits until everything that is visible now is on the standbys that a commit waits for; gives the
/// first transaction of which that is not known.
pub(super) static BARRIER: Query = Query {
    text: "
        SELECT (pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text::pg_catalog.int8
                OPERATOR(pg_catalog.&) 4294967295),
            pg_catalog.pg_postmaster_start_time()
        FROM pg_catalog.pg_logical_emit_message(true, 'onceward', '')",
    types: types![],
    slot: 8,
};

/// The same chunk may be written again.
pub(super) static PUT_CHUNK: Query = Query {
    text: "
        INSERT INTO onceward.spool (digest, fence, chunk, at, bytes)
        VALUES ($1, $2, $3, pg_catalog.clock_timestamp(), $4)
        ON CONFLICT (digest, fence, chunk) DO UPDATE SET bytes = excluded.bytes, at = excluded.at",
    types: types![BYTEA, UUID, INT4, BYTEA],
    slot: 9,
};

pub(super) static CHUNK: Query = Query {
    text: "
        SELECT bytes FROM onceward.spool
        WHERE digest OPERATOR(pg_catalog.=) $1 AND fence OPERATOR(pg_catalog.=) $2
            AND chunk OPERATOR(pg_catalog.=) $3",
    types: types![BYTEA, UUID, INT4],
    slot: 10,
};

pub(super) static DISCARD: Query = Query {
    text: "
        DELETE FROM onceward.spool
        WHERE digest OPERATOR(pg_catalog.=) $1 AND fence OPERATOR(pg_catalog.=) $2",
    types: types![BYTEA, UUID],
    slot: 11,
};

/// Deletes what is over for an hour. What is due but not over is put off.
pub(super) static SWEEP: Query = Query {
    text: "
    WITH due AS (
        SELECT ctid AS place,
            CASE WHEN state OPERATOR(pg_catalog.=) 0
                    OR pg_catalog.substr(body, 1, 1) OPERATOR(pg_catalog.>) '\\x01'::pg_catalog.bytea
                THEN NULL
                ELSE expires_at OPERATOR(pg_catalog.+) interval '1 hour' END AS over_at
        FROM onceward.record
        WHERE sweep_after OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
        ORDER BY sweep_after LIMIT $1
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM onceward.record r USING due
        WHERE r.ctid OPERATOR(pg_catalog.=) due.place
            AND due.over_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
        RETURNING r.digest, r.fence, r.state
    ), later AS (
        UPDATE onceward.record r
        SET sweep_after = coalesce(due.over_at,
            pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) interval '1 hour')
        FROM due WHERE r.ctid OPERATOR(pg_catalog.=) due.place
            AND (due.over_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()) IS NOT TRUE
    ), closed AS (
        DELETE FROM onceward.open o
        WHERE o.digest OPERATOR(pg_catalog.=) ANY (ARRAY(
            SELECT digest FROM gone WHERE state OPERATOR(pg_catalog.<) 3))
    ), dropped AS (
        DELETE FROM onceward.spool s USING gone
        WHERE s.digest OPERATOR(pg_catalog.=) gone.digest AND s.fence OPERATOR(pg_catalog.=) gone.fence
    )
    SELECT (SELECT pg_catalog.count(*) FROM gone), (SELECT pg_catalog.count(*) FROM due)",
    types: types![INT8],
    slot: 12,
};
