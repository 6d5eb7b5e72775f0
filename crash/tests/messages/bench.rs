//! A shop, a relay and a consumer in processes of their own, and what is true of them at the end.

use std::{
    fs,
    future::Future,
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use onceward_crash::messages::{Bug, Order, Place, Role};
use tempfile::TempDir;
use testbed::{Complaint, Database, MessageHistory, Process, free_address};

/// What `abort` does to a process.
const SIGABRT: i32 = 6;

/// On what shop and consumer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each of the two programs has one of them")]
pub(crate) enum Engine {
    /// Each has a file.
    Sqlite,
    /// Both have the same database.
    Postgres,
}

/// More than the usual of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    /// What `ONCEWARD_CRASHPOINT` says.
    pub(crate) crashpoint: Option<String>,
    pub(crate) bug: Option<Bug>,
    pub(crate) arguments: Vec<String>,
}

/// The surroundings of one run.
pub(crate) struct Bench {
    pub(crate) shop: Place,
    pub(crate) ledger: Place,
    pub(crate) database: Option<Database>,
    consumer: SocketAddr,
    directory: TempDir,
    /// How many producers there are, how many orders each has, and of how many aggregates.
    pub(crate) orders: (i64, i64, i64),
}

impl Bench {
    pub(crate) fn new(engine: Engine) -> Self {
        let directory = testbed::directory();
        let (shop, ledger, database) = match engine {
            Engine::Sqlite => {
                let place = |name| Place::Sqlite(directory.path().join(name));
                (place("shop.db"), place("ledger.db"), None)
            }
            Engine::Postgres => {
                let database = testbed::postgres().database();
                let place = Place::Postgres(database.url().to_owned());
                (place.clone(), place, Some(database))
            }
        };
        for place in [&shop, &ledger] {
            block_on(place.prepare()).unwrap();
        }
        let consumer = free_address().unwrap();
        Self { shop, ledger, database, consumer, directory, orders: (1, 5, 2) }
    }

    /// For another run: a database takes longer to make than to empty.
    pub(crate) fn emptied(self) -> Self {
        let Some(database) = &self.database else { return Self::new(Engine::Sqlite) };
        database.sql("TRUNCATE orders, ledger, onceward.message, onceward.parked, onceward.inbox");
        self
    }

    /// Where the points of a record pass are written to.
    pub(crate) fn record(&self, role: Role) -> PathBuf {
        self.directory.path().join(role.name())
    }

    /// The points that a record pass has written down.
    pub(crate) fn recorded(&self, role: Role) -> Vec<String> {
        let points = fs::read_to_string(self.record(role)).unwrap();
        points.lines().map(str::to_owned).collect()
    }

    /// Starts a process that finds what earlier ones have left.
    pub(crate) fn start(&self, role: Role, extra: &Extra) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_courier"));
        let place = if role == Role::Consume { &self.ledger } else { &self.shop };
        let (_, orders, aggregates) = self.orders;
        command.args(["--role", role.name(), "--place", &place.text()]);
        command.args(["--consumer", &self.consumer.to_string()]);
        command.args(["--orders", &orders.to_string(), "--aggregates", &aggregates.to_string()]);
        command.args(&extra.arguments);
        if let Some(bug) = extra.bug {
            let value = clap::ValueEnum::to_possible_value(&bug).unwrap();
            command.args(["--bug", value.get_name()]);
        }
        match &extra.crashpoint {
            Some(plan) => command.env("ONCEWARD_CRASHPOINT", plan),
            None => command.env_remove("ONCEWARD_CRASHPOINT"),
        };
        let process = Process::start(&mut command).unwrap();
        if role == Role::Consume {
            process.stdout.wait_for("listening on").unwrap();
        }
        process
    }

    /// What was committed, and what was applied.
    pub(crate) fn history(&self) -> MessageHistory {
        let (producers, orders, aggregates) = self.orders;
        let numbers = block_on(self.shop.orders()).unwrap();
        let all = |order: &Order| order.messages();
        let committed = numbers.iter().map(|number| Order { number: *number, aggregates });
        let every = (0..producers)
            .flat_map(|producer| (1..=orders).map(move |order| (producer, order)))
            .map(|(producer, order)| Order::of(producer, order, aggregates));
        let aborted = every.filter(|order| order.is_rolled_back());
        MessageHistory {
            committed: committed.flat_map(|order| all(&order)).collect(),
            aborted: aborted.flat_map(|order| all(&order)).map(|(_, body)| body).collect(),
            applied: block_on(self.ledger.ledger()).unwrap(),
        }
    }

    /// What should not be. Also that not every order was committed in the end.
    pub(crate) fn complaints(&self) -> Vec<Complaint> {
        let history = self.history();
        let (producers, orders, aggregates) = self.orders;
        let kept =
            (1..=orders).filter(|order| !Order::of(0, *order, aggregates).is_rolled_back()).count();
        let numbers = block_on(self.shop.orders()).unwrap().len();
        assert_eq!(numbers, usize::try_from(producers).unwrap() * kept, "all orders are there");
        history.complaints()
    }
}

/// Whether it died at a crash point.
pub(crate) fn has_aborted(status: ExitStatus) -> bool {
    status.signal() == Some(SIGABRT)
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

/// Waits until something is true, for two minutes.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(120), "it did not become true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
