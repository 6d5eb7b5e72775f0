//! `redis`: the plan of a run, from new servers to the report.

mod bare;
mod memory;
mod result;
mod sample;
mod site;
mod trips;
mod turns;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    gateway::{BesideRedis, Urls, gateway_program, on_redis},
    machine::Machine,
    options::{Count, seconds},
    postgres, store,
};
use result::Report;
use site::{Site, Sync};

/// Measures the store of Redis and Valkey against a bare loop, which sends the same commands.
///
/// Two servers are started and removed afterwards, with their logs on a disk: one syncs before it answers
/// (`appendfsync always`), one once in a second (`everysec`). Load and servers share this machine. A pair is a
/// claim plus a completion with an answer of 500 bytes. The bare loop sends what the store was seen to send,
/// under other keys, with the same client, connections and pipeline, and thinks of nothing. Everybody takes
/// turns; ratios are medians of the rounds' ratios. Figures of different runs must not be compared. The result
/// is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench redis                                   about 5 minutes\n  \
    cargo xtask bench redis --only pairs,trips                without memory and gateway\n  \
    cargo xtask bench redis --rounds 1 --seconds 0.5 --records 1k\n                                                            \
    does it work? half a minute\n  \
    cargo xtask bench redis --date 2026-11-19 > result.md     ready to paste")]
pub(crate) struct Arguments {
    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Option<Vec<Part>>,

    /// How often everybody gets a turn; medians count
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long each turn takes, without its warm-up
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: Duration,

    /// How many records are written to see how much memory one takes
    #[arg(long, value_name = "COUNT", default_value = "100k")]
    records: Count,

    /// The gateway's program [default: `onceward` beside this program, which xtask builds]
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,

    /// Where files of the gateway and its peers go, in a directory on a disk that is removed afterwards
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Claims and completions beside the bare loop.
    Pairs,
    /// Commands for a claim, a duplicate and a settlement.
    Trips,
    /// Bytes of memory a record.
    Memory,
    /// First requests of the gateway on Redis, on other stores, and of express-idempotency.
    Gateway,
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&part))
    }
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let gateway = match arguments.has(Part::Gateway) {
        true => Some(gateway_program(arguments.gateway.as_deref())?),
        false => None,
    };
    let directory = store::directory(arguments.dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sites = [Site::start(Sync::Always)?, Site::start(Sync::EverySecond)?];
    // The servers' logs are what is written.
    let machine = Machine::at(sites[0].server.home().path())?;
    let mut report = Report::new(&sites, arguments.rounds, arguments.seconds);
    measure(arguments, &runtime, &sites, &mut report)?;
    if let Some(program) = gateway {
        Machine::at(directory.path())?;
        // The gateway does not start on records that it would call otherwise.
        sites.iter().try_for_each(Site::clear)?;
        let database = database();
        let urls = Urls {
            always: sites[0].server.url(),
            everysec: sites[1].server.url(),
            postgres: database.as_ref().ok().map(|(_, place)| place.url().to_owned()),
        };
        let (rounds, turn) = (arguments.rounds, arguments.seconds);
        let BesideRedis { lines, peer, skipped } =
            on_redis(&program, directory.path(), &urls, rounds, turn)?;
        (report.gateway, report.peer) = (lines, peer);
        report.skipped.extend(skipped.map(|reason| ("express-idempotency", reason)));
        report.skipped.extend(database.err().map(|reason| ("PostgreSQL", reason.to_string())));
    }
    directory.close()?;
    drop(sites);
    report.print(&machine, arguments.date.as_deref());
    Ok(())
}

fn measure(
    arguments: &Arguments,
    runtime: &Runtime,
    sites: &[Site],
    report: &mut Report,
) -> Result<(), Failure> {
    if arguments.has(Part::Pairs) {
        report.pairs = Some(turns::run(runtime, sites, arguments.rounds, arguments.seconds)?);
    }
    if arguments.has(Part::Trips) {
        report.trips = Some(trips::count(runtime, &sites[0].server)?);
    }
    if arguments.has(Part::Memory) {
        report.memory = Some(memory::measure(runtime, arguments.records.0.max(1))?);
    }
    Ok(())
}

/// A database for the gateway, with its server.
fn database() -> Result<(postgres::site::Site, postgres::site::BenchDatabase), Failure> {
    let site = postgres::site::Site::start(&[], None)?;
    let database = site.database()?;
    Ok((site, database))
}
