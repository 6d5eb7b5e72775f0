//! Pairs through the store and through the bare loop, in turns.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{
    Failure,
    load::{Deed, Lap, Load},
    measure::{Others, median, quantile},
    progress::Progress,
    redis::{
        bare::Bare,
        sample::Sample,
        site::{Site, Sync},
    },
};

/// How many pairs are under way.
pub(crate) const IN_FLIGHT: [usize; 3] = [1, 16, 128];

/// How long everybody works before a turn counts, so that all connections are made and scripts known.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);

/// How long the machine is watched while no subject works.
const WATCH: Duration = Duration::from_millis(500);

/// What one side did in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Pairs in a second.
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// User and system time for each pair, in microseconds.
    pub(crate) client_micros: f64,
    pub(crate) server_micros: Option<f64>,
}

/// All turns of both sides under the same conditions.
pub(crate) struct Row {
    pub(crate) sync: Sync,
    pub(crate) in_flight: usize,
    pub(crate) bare: Vec<Turn>,
    pub(crate) store: Vec<Turn>,
}

impl Row {
    /// Store ÷ bare loop: the median of the rounds' ratios.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let rounds = self.store.iter().zip(&self.bare);
        median(rounds.map(|(store, bare)| store.rate / bare.rate))
    }
}

/// What the turns gave.
pub(crate) struct Pairs {
    pub(crate) rows: Vec<Row>,
    /// How many bytes are sent for a claim and for a completion.
    pub(crate) bytes: [usize; 2],
    /// Which share of the cores other programs used between turns.
    pub(crate) others: Option<f64>,
}

/// Lets both sides take turns, round by round; who begins changes from one round to the next.
pub(crate) fn run(
    runtime: &Runtime,
    sites: &[Site],
    rounds: u32,
    length: Duration,
) -> Result<Pairs, Failure> {
    let mut samples = Vec::new();
    for site in sites {
        samples.push(Sample::take(runtime, &site.server)?);
    }
    let row = |sync, in_flight| Row { sync, in_flight, bare: Vec::new(), store: Vec::new() };
    let of_site = |site: &Site| IN_FLIGHT.map(|in_flight| row(site.sync, in_flight));
    let mut rows: Vec<Row> = sites.iter().flat_map(of_site).collect();
    let numbers = Arc::new(AtomicU64::new(0));
    let mut progress = Progress::new("pairs", u64::from(rounds) * rows.len() as u64);
    let mut shares = Vec::new();
    for round in 0..u64::from(rounds) {
        let others = Others::watch();
        std::thread::sleep(WATCH);
        shares.extend(others.share());
        let count = rows.len() as u64;
        for (index, row) in rows.iter_mut().enumerate() {
            let place = index / IN_FLIGHT.len();
            let arena = Arena { runtime, site: &sites[place], length };
            let first = round % 2 == 0;
            for is_bare in [first, !first] {
                match is_bare {
                    true => row.bare.push(arena.bare(&samples[place], row.in_flight)?),
                    false => row.store.push(arena.store(&numbers, row.in_flight)?),
                }
            }
            progress.at(round * count + index as u64 + 1);
        }
    }
    progress.end();
    let bytes = samples.first().map(Sample::bytes).unwrap_or_default();
    Ok(Pairs { rows, bytes, others: median(shares) })
}

/// Where a turn is taken.
struct Arena<'a> {
    runtime: &'a Runtime,
    site: &'a Site,
    length: Duration,
}

impl Arena<'_> {
    fn bare(&self, sample: &Sample, in_flight: usize) -> Result<Turn, Failure> {
        let bare = Bare::start(self.runtime, &self.site.server, sample, in_flight)?;
        self.turn(|| bare.stop(self.runtime))
    }

    fn store(&self, numbers: &Arc<AtomicU64>, in_flight: usize) -> Result<Turn, Failure> {
        let store = self.site.store(self.runtime)?;
        let load = Load::start(self.runtime, &store, numbers, in_flight, Deed::Pair);
        self.turn(|| load.stop(self.runtime))
    }

    /// Waits for the turn, and leaves the server empty.
    fn turn(&self, stop: impl FnOnce() -> Result<Vec<Lap>, Failure>) -> Result<Turn, Failure> {
        std::thread::sleep(WARM_UP);
        let (begin, before) = (Instant::now(), self.site.cpu());
        std::thread::sleep(self.length);
        let (end, after) = (Instant::now(), self.site.cpu());
        let laps = stop()?;
        self.site.clear()?;
        let within = laps.iter().filter(|lap| (begin..end).contains(&lap.ended));
        let mut took: Vec<Duration> = within.map(|lap| lap.took).collect();
        took.sort_unstable();
        let (client, server) = after.since(&before);
        let each = |used: Duration| used.as_secs_f64() * 1e6 / took.len().max(1) as f64;
        Ok(Turn {
            rate: took.len() as f64 / (end - begin).as_secs_f64(),
            p50: quantile(&took, 0.5),
            p99: quantile(&took, 0.99),
            client_micros: each(client),
            server_micros: server.map(each),
        })
    }
}
