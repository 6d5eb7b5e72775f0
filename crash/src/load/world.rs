//! One database, one provider, and everything that clients hear.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    checker::{self, EffectKind, Rules, Violation},
    client,
    history::{Answer, Digest, History, Ledger, Operation, OperationName, Recorder},
    provider::Provider,
    running::{Launch, Running},
    service::{Driver, Stake},
};

use super::Books;

/// How long a client waits for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// One database, one provider, and everything that clients hear.
pub struct World {
    /// Gone when the world is.
    _directory: tempfile::TempDir,
    database: PathBuf,
    program: &'static str,
    stake: Stake,
    driver: Driver,
    lease: Duration,
    /// Where the records are; in the database if this is not said.
    redis: Option<String>,
    provider: Provider,
    books: Books,
    /// What was asked and heard.
    pub recorder: Recorder,
}

impl World {
    /// An empty database for a service, which is `env!("CARGO_BIN_EXE_service")`.
    pub fn new(
        program: &'static str,
        stake: Stake,
        driver: Driver,
        lease: Duration,
    ) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let (database, provider) = (directory.path().join("shop.db"), Provider::start()?);
        let (start, recorder) = (Instant::now(), Recorder::new(lease));
        let books = match stake {
            Stake::Transactional => Books::of_shop(&database),
            Stake::External | Stake::Repeatable => Books::of_provider(provider.clone(), start),
        };
        let _directory = directory;
        let redis = None;
        Ok(Self {
            _directory,
            database,
            program,
            stake,
            driver,
            lease,
            redis,
            provider,
            books,
            recorder,
        })
    }

    /// The same with its records on a Redis server.
    #[must_use]
    pub fn on_redis(self, address: impl Into<String>) -> Self {
        Self { redis: Some(address.into()), ..self }
    }

    /// How a service of this world is started.
    #[must_use]
    pub fn launch(&self) -> Launch<'_> {
        Launch {
            program: self.program,
            database: &self.database,
            provider: self.provider.address(),
            stake: self.stake,
            driver: self.driver,
            lease: self.lease,
            single_thread: false,
            crashpoint: None,
            more: match &self.redis {
                Some(address) => vec!["--redis".to_owned(), address.clone()],
                None => Vec::new(),
            },
        }
    }

    /// How long a claim lives without being renewed.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// One attempt, by a patient client.
    pub fn ask(&self, service: SocketAddr, operation: &Operation) -> Answer {
        self.ask_for(service, operation, ANSWER_TIMEOUT)
    }

    /// One attempt, by a client who does not wait longer than this for each part of the answer.
    pub fn ask_for(
        &self,
        service: SocketAddr,
        operation: &Operation,
        patience: Duration,
    ) -> Answer {
        self.attempt(service, operation, &operation.name, patience)
    }

    /// One attempt with another key than the operation's own, which no client should ever make.
    pub fn ask_with_key(&self, service: SocketAddr, operation: &Operation, key: &str) -> Answer {
        let sent = OperationName::new(&operation.name.scope, key);
        self.attempt(service, operation, &sent, ANSWER_TIMEOUT)
    }

    /// Looks into the books as soon as the answer is there.
    fn attempt(
        &self,
        service: SocketAddr,
        operation: &Operation,
        sent: &OperationName,
        patience: Duration,
    ) -> Answer {
        let Operation { name, payload, .. } = operation;
        self.recorder.ask(operation.clone());
        let started = self.recorder.now();
        let answer = client::attempt(service, sent, payload, patience);
        self.books.look(name, self.recorder.now());
        self.recorder.heard(name.clone(), started, answer.clone());
        answer
    }

    /// Stops all faults: a last service, which was started now, is asked about everything until it
    /// has ended, or for one lease and this margin. Then the checker says what is wrong.
    pub fn conclude(&self, last: &Launch<'_>, margin: Duration) -> io::Result<Conclusion> {
        let last = last.start()?;
        self.recorder.faults_stop();
        self.ask_for_every_end(&last, Instant::now() + self.lease + margin);
        let history = self.recorder.history();
        let ledger = self.books.ledger(self.recorder.now()).map_err(io::Error::other)?;
        // The common start was taken twice, in two lines that follow each other.
        let tolerance = Duration::from_millis(1);
        let rules = Rules::new(self.effect_kind()).end_margin(margin).clock_tolerance(tolerance);
        let violations = checker::check(&history, &ledger, &rules);
        Ok(Conclusion { history, ledger, violations })
    }

    fn ask_for_every_end(&self, last: &Running, until: Instant) {
        let operations: Vec<Operation> = self.recorder.history().operations.into_values().collect();
        let ask_all = |operations: &[Operation]| {
            let mut random = fastrand::Rng::new();
            for operation in operations {
                let ask = || Some(self.ask(last.address, operation));
                super::insist(ask, || Instant::now() >= until, &mut random);
            }
        };
        std::thread::scope(|scope| {
            for some in operations.chunks(operations.len().div_ceil(8).max(1)) {
                scope.spawn(move || ask_all(some));
            }
        });
    }

    fn effect_kind(&self) -> EffectKind {
        match self.stake {
            Stake::Transactional => EffectKind::Transactional,
            Stake::External => EffectKind::External,
            Stake::Repeatable => EffectKind::Repeatable,
        }
    }
}

/// What came out in the end.
#[derive(Debug)]
pub struct Conclusion {
    /// What was asked and heard.
    pub history: History,
    /// What was done.
    pub ledger: Ledger,
    /// In which these two break the rules.
    pub violations: Vec<Violation>,
}

impl Conclusion {
    /// Writes everything down for a person; returns where.
    pub fn write_down(&self) -> io::Result<PathBuf> {
        use io::Write as _;
        let mut file = tempfile::Builder::new().prefix("onceward-history-").tempfile()?;
        for violation in &self.violations {
            writeln!(file, "{violation}")?;
        }
        writeln!(file, "{:#?}\n{:#?}", self.history, self.ledger)?;
        let (_, path) = file.keep().map_err(|error| error.error)?;
        Ok(path)
    }
}

/// An operation of the shop, whose answer can be told beforehand.
#[must_use]
pub fn order(scope: &str, key: &str, payload: String) -> Operation {
    let body = Digest::of(format!("charged {payload}"));
    Operation::new(OperationName::new(scope, key), payload).body(body)
}
