//! Who is measured, one turn of each, and what the server counted meanwhile.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use crate::{
    Failure,
    load::{Deed, Load},
    measure::{Others, median},
    postgres::{
        own::{self, Form},
        pgbench::{Pgbench, Ran},
        script::Script,
        site::{BenchDatabase, Counts, Cpu, Lanes, Site, with_store},
    },
    progress::Progress,
};

/// For how many seconds everybody works before a turn counts: until all connections are made, and all of
/// them have the plans that they keep.
pub(crate) const WARM_UP: u32 = 2;

/// How long the machine is watched while nobody works.
const WATCH: Duration = Duration::from_millis(500);

/// How something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// `pgbench`, each client on a connection of its own.
    Pgbench(Script),
    /// The store.
    Store(Lanes),
    /// The end of a claim in a transaction of the user's own, on a connection of its own.
    Own(Form),
}

/// Somebody who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) words: &'static str,
    pub(crate) how: How,
    pub(crate) in_flight: usize,
}

impl Contestant {
    /// How many connections write.
    pub(crate) fn connections(&self) -> usize {
        match self.how {
            How::Pgbench(_) | How::Own(Form::OneTransaction) => self.in_flight,
            How::Own(Form::Commit) => self.in_flight + Lanes::USUAL.connections(),
            How::Store(lanes) => lanes.connections(),
        }
    }
}

/// What somebody did in one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    /// Pairs or transactions in a second.
    pub(crate) rate: f64,
    /// Of those, how many there were in all, and what the server counted for them.
    pub(crate) all: u64,
    pub(crate) counts: Counts,
    /// What was used for them; `None` where the system does not tell.
    pub(crate) cpu: Option<Cpu>,
}

/// All turns of somebody.
pub(crate) struct Row {
    pub(crate) who: Contestant,
    pub(crate) turns: Vec<Turn>,
}

impl Row {
    pub(crate) fn new(who: Contestant) -> Self {
        Self { who, turns: Vec::new() }
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.rate))
    }

    /// This one ÷ another: the median of the rounds' ratios.
    pub(crate) fn to(&self, other: &Self) -> Option<f64> {
        median(self.turns.iter().zip(&other.turns).map(|(this, other)| this.rate / other.rate))
    }

    /// A figure of what the server counted, for each pair.
    pub(crate) fn each(&self, figure: impl Fn(&Counts) -> f64) -> Option<f64> {
        median(self.turns.iter().map(|turn| figure(&turn.counts) / turn.all.max(1) as f64))
    }

    /// User and system time of the server or of the client for each pair, in microseconds.
    pub(crate) fn cpu_micros(&self, whose: impl Fn(&Cpu) -> Duration) -> Option<f64> {
        let of_turn = |turn: &Turn| Some(whose(&turn.cpu?).as_secs_f64() * 1e6 / turn.all as f64);
        median(self.turns.iter().filter(|turn| turn.all > 0).filter_map(of_turn))
    }

    /// Which share of updates changed no index.
    pub(crate) fn hot_share(&self) -> Option<f64> {
        let updated = self.turns.iter().filter(|turn| turn.counts.updates > 0.0);
        median(updated.map(|turn| turn.counts.hot_updates / turn.counts.updates))
    }
}

/// Where turns are taken.
pub(crate) struct Arena<'a> {
    pub(crate) site: &'a Site,
    pub(crate) place: &'a BenchDatabase,
    pub(crate) pgbench: &'a Pgbench,
    pub(crate) seconds: u32,
    /// Where the keys of the store's operations come from.
    pub(crate) numbers: Arc<AtomicU64>,
}

