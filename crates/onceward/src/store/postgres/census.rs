//! What metrics and a doctor ask for: how much is open, how large the tables are, how they are kept.

use std::time::SystemTime;

use onceward_core::{StoreError, Timestamp};
use tokio_postgres::Row;

use super::{
    Dialect,
    error::store_error,
    link::Link,
    rows::{Read, timestamp},
    sql::LOOKED_AT,
};
use crate::store::{Census, sql::codec::Codec};

/// How the server and its tables are, as far as it matters for records.
///
/// ```
/// use onceward::store::postgres::Condition;
///
/// fn is_bloated(condition: &Condition) -> bool {
///     condition.dead_rows > 10_000 && condition.dead_rows > condition.live_rows
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// What the server's clock shows: leases and retentions are counted by it.
    pub server_time: Timestamp,
    /// Whether this user may do everything, also outside the schema.
    pub is_superuser: bool,
    /// What this user lacks, as `DELETE ON onceward.record`.
    pub lacking: Vec<String>,
    /// Whether every user may make functions and operators in the schema `public`, where the statements of
    /// services look for them.
    pub public_creates: bool,
    /// `search_path` as server, database and role have it, before this store sets it for itself.
    pub search_path: String,
    /// How many other users may call the functions for services.
    pub services: u64,
    /// How often a row of the records was changed, since the server began to count.
    pub updates: u64,
    /// How often of these without touching an index.
    pub hot_updates: u64,
    /// About how many records there are.
    pub live_rows: u64,
    /// About how many old versions of them wait to be removed.
    pub dead_rows: u64,
}

pub(super) async fn census(
    link: &Link,
    dialect: Dialect,
    codec: &Codec,
) -> Result<Census, StoreError> {
    let most = Census::MAX_COUNTED as usize;
    let open = format!(
        "SELECT {LOOKED_AT} FROM onceward.open o JOIN onceward.record r
         ON r.digest OPERATOR(pg_catalog.=) o.digest LIMIT {}",
        most + 1
    );
    let rows = ask(link, &open).await?;
    let mut census = Census { is_complete: rows.len() <= most, ..Census::default() };
    for row in rows.iter().take(most) {
        let read = Read::of(row)?;
        census.count(&read.row.look(&read.id, codec)?);
    }
    // An unknown outcome may be kept for ever, and comes last in that order.
    let last = "SELECT r.updated_at FROM onceward.record r
        WHERE r.sweep_after OPERATOR(pg_catalog.<)
            (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) interval '100 years')
        ORDER BY r.sweep_after DESC LIMIT 1";
    if let Some(row) = ask(link, last).await?.first() {
        let at: SystemTime = row.try_get(0).map_err(|error| store_error(&error))?;
        census.last_write = Some(timestamp(at));
    }
    if dialect == Dialect::Postgres {
        let size = "SELECT coalesce(
                pg_catalog.sum(pg_catalog.pg_total_relation_size(c.oid)), 0)::pg_catalog.int8
            FROM pg_catalog.pg_class c
            JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
            WHERE n.nspname OPERATOR(pg_catalog.=) 'onceward' AND c.relkind OPERATOR(pg_catalog.=) 'r'";
        let bytes = ask(link, size).await?.first().map(|row| number(row, 0)).transpose();
        census.file_bytes = bytes.map_err(|error| store_error(&error))?.unwrap_or_default();
    }
    Ok(census)
}

pub(super) async fn condition(link: &Link) -> Result<Condition, StoreError> {
    let question = "
        SELECT pg_catalog.clock_timestamp(), pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on',
            ARRAY(SELECT needed.privilege OPERATOR(pg_catalog.||) ' ON onceward.' OPERATOR(pg_catalog.||) needed.relation
                FROM (VALUES ('record', 'SELECT'), ('record', 'INSERT'), ('record', 'UPDATE'),
                    ('record', 'DELETE'), ('open', 'SELECT'), ('open', 'INSERT'), ('open', 'DELETE'),
                    ('trail', 'SELECT'), ('trail', 'INSERT'), ('spool', 'SELECT'), ('spool', 'INSERT'),
                    ('spool', 'UPDATE'), ('spool', 'DELETE'), ('inbox', 'SELECT'), ('inbox', 'UPDATE'),
                    ('inbox', 'DELETE'), ('route', 'SELECT'), ('route', 'INSERT'), ('route', 'UPDATE')
                ) AS needed (relation, privilege)
                WHERE NOT pg_catalog.has_table_privilege(
                    'onceward.' OPERATOR(pg_catalog.||) needed.relation, needed.privilege)),
            (SELECT pg_catalog.count(*) FROM pg_catalog.pg_roles app
                JOIN pg_catalog.pg_roles service ON service.rolcanlogin AND NOT service.rolsuper
                AND pg_catalog.pg_has_role(service.oid, app.oid, 'MEMBER')
                WHERE app.rolname OPERATOR(pg_catalog.=) 'onceward_app'),
            coalesce(s.n_tup_upd, 0)::pg_catalog.int8, coalesce(s.n_tup_hot_upd, 0)::pg_catalog.int8,
            coalesce(s.n_live_tup, 0)::pg_catalog.int8, coalesce(s.n_dead_tup, 0)::pg_catalog.int8,
            EXISTS (SELECT FROM pg_catalog.pg_namespace n,
                    LATERAL pg_catalog.aclexplode(n.nspacl) AS granted
                WHERE n.nspname OPERATOR(pg_catalog.=) 'public' AND granted.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid
                    AND granted.privilege_type OPERATOR(pg_catalog.=) 'CREATE'),
            (SELECT usual.reset_val FROM pg_catalog.pg_settings usual
                WHERE usual.name OPERATOR(pg_catalog.=) 'search_path')
        FROM (VALUES (1)) one LEFT JOIN pg_catalog.pg_stat_user_tables s
            ON s.schemaname OPERATOR(pg_catalog.=) 'onceward' AND s.relname OPERATOR(pg_catalog.=) 'record'";
    let rows = ask(link, question).await?;
    let Some(row) = rows.first() else {
        return Err(StoreError::Unusable("the server says nothing about itself".to_owned()));
    };
    read(row).map_err(|error| store_error(&error))
}

fn read(row: &Row) -> Result<Condition, tokio_postgres::Error> {
    Ok(Condition {
        server_time: timestamp(row.try_get(0)?),
        is_superuser: row.try_get(1)?,
        lacking: row.try_get(2)?,
        services: number(row, 3)?,
        updates: number(row, 4)?,
        hot_updates: number(row, 5)?,
        live_rows: number(row, 6)?,
        dead_rows: number(row, 7)?,
        public_creates: row.try_get(8)?,
        search_path: row.try_get::<_, Option<_>>(9)?.unwrap_or_default(),
    })
}

fn number(row: &Row, column: usize) -> Result<u64, tokio_postgres::Error> {
    Ok(u64::try_from(row.try_get::<_, i64>(column)?).unwrap_or_default())
}

async fn ask(link: &Link, question: &str) -> Result<Vec<Row>, StoreError> {
    let rows = link.client.query_typed(question, &[]).await;
    rows.map_err(|error| store_error(&error))
}
