//! Deleting expired records.

use std::time::Instant;

use onceward::{Store as _, Sweeper};

use crate::{
    Failure,
    postgres::{
        fill::{Age, fill},
        site::{Lanes, Site},
    },
};

/// How fast expired records were deleted.
pub(crate) struct Purge {
    pub(crate) records: u64,
    /// How many one call deletes at most, and how many were deleted in a second.
    pub(crate) rates: Vec<(u32, f64)>,
}

/// The batches that are measured: that of the sweeper, and a large one.
const BATCHES: [u32; 2] = [Sweeper::BATCH, 50_000];

/// Fills a database with expired records for each batch, and sweeps them.
pub(crate) fn run(site: &Site, records: u64) -> Result<Purge, Failure> {
    let mut rates = Vec::new();
    for batch in BATCHES {
        let place = site.database()?;
        let sample = site.sample(&place)?;
        fill(&place, &sample, records, Age::Expired)?;
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
        rates.push((batch, swept as f64 / begin.elapsed().as_secs_f64()));
        drop(store);
        site.drop(place)?;
    }
    Ok(Purge { records, rates })
}
