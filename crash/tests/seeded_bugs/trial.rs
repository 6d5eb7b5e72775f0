//! One story on one database, with a mistake or without.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum as _;
use onceward_crash::{
    checker::Violation,
    history::Operation,
    load::{World, order},
    running::{Launch, Running},
    service::{Bug, Driver, Stake},
};
use rusqlite::{Connection, OpenFlags};

const LEASE: Duration = Duration::from_millis(300);
const END_MARGIN: Duration = Duration::from_secs(3);

/// A mistake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seed {
    /// Of the service.
    Service(Bug),
    /// Of the client: it retries with a new key.
    NewKey,
}

/// One story on one database, with a mistake or without.
pub(crate) struct Trial {
    pub(crate) world: World,
    pub(crate) seed: Option<Seed>,
    /// What the last service is started with, if not with what the first one was.
    pub(crate) last_stake: std::cell::Cell<Stake>,
}

/// Plays a story twice: without the mistake it is clean, with it all of this is wrong.
pub(crate) fn assert_caught(seed: Seed, stake: Stake, story: impl Fn(&Trial), wrong: &[&str]) {
    let honest = play(None, stake, &story);
    assert!(honest.is_empty(), "without {seed:?} there is {honest:#?}");
    let violations = play(Some(seed), stake, &story);
    let mut found: Vec<_> = violations.iter().map(Violation::name).collect();
    found.sort_unstable();
    found.dedup();
    eprintln!("{seed:?} was caught by: {}", found.join(", "));
    for name in wrong {
        assert!(found.contains(name), "{seed:?} did not show as {name}: {violations:#?}");
    }
}

fn play(seed: Option<Seed>, stake: Stake, story: impl Fn(&Trial)) -> Vec<Violation> {
    let service = env!("CARGO_BIN_EXE_service");
    let world = World::new(service, stake, Driver::Sqlx, LEASE).unwrap();
    let trial = Trial { world, seed, last_stake: stake.into() };
    story(&trial);
    // Some stories end in doubt even if nobody makes a mistake; a healthy system can still say ok.
    trial.world.recorder.ask(order("carol", "afterwards", "1".into()));
    let last = Launch { stake: trial.last_stake.get(), ..trial.launch(None) };
    trial.world.conclude(&last, END_MARGIN).unwrap().violations
}

impl Trial {
    /// The operation that it is about.
    pub(crate) fn order(&self) -> Operation {
        order("alice", "order-1", "500".into())
    }

    /// A service, with the mistake if there is one, and with a plan for its crash points.
    pub(crate) fn launch(&self, plan: Option<&str>) -> Launch<'_> {
        let mut launch = self.world.launch();
        launch.crashpoint = plan.map(str::to_owned);
        if let Some(Seed::Service(bug)) = self.seed {
            let name = bug.to_possible_value().unwrap().get_name().to_owned();
            launch.more = vec!["--bug".to_owned(), name];
        }
        launch
    }

    pub(crate) fn start(&self, plan: Option<&str>) -> Running {
        self.launch(plan).start().unwrap()
    }

    /// Waits until somebody has a claim.
    pub(crate) fn wait_for_a_claim(&self) {
        let database = self.world.launch().database.to_owned();
        let start = Instant::now();
        loop {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
            let connection = Connection::open_with_flags(&database, flags).unwrap();
            connection.busy_timeout(Duration::from_secs(5)).unwrap();
            let mut any = connection.prepare("SELECT 1 FROM onceward_record").unwrap();
            if any.exists([]).unwrap() {
                return;
            }
            assert!(start.elapsed() < testbed::TEST_TIMEOUT, "no service claims the operation");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
