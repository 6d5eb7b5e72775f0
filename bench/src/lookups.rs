//! Look-ups of random stored records, on one core.

use std::time::Duration;

use crate::{
    Failure, load,
    measure::{OneCore, median, wait_until_idle},
    options::Plan,
    progress::Progress,
    subject::{Contest, Subject},
};

/// How many look-ups are under way at the same time.
const IN_FLIGHT: [usize; 2] = [1, 16];

/// Look-ups in a second by both stores under the same conditions.
pub(crate) struct Row {
    /// How many records were stored at first.
    pub(crate) records: u64,
    /// How many look-ups were under way.
    pub(crate) in_flight: usize,
    log: Vec<f64>,
    sqlite: Vec<f64>,
}

impl Row {
    /// The median of the log.
    pub(crate) fn log(&self) -> Option<f64> {
        median(self.log.iter().copied())
    }

    /// The median of `SQLite`.
    pub(crate) fn sqlite(&self) -> Option<f64> {
        median(self.sqlite.iter().copied())
    }
}

/// The rows, and whether the process could be confined to one core.
pub(crate) struct Lookups {
    /// One for each size and number in flight.
    pub(crate) rows: Vec<Row>,
    /// `false`: the system does not allow it, so that the figures are of one client thread only.
    pub(crate) one_core: bool,
}

/// Runs all rounds on whatever is stored.
pub(crate) fn run(plan: &Plan, contests: &[Contest]) -> Result<Lookups, Failure> {
    let confined = OneCore::confine();
    let turns = contests.len() as u64 * u64::from(plan.rounds) * IN_FLIGHT.len() as u64;
    let mut progress = Progress::new("look-ups", turns);
    let mut done = 0;
    let mut rows = Vec::new();
    for contest in contests {
        contest.warm()?;
        wait_until_idle();
        let records = contest.records;
        let mut of_contest = IN_FLIGHT.map(|in_flight| Row {
            records,
            in_flight,
            log: Vec::new(),
            sqlite: Vec::new(),
        });
        for _ in 0..plan.rounds {
            for row in &mut of_contest {
                progress.at(done);
                row.log.push(take_turn(&contest.log, row, plan.turn)?);
                row.sqlite.push(take_turn(&contest.sqlite, row, plan.turn)?);
                done += 1;
            }
        }
        rows.extend(of_contest);
    }
    progress.end();
    Ok(Lookups { rows, one_core: confined.is_some() })
}

fn take_turn(subject: &Subject, row: &Row, duration: Duration) -> Result<f64, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let count = load::look_up(&subject.store, row.records, row.in_flight, duration);
    Ok(runtime.block_on(count)? as f64 / duration.as_secs_f64())
}
