//! `operators`: how long those who look for one of a million records wait.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use onceward::{
    Effect, Ending, Key, OperationId, OperationName, Scope, Status, Store, Terms,
    store::{Cursor, Filter, Inspect, Order, sqlite::SqliteStore},
};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    gateway::gateway_program,
    load,
    machine::Machine,
    measure::{Others, wait_until_idle},
    options::Count,
    report::{command, millis, print_figures, thousands, two_digits},
    start, store,
    verdict::{Bound, Figure, Unit},
};

/// The condition of the figures: fewer records are not held against them.
const RECORDS: u64 = 1_000_000;

/// What an operator may wait, in milliseconds.
const LIMIT_MS: f64 = 200.0;

/// What a start may take, in milliseconds, and what the program may weigh.
const START_MS: f64 = 100.0;
const PROGRAM_MB: f64 = 40.0;

const SCOPES: u64 = 200;
const OPERATIONS: u64 = 8;

/// One record of so many is unknown, or failed, and so on.
const RARE: u64 = 4000;

/// Measures lists and look-ups of operators on a SQLite store that is otherwise idle, and how long the
/// gateway takes to start on it.
///
/// The records are of 200 scopes and 8 operations in no order; one of 4000 each is unknown, refused,
/// released, or failed and may be run again. A list is one page of 50 records; a search by key goes on
/// until the last page. The result is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench operators                   a million records, some minutes\n  \
    cargo xtask bench operators --records 20k     does it work? some seconds")]
pub(crate) struct Arguments {
    /// How many records the store holds [default: 1M]
    #[arg(long, value_name = "COUNT")]
    records: Option<Count>,

