//! Deleting expired records, and how long claims wait for it.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use onceward::{Store, clock::ManualClock};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    load::{self, Deed, Load},
    measure::{Usage, quantile, wait_until_idle},
    options::Plan,
    subject::{open_sqlite_by, remove_sqlite},
};

/// How many records one sweep deletes at most.
pub(crate) const BATCH: u32 = 1_000;

/// How many claims are under way meanwhile.
pub(crate) const IN_FLIGHT: usize = 16;

/// Longer than the usual retention of a day and the hour that a sweep adds to it.
const UNTIL_EXPIRED: Duration = Duration::from_secs(26 * 3600);

/// How fast records were swept and what it did to claims.
pub(crate) struct Sweep {
    /// How many were swept each time.
    pub(crate) records: u64,
    /// Records in a second with nothing else to do.
    pub(crate) alone: f64,
    /// User and system time of the whole process for each record then, in microseconds.
    pub(crate) cpu_micros: f64,
    /// Records in a second while claims were made.
    pub(crate) beside_claims: f64,
    /// Claims while nothing was swept.
    pub(crate) undisturbed: Claims,
    /// Claims while records were swept.
    pub(crate) disturbed: Claims,
}

/// How claims fared.
pub(crate) struct Claims {
    /// Claims in a second.
    pub(crate) rate: f64,
    /// The latency that 99 of 100 did not exceed.
    pub(crate) p99: Duration,
    /// The longest latency.
    pub(crate) longest: Duration,
}

/// Fills a store and sweeps what has expired: once alone, once while claims are made.
///
/// While the first half is swept the second is still kept, as in a store that has run for long.
pub(crate) fn run(runtime: &Runtime, directory: &Path, plan: &Plan) -> Result<Sweep, Failure> {
    let records = plan.sweep_records;
    let path = directory.join("sweep.sqlite");
    let clock = Arc::new(ManualClock::default());
    let store = open_sqlite_by(&path, Arc::<ManualClock>::clone(&clock))?;
    load::fill(runtime, &store, 0..records, "SQLite with what will be swept")?;
    clock.advance(UNTIL_EXPIRED);
    load::fill(runtime, &store, records..2 * records, "SQLite with what will be swept later")?;
    let numbers = Arc::new(AtomicU64::new(2 * records));

    wait_until_idle();
    let load = Load::start(runtime, &store, &numbers, IN_FLIGHT, Deed::Claim);
    let begin = Instant::now();
    std::thread::sleep(plan.turn);
    let undisturbed = claims(runtime, load, begin)?;

    wait_until_idle();
    let before = Usage::now();
    let alone = sweep_all(runtime, &*store, records)?;
    wait_until_idle();
    let cpu_micros = Usage::now().cpu_since(before).as_secs_f64() * 1e6 / records.max(1) as f64;

    clock.advance(UNTIL_EXPIRED);
    let load = Load::start(runtime, &store, &numbers, IN_FLIGHT, Deed::Claim);
    let begin = Instant::now();
    let beside_claims = sweep_all(runtime, &*store, records);
    let disturbed = claims(runtime, load, begin)?;

    drop(store);
    remove_sqlite(&path)?;
    let beside_claims = beside_claims?;
    Ok(Sweep { records, alone, cpu_micros, beside_claims, undisturbed, disturbed })
}

/// Sweeps in batches until so many are gone; returns how many in a second.
fn sweep_all(runtime: &Runtime, store: &dyn Store, records: u64) -> Result<f64, Failure> {
    let begin = Instant::now();
    let mut swept = 0;
    while swept < records {
        match runtime.block_on(store.sweep(BATCH))? {
            0 => return Err(format!("{records} records expired, but {swept} were swept").into()),
            count => swept += u64::from(count),
        }
    }
    Ok(swept as f64 / begin.elapsed().as_secs_f64())
}

fn claims(runtime: &Runtime, load: Load, begin: Instant) -> Result<Claims, Failure> {
    let elapsed = begin.elapsed();
    let mut took: Vec<Duration> = load.stop(runtime)?.iter().map(|lap| lap.took).collect();
    took.sort_unstable();
    Ok(Claims {
        rate: took.len() as f64 / elapsed.as_secs_f64(),
        p99: quantile(&took, 0.99),
        longest: quantile(&took, 1.0),
    })
}
