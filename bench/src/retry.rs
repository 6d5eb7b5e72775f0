//! `retry`: the plan of a run, and its report.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

mod decision;
mod layers;

use std::path::PathBuf;

use clap::Args;

use crate::{
    Failure,
    machine::Machine,
    measure::{Others, median, share_below},
    report::{command, one_digit, or_dash, print_figures},
    store,
    verdict::{Bound, Figure, Unit},
};

/// Measures what a decision about a retry costs, and what the retrying layer adds to a call.
///
/// Everything is in this process, without sockets. Calls go to a service that answers at once: bare,
/// through our layer, through tower's retry with a budget, and to a client of reqwest-middleware with
/// and without its retry middleware, in short turns. A figure is what one of ten turns stays below,
/// the quiet ones; medians are printed beside it. Nothing fails, so nothing is retried: it is what
/// every call pays. The result is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench retry                             everything, about 20 seconds\n  \
    cargo xtask bench retry --quick                     does it work? about a second\n  \
    cargo xtask bench retry --date 2026-11-16 > result.md   ready to paste")]
pub(crate) struct Arguments {
    /// Few turns: proves that it works and little else
    #[arg(long)]
    quick: bool,

    /// How many turns each line gets [default: 300]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,

    /// Looked at for the description of the machine; nothing is written there
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// The share of turns that count as quiet.
const QUIET: f64 = 0.1;

/// What is measured, in nanoseconds for each call, by turns.
#[derive(Clone)]
pub(crate) struct Line {
    what: &'static str,
    nanos: Vec<f64>,
}

impl Line {
    fn new(what: &'static str) -> Self {
        Self { what, nanos: Vec::new() }
    }

    fn quiet(&self) -> Option<f64> {
        share_below(&self.nanos, QUIET)
    }
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let turns = arguments.turns.unwrap_or(if arguments.quick { 10 } else { 300 });
    let directory = store::directory(arguments.dir.as_deref())?;
    let machine = Machine::at(directory.path())?;
    directory.close()?;

    let others = Others::watch();
    let decisions = decision::measure(turns);
    let layers = layers::measure(turns)?;
    let others = others.share();

    let Machine { processor, kernel, .. } = &machine;
    let date = arguments.date.as_ref().map(|date| format!(", {date}")).unwrap_or_default();
    println!("- Command: `{}`{date}", command());
    println!("- Machine: {processor}; {kernel}");
    println!(
        "- {turns} turns for each line, in turn: {} decisions or {} calls.",
        decision::TURN,
        layers::TURN
    );
    if let Some(share) = others {
        println!("- Used by other processes meanwhile, of all cores: {:.0} %.", share * 1e2);
    }
    print_figures(&figures(&decisions, &layers));
    println!(
        "\n| what | ns, quiet turns | ns, median | ns, 9 of 10 turns below |\n|---|---|---|---|"
    );
    for line in decisions.iter().chain(&layers) {
        println!(
            "| {} | {} | {} | {} |",
            line.what,
            or_dash(line.quiet(), one_digit),
            or_dash(median(line.nanos.iter().copied()), one_digit),
            or_dash(share_below(&line.nanos, 0.9), one_digit),
        );
    }
    Ok(())
}

fn figures(decisions: &[Line], layers: &[Line]) -> Vec<Figure> {
    let quiet = |lines: &[Line], what| lines.iter().find(|line| line.what == what)?.quiet();
    let added = |with, without| Some(quiet(layers, with)? - quiet(layers, without)?);
    let figure = |what, measured: Option<f64>, must, goal| Figure {
        what,
        measured,
        bound: Bound::AtMost(must),
        goal,
        unit: Unit::Each("ns"),
    };
    let beside = |what, measured| Figure {
        what,
        measured,
        bound: Bound::AtLeast(0.0),
        goal: None,
        unit: Unit::Each("ns"),
    };
    vec![
        figure(
            "a decision after a success, with its budget",
            quiet(decisions, decision::SUCCESS),
            100.0,
            Some(50.0),
        ),
        figure(
            "a decision to try again, with its budget",
            quiet(decisions, decision::RETRY),
            100.0,
            Some(50.0),
        ),
        figure(
            "added by our layer to a call",
            added(layers::OURS, layers::BARE),
            1_000.0,
            Some(300.0),
        ),
        beside("added by tower's retry with a budget", added(layers::TOWER, layers::BARE)),
        beside(
            "added by reqwest-retry to a client of reqwest-middleware",
            added(layers::REQWEST_RETRY, layers::REQWEST_BARE),
        ),
        beside(
            "added by our middleware to the same",
            added(layers::REQWEST_OURS, layers::REQWEST_BARE),
        ),
    ]
}
