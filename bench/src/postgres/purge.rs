//! Deleting expired records.

use std::time::Instant;

use onceward::{Store as _, Sweeper};

use crate::{
    Failure,
    postgres::{
        fill::{Age, fill},
        site::{Counts, Lanes, Site},
    },
};

/// How fast expired records were deleted.
pub(crate) struct Purge {
    pub(crate) records: u64,
    pub(crate) rows: Vec<Swept>,
}

/// What one size of calls gave.
pub(crate) struct Swept {
    /// How many one call deletes at most.
    pub(crate) batch: u32,
    /// Records in a second.
    pub(crate) rate: f64,
    /// What the server wrote to its log for all of them.
    pub(crate) counts: Counts,
}

/// The batches that are measured: that of the sweeper, and a large one.
const BATCHES: [u32; 2] = [Sweeper::BATCH, 50_000];

/// Fills a database with expired records for each batch, and sweeps them.
pub(crate) fn run(site: &Site, records: u64) -> Result<Purge, Failure> {
    let mut rows = Vec::new();
    for batch in BATCHES {
        let place = site.database()?;
        let sample = site.sample(&place)?;
        fill(site, &place, &sample, records, Age::Expired)?;
        let before = place.counts()?;
        let store = place.store(site, Lanes::USUAL)?;
        let begin = Instant::now();
        let mut swept = 0;
        while swept < records {
            match site.runtime.block_on(store.sweep(batch))? {
                0 => {
                    return Err(format!("{records} records expired, but {swept} were swept").into());
                }
                count => swept += u64::from(count),
            }
        }
        let rate = swept as f64 / begin.elapsed().as_secs_f64();
        drop(store);
        place.wait_until_left()?;
        rows.push(Swept { batch, rate, counts: place.counts()?.since(before) });
        site.drop(place)?;
    }
    Ok(Purge { records, rows })
}
