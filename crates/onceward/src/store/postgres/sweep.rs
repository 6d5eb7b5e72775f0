//! Deletes what is over, a few thousand rows at a time.

use std::time::SystemTime;

use onceward_core::StoreError;
use tokio_postgres::types::Type;

use super::{Dialect, error::store_error, link::Link, rows::timestamp, sql};
use crate::{
    clock::{SUSPICION_HOLDS, Suspicion, suspected_elsewhere},
    store::sql::codec::Codec,
};

/// How many rows one statement deletes.
const STEP: u32 = 5_000;

/// Deletes chunks whose record was never written, and messages that need not be remembered.
const SWEEP_REST: &str = "
    WITH chunks AS (
        DELETE FROM onceward.spool s
        WHERE s.at OPERATOR(pg_catalog.<)
                (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '1 hour')
            AND s.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
                SELECT o.ctid FROM onceward.spool o
                WHERE o.at OPERATOR(pg_catalog.<)
                        (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '1 hour')
                    AND NOT EXISTS (SELECT FROM onceward.record r
                        WHERE r.digest OPERATOR(pg_catalog.=) o.digest
                            AND r.fence OPERATOR(pg_catalog.=) o.fence)
                ORDER BY o.at LIMIT 2048))
    )
    SELECT pg_catalog.clock_timestamp()";

/// Tells all that the clock is suspected, those too who have just begun and trust it.
const SUSPECT: &str = "
    INSERT INTO onceward.clock (one, suspected_at) VALUES (1, pg_catalog.clock_timestamp())
    ON CONFLICT (one) DO UPDATE SET suspected_at = excluded.suspected_at";

/// One row if a process suspects it. A suspicion from before the clock went back is in the future.
const SUSPECTED: &str = "
    SELECT c.suspected_at FROM onceward.clock c
    WHERE pg_catalog.abs(
        pg_catalog.date_part('epoch', c.suspected_at)
            OPERATOR(pg_catalog.-) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
        ) OPERATOR(pg_catalog.<) $1";

/// Only where there is an inbox.
const SWEEP_INBOX: &str = "
    DELETE FROM onceward.inbox i WHERE i.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT o.ctid FROM onceward.inbox o
        WHERE o.expires_at OPERATOR(pg_catalog.<)
            (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) interval '1 hour')
        ORDER BY o.expires_at LIMIT 5000 FOR UPDATE SKIP LOCKED))";

pub(super) async fn sweep(
    link: &Link,
    limit: u32,
    dialect: Dialect,
    codec: &Codec,
) -> Result<u32, StoreError> {
    check_clock(link, codec).await?;
    let mut deleted = 0;
    let mut left = limit;
    while left > 0 {
        let step = i64::from(left.min(STEP));
        let rows = link.read(&sql::SWEEP, &[&step]).await?;
        let counts = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let counts: Option<Result<(i64, i64), tokio_postgres::Error>> = counts;
        let (gone, due) = counts.unwrap_or(Ok((0, 0))).map_err(|error| store_error(&error))?;
        deleted += u32::try_from(gone).unwrap_or(u32::MAX);
        left -= u32::try_from(due).unwrap_or(left).min(left);
        if due < step {
            sweep_rest(link, dialect).await?;
            break;
        }
    }
    Ok(deleted)
}

/// Refuses to sweep while this process or another one suspects the server's clock.
pub(super) async fn check_clock(link: &Link, codec: &Codec) -> Result<(), StoreError> {
    look_at_clock(link, codec).await?;
    let suspicion = codec.watch().check_for_sweep();
    if suspicion.is_err() {
        link.ask(SUSPECT, &[]).await?;
    }
    let holds = SUSPICION_HOLDS.as_secs_f64();
    let is_suspected = !link.ask(SUSPECTED, &[(&holds, Type::FLOAT8)]).await?.is_empty();
    if suspicion.is_ok() && is_suspected {
        return Err(suspected_elsewhere());
    }
    suspicion
}

/// Not after every step, but when no more records are due.
async fn sweep_rest(link: &Link, dialect: Dialect) -> Result<(), StoreError> {
    link.ask(SWEEP_REST, &[]).await?;
    if dialect == Dialect::Postgres {
        link.ask(SWEEP_INBOX, &[]).await?;
    }
    Ok(())
}

/// Asks what the server's clock shows, and compares it with ours that no operator sets. After a failover too: the
/// clock of another server is another one.
pub(super) async fn look_at_clock(
    link: &Link,
    codec: &Codec,
) -> Result<Option<Suspicion>, StoreError> {
    let rows = link.ask("SELECT pg_catalog.clock_timestamp()", &[]).await?;
    let shown = rows.first().map(|row| row.try_get(0)).transpose();
    let shown = shown.map_err(|error| store_error(&error))?.unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(codec.watch().observe(timestamp(shown)))
}