    /// How often each question is asked [default: 100]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Where the file goes, in a directory on a disk that is removed afterwards
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The gateway's program [default: `onceward` beside this one]
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// What is asked, and how long each answer took, sorted.
struct Asked {
    what: &'static str,
    took: Vec<Duration>,
    found: usize,
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let records = arguments.records.map_or(RECORDS, |count| count.0).max(RARE);
    let rounds = arguments.rounds.unwrap_or(100);
    let program = gateway_program(arguments.gateway.as_deref())?;
    let directory = store::directory(arguments.dir.as_deref())?;
    let machine = Machine::at(directory.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let store = SqliteStore::open(directory.path().join("operators.db"))?;
    fill(&runtime, &store, records)?;
    wait_until_idle();
    let others = Others::watch();
    let asked = runtime.block_on(ask(&store, records, rounds))?;
    let others = others.share();
    let census = runtime.block_on(store.census())?;
    let file = store.path().to_owned();
    drop(store);
    let start = start::measure(&program, &file)?;
    directory.close()?;

    let Machine { processor, kernel, file_system } = &machine;
    let date = arguments.date.as_ref().map(|date| format!(", {date}")).unwrap_or_default();
    println!("- Command: `{}`{date}", command());
    println!("- Machine: {processor}; {kernel}; {file_system}");
    println!(
        "- {} records of {SCOPES} scopes and {OPERATIONS} operations, {} MB; each question {rounds} \
         times; {} unknown.",
        thousands(records as f64),
        thousands(census.file_bytes as f64 / 1e6),
        census.unknown
    );
    if let Some(share) = others {
        println!("- Used by other processes meanwhile, of all cores: {:.0} %.", share * 1e2);
    }
    let slowest = asked.iter().map(|asked| percentile(&asked.took, 0.95)).max();
    let at_most = |what, measured, most, unit| Figure {
        what,
        measured,
        bound: Bound::AtMost(most),
        goal: None,
        unit: Unit::Each(unit),
    };
    let of_condition = |took: Option<Duration>| took.filter(|_| records >= RECORDS).map(millis);
    let started = Some(percentile(&start.took, 0.95));
    print_figures(&[
        at_most(
            "slowest question of an operator, p95, 1 M records",
            of_condition(slowest),
            LIMIT_MS,
            "ms",
        ),
        at_most(
            "start of the gateway until it listens, p95, 1 M records",
            of_condition(started),
            START_MS,
            "ms",
        ),
        at_most("the gateway's program", Some(start.program_bytes as f64 / 1e6), PROGRAM_MB, "MB"),
    ]);
    println!("\n| question | records | p50 ms | p95 ms | max ms |\n|---|---|---|---|---|");
    for Asked { what, took, found } in &asked {
        let of = |share| two_digits(millis(percentile(took, share)));
        println!("| {what} | {found} | {} | {} | {} |", of(0.5), of(0.95), of(1.0));
    }
    let of = |share| two_digits(millis(percentile(&start.took, share)));
    println!("| (start of the gateway) | | {} | {} | {} |", of(0.5), of(0.95), of(1.0));
    Ok(())
}

/// The value that this share of sorted samples does not exceed.
fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

fn scope(number: u64) -> Scope {
    Scope::of("tenant", &format!("customer-{number:04}")).expect("a valid scope")
}

fn operation(number: u64) -> OperationName {
    OperationName::new(&format!("resource-{number}.create")).expect("a valid name")
}

fn key(number: u64) -> Key {
    let text = format!("{:032x}", fastrand::Rng::with_seed(number).u128(..));
    Key::new(&text).expect("hexadecimal digits are a valid key")
}

/// The record with this number: whose it is has nothing to do with when it came.
fn identity(number: u64) -> OperationId {
    let mut random = fastrand::Rng::with_seed(!number);
    OperationId::new(scope(random.u64(..SCOPES)), operation(random.u64(..OPERATIONS)), key(number))
}

fn ending(number: u64) -> Option<Ending> {
    match number % RARE {
        1 => Some(Ending::Unknown),
        2 => Some(Ending::FailedRetryable),
        3 => Some(Ending::FailedFinal(load::answer())),
        4 => Some(Ending::Released),
        5 => None,
        _ => Some(Ending::Succeeded(load::answer())),
    }
}

fn fill(runtime: &Runtime, store: &SqliteStore, records: u64) -> Result<(), Failure> {
    let terms = Terms::of(Effect::External).build()?;
    let store: Arc<dyn Store> = Arc::new(store.clone());
    let end = move |store: Arc<dyn Store>, number| async move {
        load::run_once(&*store, identity(number), terms, ending(number)).await
    };
    load::fill_with(runtime, &store, 0..records, "SQLite", end)
}

async fn ask(store: &SqliteStore, records: u64, rounds: u32) -> Result<Vec<Asked>, Failure> {
    let page = || Filter { limit: 50, ..Filter::default() };
    let of = |status| Filter { status: Some(status), ..page() };
    let random = || fastrand::u64(..records);
    let any_scope = || Some(scope(fastrand::u64(..SCOPES)));
    let any_operation = || Some(operation(fastrand::u64(..OPERATIONS)));
    type Question<'q> = (&'static str, Box<dyn Fn() -> Filter + 'q>);
    let mut questions: Vec<Question<'_>> = Status::ALL
        .into_iter()
        .map(|status| -> Question<'_> { (status.as_str(), Box::new(move || of(status))) })
        .collect();
    questions.extend([
        (
            "a scope",
            Box::new(|| Filter { scope: any_scope(), ..page() }) as Box<dyn Fn() -> Filter>,
        ),
        ("an operation", Box::new(|| Filter { operation: any_operation(), ..page() })),
        (
            "a scope and an operation",
            Box::new(|| Filter { scope: any_scope(), operation: any_operation(), ..page() }),
        ),
        (
            "a scope, newest first",
            Box::new(|| Filter { scope: any_scope(), order: Order::NewestFirst, ..page() }),
        ),
        ("a scope that nobody has", Box::new(|| Filter { scope: Some(scope(SCOPES)), ..page() })),
        (
            "older than a second",
            Box::new(|| Filter { older: Some(Duration::from_secs(1)), ..page() }),
        ),
        (
            "older than a second, newest first",
            Box::new(|| Filter {
                older: Some(Duration::from_secs(1)),
                order: Order::NewestFirst,
                ..page()
            }),
        ),
        (
            "older than a year: none",
            Box::new(|| Filter { older: Some(Duration::from_secs(365 * 86400)), ..page() }),
        ),
        ("all", Box::new(page)),
        ("all, newest first", Box::new(|| Filter { order: Order::NewestFirst, ..page() })),
        (
            "all, a page in the middle",
            Box::new(|| {
                let middle = random();
                Filter { after: Some(Cursor(format!("{middle}.{middle}"))), ..page() }
            }),
        ),
        (
            "a key with its scope and operation",
            Box::new(|| {
                let id = identity(random());
                let (scope, operation) = (Some(id.scope().clone()), Some(id.name().clone()));
                Filter { key: Some(id.key().clone()), scope, operation, ..page() }
            }),
        ),
        ("a key alone, all pages", Box::new(|| Filter { key: Some(key(random())), ..page() })),
    ]);
    let mut asked = Vec::new();
    for (what, question) in questions {
        let is_search = what.contains("all pages");
        let (mut took, mut found) = (Vec::new(), 0);
        for _ in 0..if is_search { rounds.div_ceil(5) } else { rounds } {
            let filter = question();
            let started = Instant::now();
            found = match is_search {
                true => search(store, filter).await?,
                false => store.list(&filter).await?.listed.len(),
            };
            took.push(started.elapsed());
        }
        took.sort_unstable();
        asked.push(Asked { what, took, found });
    }
    asked.push(look_up(store, records, rounds).await?);
    Ok(asked)
}

/// Goes through all pages; returns how many records were listed.
async fn search(store: &SqliteStore, mut filter: Filter) -> Result<usize, Failure> {
    let mut found = 0;
    loop {
        let page = store.list(&filter).await?;
        found += page.listed.len();
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(found),
        }
    }
}

async fn look_up(store: &SqliteStore, records: u64, rounds: u32) -> Result<Asked, Failure> {
    let mut took = Vec::new();
    for _ in 0..rounds {
        let id = identity(fastrand::u64(..records)).digest();
        let started = Instant::now();
        if store.get(&id).await? == onceward::protocol::Found::Nothing {
            return Err("a stored record was not found".into());
        }
        took.push(started.elapsed());
    }
    took.sort_unstable();
    Ok(Asked { what: "one reference", took, found: 1 })
}
