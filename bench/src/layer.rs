//! `layer`: the plan of a run, and its report.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use std::path::PathBuf;

use clap::{Args, ValueEnum as _};

use crate::{
    Failure, instructions,
    instructions::Tool,
    machine::Machine,
    measure::{Others, median, share_below},
    options::Count,
    report::{command, millis, one_digit, or_dash, print_figures, thousands, two_digits},
    requests::{Bench, Kind, REQUEST_BYTES},
    store,
    verdict::{Bound, Figure, Unit},
    waiters::{self, Waiters},
};

/// The condition of a figure: fewer waiters are not held against it.
const WAITERS: usize = 10_000;

/// Measures what the server layer adds to a service, and how fast its waiters are answered.
///
/// Everything is in this process, without sockets. The same requests go to a service with and without
/// the layer, in short turns. A figure is what one of ten turns stays below, the quiet ones; medians
/// are printed beside it. The store answers at once, so that its time is not counted. Instructions and
/// allocations are counted by perf or valgrind, if they are installed. The result is Markdown on
/// standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench layer                             everything, less than a minute\n  \
    cargo xtask bench layer --quick                     does it work? about 5 seconds\n  \
    cargo xtask bench layer --date 2026-11-16 > result.md   ready to paste")]
pub(crate) struct Arguments {
    /// Few turns, few waiters, nothing counted: proves that it works and little else
    #[arg(long)]
    quick: bool,

    /// How many turns each kind of request gets [default: 400]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,

    /// How many duplicates wait for one execution [default: 10k, the most that the layer allows]
    #[arg(long, value_name = "COUNT")]
    waiters: Option<Count>,

    /// How often they do, on each store [default: 9]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Where the SQLite file goes, in a directory on a disk that is removed afterwards
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// How many requests one turn has: short, so that a turn without neighbours is a common thing.
const TURN: usize = 100;

/// The share of turns that count as quiet. On a shared machine everything takes twice as long for
/// seconds on end, so that a median tells more about the neighbours than about the layer.
const QUIET: f64 = 0.1;

/// How many requests are counted; twice as many more tell what one of them costs.
const COUNTED: u64 = 200;

/// What one kind of request costs.
struct Cost {
    kind: Kind,
    /// Microseconds of one request, by turns.
    micros: Vec<f64>,
    instructions: Option<f64>,
    allocations: Option<f64>,
}

struct Costs {
    all: Vec<Cost>,
    /// What counted the instructions, or why nothing did.
    tool: Result<Tool, String>,
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (turns, waiters, rounds) = if arguments.quick { (20, 200, 2) } else { (400, WAITERS, 9) };
    let turns = arguments.turns.unwrap_or(turns);
    let rounds = arguments.rounds.unwrap_or(rounds);
    let waiters = arguments.waiters.map_or(waiters, |count| count.0 as usize);
    if waiters > onceward::server::Idempotency::MAX_WAITERS {
        return Err(format!("{waiters} cannot wait: the layer turns some of them away").into());
    }
    let directory = store::directory(arguments.dir.as_deref())?;
    let machine = Machine::at(directory.path())?;

    let others = Others::watch();
    let mut costs = Costs::of_turns(turns)?;
    let waiting = waiters::run(directory.path(), waiters, rounds)?;
    let others = others.share();
    directory.close()?;
    if arguments.quick {
        costs.tool = Err("--quick counts nothing".into());
    } else {
        costs.count();
    }

    let Machine { processor, kernel, file_system } = &machine;
    let date = arguments.date.as_ref().map(|date| format!(", {date}")).unwrap_or_default();
    println!("- Command: `{}`{date}", command());
    println!("- Machine: {processor}; {kernel}; {file_system}");
    println!(
        "- {turns} turns of {TURN} requests for each kind, in turn; {rounds} rounds of waiters."
    );
    if let Some(share) = others {
        println!("- Used by other processes meanwhile, of all cores: {:.0} %.", share * 1e2);
    }
    print_figures(&figures(&costs, &waiting));
    costs.print();
    print_waiters(&waiting);
    Ok(())
}

fn figures(costs: &Costs, waiting: &[Waiters]) -> Vec<Figure> {
    let overhead = |kind, what| Figure {
        what,
        measured: costs.overhead(kind),
        bound: Bound::AtMost(15.0),
        goal: None,
        unit: Unit::Each("µs"),
    };
    let woken = |store, what| {
        let measured = waiting.iter().find(|on| on.store == store && on.waiters == WAITERS);
        let slowest = measured.and_then(|on| on.took.iter().max()).copied();
        Figure {
            what,
            measured: slowest.map(millis),
            bound: Bound::AtMost(250.0),
            goal: Some(50.0),
            unit: Unit::Each("ms"),
        }
    };
    vec![
        overhead(Kind::Unkeyed, "added to a request without a key, 1 KiB"),
        overhead(Kind::First, "added to a first request, 1 KiB, without the store's time"),
        overhead(Kind::Replay, "taken by a replay, 1 KiB, without the store's time"),
        woken("memory", "10,000 waiters answered after the end, memory, slowest round"),
        woken("SQLite", "10,000 waiters answered after the end, SQLite, slowest round"),
    ]
}

impl Costs {
    /// Measures the time of all kinds, in turn.
    fn of_turns(turns: u32) -> Result<Self, Failure> {
        let bench = Bench::new()?;
        let cost = |&kind| Cost { kind, micros: Vec::new(), instructions: None, allocations: None };
        let mut all: Vec<_> = Kind::value_variants().iter().map(cost).collect();
        // The first turn of each warms up.
        for turn in 0..=turns {
            for cost in &mut all {
                let took = bench.turn(cost.kind, TURN)?;
                if turn > 0 {
                    cost.micros.push(took.as_secs_f64() * 1e6 / TURN as f64);
                }
            }
        }
        Ok(Self { all, tool: Err(String::new()) })
    }

