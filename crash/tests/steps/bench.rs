//! A fresh directory, a fresh provider and a fresh history: the surroundings of one run.

use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::ExitStatus,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use onceward_crash::{
    client::{self, ledger_name},
    history::{Answer, Digest, Effect, History, Ledger, Operation, OperationName, Recorder},
    provider::Provider,
    running::{Launch, Running},
    service::Stake,
};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::configuration::{Before, Configuration, LEASE, Records};

/// How long a client waits for one answer, and a run for the end of its process.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client asks again and again: what the guarantees allow, and a margin.
const ENDS_WITHIN: Duration = LEASE.saturating_add(Duration::from_secs(7));

/// The pause between two attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);

/// What `abort` does to a process.
pub(crate) const SIGABRT: i32 = 6;

pub(crate) struct Bench {
    configuration: &'static Configuration,
    directory: TempDir,
    /// With a prefix that no other run has.
    redis: Option<String>,
    provider: Provider,
    pub(crate) recorder: Recorder,
    /// When each row of the shop's own table was first seen.
    seen: Mutex<HashMap<i64, Duration>>,
}

impl Bench {
    /// With what happened before already in its history.
    pub(crate) fn new(configuration: &'static Configuration) -> Self {
        let bench = Self {
            configuration,
            directory: TempDir::new().unwrap(),
            redis: (configuration.records == Records::Redis).then(|| {
                let prefix = format!("onceward-test-{:012x}", fastrand::u64(..1 << 48));
                format!("{}?prefix={prefix}", testbed::redis())
            }),
            provider: Provider::start().unwrap(),
            recorder: Recorder::new(LEASE),
            seen: Mutex::default(),
        };
        bench.recorder.ask(bench.operation(Self::name()));
        match configuration.before {
            Before::Nothing => {}
            Before::Abandoned(point) => bench.abandon(point),
            Before::Ended => {
                let running = bench.start(None);
                let answer = bench.attempt(&running);
                assert!(matches!(answer, Answer::Ok(_)), "{answer}");
                running.kill().unwrap();
            }
        }
        bench
    }

    fn abandon(&self, point: &str) {
        let running = self.start(Some(format!("{point}=abort")));
        self.attempt(&running);
        assert_eq!(signal(running.wait_for_end(ANSWER_TIMEOUT)), Some(SIGABRT));
        thread::sleep(LEASE + Duration::from_millis(20));
    }

    /// The operation to which something is done.
    pub(crate) fn name() -> OperationName {
        OperationName::new("alice", "charge-1")
    }

    /// An operation that is asked for when all is over: the service must be alive.
    pub(crate) fn bystander() -> OperationName {
        OperationName::new("bob", "charge-2")
    }

    fn operation(&self, name: OperationName) -> Operation {
        let payload = self.configuration.payload();
        let body = Digest::of(format!("charged {payload}"));
        Operation::new(name, payload).body(body)
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    /// Where the points of a record pass are written to.
    pub(crate) fn record(&self) -> PathBuf {
        self.directory.path().join("points")
    }

    /// Starts a process that finds what earlier ones have left.
    pub(crate) fn start(&self, crashpoint: Option<String>) -> Running {
        let launch = Launch {
            program: env!("CARGO_BIN_EXE_service"),
            database: &self.database(),
            provider: self.provider.address(),
            stake: self.configuration.stake,
            driver: self.configuration.driver,
            lease: LEASE,
            single_thread: true,
            crashpoint,
            more: match &self.redis {
                Some(address) => vec!["--redis".to_owned(), address.clone()],
                None => Vec::new(),
            },
        };
        launch.start().unwrap()
    }

    /// Asks once.
    pub(crate) fn attempt(&self, running: &Running) -> Answer {
        self.attempt_of(&Self::name(), running)
    }

    fn attempt_of(&self, name: &OperationName, running: &Running) -> Answer {
        let started = self.recorder.now();
        let payload = self.configuration.payload();
        let answer = client::attempt(running.address, name, &payload, ANSWER_TIMEOUT);
        // Looked at before the attempt counts as ended: the effect of an ok must be there by now.
        if matches!(answer, Answer::Ok(_)) {
            self.ledger();
        }
        self.recorder.heard(name.clone(), started, answer.clone());
        answer
    }

    /// Asks until the operation has ended, and once more.
    pub(crate) fn retry(&self, running: &Running) {
        self.retry_of(&Self::name(), running);
        self.attempt(running);
    }

    fn retry_of(&self, name: &OperationName, running: &Running) {
        let start = Instant::now();
        while start.elapsed() < ENDS_WITHIN {
            match self.attempt_of(name, running) {
                Answer::Ok(_) | Answer::BoundFailure(_) => return,
                Answer::OutcomeUnknown(_) if self.configuration.stake == Stake::External => return,
                _ => thread::sleep(ATTEMPT_INTERVAL),
            }
        }
    }

    /// Asks for something else.
    pub(crate) fn ask_bystander(&self, running: &Running) {
        let name = Self::bystander();
        self.recorder.ask(self.operation(name.clone()));
        self.retry_of(&name, running);
    }

    /// What was done, as the world outside tells.
    pub(crate) fn ledger(&self) -> Ledger {
        let effects = match self.configuration.stake {
            Stake::Transactional => self.rows(),
            Stake::External | Stake::Repeatable => self.charges(),
        };
        Ledger { effects }
    }

    fn charges(&self) -> Vec<Effect> {
        let charges = self.provider.charges().into_iter();
        let effect = |charge: onceward_crash::provider::Charge| Effect {
            operation: Self::named(&charge.operation),
            payload: charge.payload,
            at: self.recorder.now().saturating_sub(charge.at.elapsed()),
        };
        charges.map(effect).collect()
    }

    /// The shop's own table, through a connection of nobody's; a row counts from its first sight.
    fn rows(&self) -> Vec<Effect> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(self.database(), flags).unwrap();
        connection.busy_timeout(ANSWER_TIMEOUT).unwrap();
        let mut query = connection.prepare("SELECT rowid, operation, payload FROM charge").unwrap();
        let rows = query.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
        });
        let rows = rows.unwrap().map(Result::unwrap);
        let mut seen = self.seen.lock().unwrap();
        let effect = |(row, operation, payload): (i64, String, String)| Effect {
            operation: Self::named(&operation),
            payload,
            at: *seen.entry(row).or_insert_with(|| self.recorder.now()),
        };
        rows.map(effect).collect()
    }

    /// The operation that a ledger calls like this.
    fn named(text: &str) -> OperationName {
        let known = [Self::name(), Self::bystander()];
        let found = known.into_iter().find(|name| ledger_name(name) == text);
        found.unwrap_or_else(|| OperationName::new("nobody", text))
    }

    pub(crate) fn history(&self) -> History {
        self.recorder.history()
    }
}

/// The signal by which a process ended, if it did.
pub(crate) fn signal(status: Option<ExitStatus>) -> Option<i32> {
    status.and_then(|status| status.signal())
}