impl Arena<'_> {
    /// One turn. Everybody begins with new connections, and has left before the next one comes.
    pub(crate) fn turn(&self, who: &Contestant) -> Result<Turn, Failure> {
        self.place.wait_until_left()?;
        let (before, cpu) = (self.place.counts()?, self.site.cpu());
        let ran = match who.how {
            How::Pgbench(script) => self.pgbench.run(script, who.in_flight, self.seconds)?,
            How::Store(lanes) => self.pairs(lanes, who.in_flight)?,
            How::Own(form) => own::run(self, form, who.in_flight)?,
        };
        self.place.wait_until_left()?;
        let cpu = self.site.cpu().zip(cpu).map(|(now, before)| now.since(before));
        let counts = self.place.counts()?.since(before);
        Ok(Turn { rate: ran.rate, all: ran.all, counts, cpu })
    }

    fn pairs(&self, lanes: Lanes, in_flight: usize) -> Result<Ran, Failure> {
        let runtime = &self.site.runtime;
        with_store(self.site, self.place, lanes, |store| {
            let load = Load::start(runtime, &store, &self.numbers, in_flight, Deed::Pair);
            let window = self.window();
            let ended: Vec<_> = load.stop(runtime)?.iter().map(|lap| lap.ended).collect();
            Ok(window.rate(&ended))
        })
    }

    /// Waits for the warm-up and for the turn.
    pub(crate) fn window(&self) -> Window {
        std::thread::sleep(Duration::from_secs(WARM_UP.into()));
        let begin = Instant::now();
        std::thread::sleep(Duration::from_secs(self.seconds.into()));
        Window { begin, end: Instant::now() }
    }
}

/// When a turn counts.
pub(crate) struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    /// What was done, by when each was done.
    pub(crate) fn rate(&self, ended: &[Instant]) -> Ran {
        let within = ended.iter().filter(|ended| (self.begin..self.end).contains(*ended)).count();
        let rate = within as f64 / (self.end - self.begin).as_secs_f64();
        Ran { rate, all: ended.len() as u64 }
    }
}

/// Lets everybody take turns, round by round.
///
/// Also gives the share of the cores that others used while nobody of them worked.
pub(crate) fn take(
    what: &str,
    rounds: u32,
    rows: &mut [(&Arena<'_>, Row)],
) -> Result<Option<f64>, Failure> {
    let mut progress = Progress::new(what, u64::from(rounds) * rows.len() as u64);
    let mut shares = Vec::new();
    for round in 0..u64::from(rounds) {
        let others = Others::watch();
        std::thread::sleep(WATCH);
        shares.extend(others.share());
        let count = rows.len() as u64;
        for (index, (arena, row)) in rows.iter_mut().enumerate() {
            let who = row.who;
            let turn = arena.turn(&who).map_err(|wrong| -> Failure {
                format!("{}, {} in flight: {wrong}", who.words, who.in_flight).into()
            })?;
            row.turns.push(turn);
            progress.at(round * count + index as u64 + 1);
        }
    }
    progress.end();
    Ok(median(shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rates: &[f64]) -> Row {
        let lanes = Lanes { lanes: Some(8), batch: Some(1) };
        let mut row = Row::new(Contestant { words: "one", how: How::Store(lanes), in_flight: 16 });
        let counts = Counts { wal_bytes: 1000.0, full_pages: 0.0, updates: 10.0, hot_updates: 9.0 };
        let millis = Duration::from_millis;
        let cpu = Some(Cpu { server: millis(20), client: millis(10) });
        row.turns = rates.iter().map(|&rate| Turn { rate, all: 10, counts, cpu }).collect();
        row
    }

    #[test]
    fn ratios_are_of_rounds_and_not_of_medians() {
        let (this, other) = (row(&[10.0, 40.0, 90.0]), row(&[10.0, 20.0, 10.0]));
        assert_eq!(this.to(&other), Some(2.0));
        assert_eq!(this.rate(), Some(40.0));
    }

    #[test]
    fn counts_are_of_each_pair() {
        let row = row(&[1.0]);
        assert_eq!(row.each(|counts| counts.wal_bytes), Some(100.0));
        assert_eq!(row.hot_share(), Some(0.9));
        assert_eq!(row.cpu_micros(|cpu| cpu.server), Some(2000.0));
        assert_eq!(row.who.connections(), 16);
    }

    #[test]
    fn only_what_ended_within_the_window_counts() {
        let begin = Instant::now();
        let window = Window { begin, end: begin + Duration::from_secs(2) };
        let after = |millis| begin + Duration::from_millis(millis);
        let ran = window.rate(&[after(0), after(1999), after(2000), after(2500)]);
        assert_eq!(ran, Ran { rate: 1.0, all: 4 });
    }
}