    /// Counts instructions and allocations, in other processes.
    fn count(&mut self) {
        self.tool = Tool::find();
        for cost in &mut self.all {
            cost.instructions = self.tool.as_ref().ok().and_then(|tool| {
                tool.instructions(cost.kind, COUNTED)
                    .map_err(|error| eprintln!("not counted: {error}"))
                    .ok()
            });
            cost.allocations = instructions::allocations(cost.kind, COUNTED / 4);
        }
    }

    fn of(&self, kind: Kind) -> Option<&Cost> {
        self.all.iter().find(|cost| cost.kind == kind)
    }

    /// What the layer adds, in microseconds: the quiet turns with it minus those without.
    ///
    /// From a replay the bare service is not subtracted: it does not run.
    fn overhead(&self, kind: Kind) -> Option<f64> {
        let quiet = |kind| share_below(&self.of(kind)?.micros, QUIET);
        match kind {
            Kind::Replay => quiet(kind),
            _ => Some(quiet(kind)? - quiet(kind.bare())?),
        }
    }

    fn print(&self) {
        println!(
            "\n**Requests** with {REQUEST_BYTES} B of JSON, one after the other on one thread. The store \
             answers at once.\n"
        );
        println!(
            "| request | µs, quiet turns | µs, median | µs, 9 of 10 turns below | instructions | allocations |\n\
             |---|---|---|---|---|---|"
        );
        for cost in &self.all {
            println!(
                "| {} | {} | {} | {} | {} | {} |",
                cost.kind.words(),
                or_dash(share_below(&cost.micros, QUIET), two_digits),
                or_dash(median(cost.micros.iter().copied()), two_digits),
                or_dash(share_below(&cost.micros, 0.9), two_digits),
                or_dash(cost.instructions, thousands),
                or_dash(cost.allocations, one_digit),
            );
        }
        match &self.tool {
            Ok(Tool::Perf) => println!("\nInstructions of user space, counted by `perf stat`."),
            Ok(Tool::Callgrind) => println!(
                "\nInstructions are counted by callgrind. Its processor has no instructions for SHA-256: \
                 hashing counts for more there than it costs here."
            ),
            Err(reason) => println!("\nInstructions were not counted: {reason}."),
        }
        println!(
            "\nQuiet turns: one of ten took no longer. Instructions and allocations are those of \
             one more request, the making of it included, so subtract the line without the layer."
        );
    }
}

fn print_waiters(waiting: &[Waiters]) {
    println!(
        "\n**Waiters**: duplicates that wait for one execution, from the end of its handler (the \
         settlement is in it) until the last has read the answer.\n"
    );
    println!(
        "| store | waiters | ms, median | ms, slowest | reads of the store, most |\n|---|---|---|---|---|"
    );
    for Waiters { store, waiters, took, reads } in waiting {
        println!(
            "| {store} | {} | {} | {} | {reads} |",
            thousands(*waiters as f64),
            or_dash(median(took.iter().copied().map(millis)), one_digit),
            or_dash(took.iter().max().copied().map(millis), one_digit),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_not_relieved_of_the_service_that_it_does_not_run() {
        let cost = |kind, micros: f64| Cost {
            kind,
            micros: vec![micros, micros],
            instructions: None,
            allocations: None,
        };
        let all =
            vec![cost(Kind::BareKeyed, 1.0), cost(Kind::First, 10.0), cost(Kind::Replay, 5.0)];
        let costs = Costs { all, tool: Err(String::new()) };
        assert_eq!(costs.overhead(Kind::First), Some(9.0));
        assert_eq!(costs.overhead(Kind::Replay), Some(5.0));
        assert_eq!(costs.overhead(Kind::Unkeyed), None);
    }
}
