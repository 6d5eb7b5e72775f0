//! Claims and completions, side by side, in turns.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{
    Failure,
    load::{Deed, Load},
    measure::{Usage, median, quantile, wait_until_idle},
    options::Plan,
    progress::Progress,
    subject::{Contest, Subject, remove_sqlite},
};

/// What one store did in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Pairs in a second.
    pub(crate) rate: f64,
    /// User and system time of the whole process for each pair, in microseconds.
    pub(crate) cpu_micros: f64,
    /// Bytes sent towards the disk for each pair; `None` where the system does not tell.
    pub(crate) written: Option<f64>,
    /// The latency that half of the pairs did not exceed.
    pub(crate) p50: Duration,
    /// The latency that 99 of 100 pairs did not exceed.
    pub(crate) p99: Duration,
}

/// All turns of both stores under the same conditions.
pub(crate) struct Row {
    /// How many records were stored at first.
    pub(crate) records: u64,
    /// How many pairs were under way.
    pub(crate) in_flight: usize,
    /// The turns of the log, by rounds.
    pub(crate) log: Vec<Turn>,
    /// The turns of `SQLite`, by rounds.
    pub(crate) sqlite: Vec<Turn>,
}

impl Row {
    /// `SQLite` ÷ log: the median of the rounds' ratios.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let pairs = self.sqlite.iter().zip(&self.log);
        median(pairs.map(|(sqlite, log)| sqlite.rate / log.rate))
    }

    /// This row's `SQLite` ÷ another row's: the median of the rounds' ratios.
    pub(crate) fn sqlite_to(&self, other: &Self) -> Option<f64> {
        let pairs = self.sqlite.iter().zip(&other.sqlite);
        median(pairs.map(|(this, other)| this.rate / other.rate))
    }
}

/// Runs all rounds: in each, every size and every number in flight, both stores in turn.
pub(crate) fn run(
    runtime: &Runtime,
    directory: &Path,
    plan: &Plan,
    contests: &[Contest],
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &records in &plan.records {
        for &in_flight in &plan.in_flight {
            rows.push(Row { records, in_flight, log: Vec::new(), sqlite: Vec::new() });
        }
    }
    let mut progress = Progress::new("pairs", u64::from(plan.rounds) * rows.len() as u64);
    for round in 0..u64::from(plan.rounds) {
        for index in 0..rows.len() {
            progress.at(round * rows.len() as u64 + index as u64);
            let row = &mut rows[index];
            let turn = |subject: &Subject| take_turn(runtime, subject, row.in_flight, plan.turn);
            let (log, sqlite) = match contests.iter().find(|contest| contest.records == row.records)
            {
                Some(contest) => (turn(&contest.log)?, turn(&contest.sqlite)?),
                // What is to be empty is made anew for each turn.
                None => {
                    let contest = Contest::new(runtime, directory, row.records)?;
                    let turns = (turn(&contest.log)?, turn(&contest.sqlite)?);
                    remove_sqlite(&contest.close()?)?;
                    turns
                }
            };
            row.log.push(log);
            row.sqlite.push(sqlite);
        }
    }
    progress.end();
    Ok(rows)
}

fn take_turn(
    runtime: &Runtime,
    subject: &Subject,
    in_flight: usize,
    duration: Duration,
) -> Result<Turn, Failure> {
    let load = Load::start(runtime, &subject.store, &subject.numbers, in_flight, Deed::Pair);
    std::thread::sleep(duration / 4);
    let (begin, before, warm_up) = (Instant::now(), Usage::now(), load.done());
    std::thread::sleep(duration);
    let end = Instant::now();
    let laps = load.stop(runtime)?;
    wait_until_idle();
    let after = Usage::now();

    let charged = (laps.len() as u64 - warm_up).max(1) as f64;
    let within = laps.iter().filter(|lap| (begin..end).contains(&lap.ended));
    let mut took: Vec<Duration> = within.map(|lap| lap.took).collect();
    took.sort_unstable();
    Ok(Turn {
        rate: took.len() as f64 / (end - begin).as_secs_f64(),
        cpu_micros: after.cpu_since(before).as_secs_f64() * 1e6 / charged,
        written: after.written_since(before).map(|bytes| bytes as f64 / charged),
        p50: quantile(&took, 0.5),
        p99: quantile(&took, 0.99),
    })
}
