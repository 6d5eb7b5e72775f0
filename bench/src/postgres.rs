//! `postgres`: the plan of a run, from a new server to the report.

mod fill;
mod own;
mod pgbench;
mod purge;
mod result;
pub(crate) mod script;
pub(crate) mod site;
mod turns;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::{
    Failure,
    gateway::{gateway_program, on_both_stores},
    machine::Machine,
    options::Count,
    store,
};
use fill::{Age, fill};
use own::Form;
use pgbench::Pgbench;
use result::{Report, Size};
use script::Script;
use site::{BenchDatabase, Lanes, Site};
use turns::{Arena, Contestant, How, Row};

/// Measures the PostgreSQL store against `pgbench`, which sends the same statements.
///
/// A server of its own is started and removed afterwards, with 256 MB of shared buffers, 4 GB of log
/// between checkpoints and `fsync`; load and server share this machine. A pair is a claim plus a completion
/// with an answer of 500 bytes, both committed and synced. Everybody takes turns on the same tables, each
/// with new connections and two seconds to warm up; ratios are medians of the rounds' ratios. Figures of
/// different runs must not be compared. The result is Markdown on standard output; a missed figure is not
/// an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench postgres                                     about 12 minutes\n  \
    cargo xtask bench postgres --full                              with 1 M and 5 M records, about 25 minutes\n  \
    cargo xtask bench postgres --only pairs --rounds 1 --seconds 1 does it work? half a minute\n  \
    cargo xtask bench postgres --only pairs --fillfactor 70        an experiment: fuller pages\n  \
    cargo xtask bench postgres --full --date 2026-11-16 > result.md")]
pub(crate) struct Arguments {
    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Option<Vec<Part>>,

    /// The sizes that the figures are about: 1 M and 5 M records, 1 M expired ones
    #[arg(long)]
    full: bool,

    /// How often everybody gets a turn; medians count
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long each turn takes, without its warm-up, in whole seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,

    /// How many records two databases hold at first [default: 100k,500k; with --full 1M,5M]
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "COUNT,COUNT")]
    records: Option<Vec<Count>>,

    /// How many expired records are purged [default: 200k; with --full 1M]
    #[arg(long, value_name = "COUNT")]
    expired: Option<Count>,

    /// How full pages of records are filled by inserts, in percent [default: as the migrations say]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(10..=100))]
    fillfactor: Option<u8>,

    /// Settings of the server, as an experiment, like `enable_seqscan=off`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,

    /// Connections of the batched store for claims, and as many for all else [default: as it comes]
    #[arg(long, value_name = "COUNT")]
    lanes: Option<usize>,

    /// Changes in one statement of the batched store [default: as it comes]
    #[arg(long, value_name = "COUNT")]
    batch: Option<usize>,

    /// The gateway's program [default: `onceward` beside this program, which xtask builds]
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Claims and completions: one statement each, and batched.
    Pairs,
    /// The record in the user's own transaction.
    Commit,
    /// Pairs beside few and beside many records.
    Size,
    /// Deleting expired records.
    Purge,
    /// The gateway on PostgreSQL and on SQLite.
    Gateway,
}

/// Connections of `pgbench`; one of the numbers is its best.
const CLIENTS: [usize; 4] = [8, 16, 32, 64];

/// In flight where a statement makes one change, and where it makes many.
const SINGLE: [usize; 2] = [16, 64];
const BATCHED: [usize; 2] = [64, 256];

/// Connections of the business, and pairs in flight beside many records.
const OWN: [usize; 2] = [16, 64];
const BESIDE_RECORDS: usize = 64;

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&part))
    }

    fn records(&self) -> Vec<u64> {
        let given = self.records.as_ref();
        let given = given.map(|given| given.iter().map(|count| count.0.max(1)).collect());
        let usual = if self.full { [1_000_000, 5_000_000] } else { [100_000, 500_000] };
        given.unwrap_or_else(|| usual.to_vec())
    }

    fn expired(&self) -> u64 {
        let usual = if self.full { 1_000_000 } else { 200_000 };
        self.expired.map_or(usual, |count| count.0.max(1))
    }

    fn batched(&self) -> Lanes {
        Lanes { lanes: self.lanes, batch: self.batch }
    }

    /// Who takes turns on the tables that are empty at first.
    fn contestants(&self) -> (Vec<Contestant>, Vec<Contestant>) {
        let who = |words, how| move |in_flight| Contestant { words, how, in_flight };
        let pgbench = |words, script| who(words, How::Pgbench(script));
        let single = |in_flight| {
            let lanes = Lanes { lanes: Some(in_flight / 2), batch: Some(1) };
            Contestant { words: "store, one statement each", how: How::Store(lanes), in_flight }
        };
        let (mut pairs, mut own) = (Vec::new(), Vec::new());
        if self.has(Part::Pairs) {
            pairs.extend(CLIENTS.map(pgbench("pgbench", Script::Pair)));
            pairs.extend(SINGLE.map(single));
            pairs.extend(BATCHED.map(who("store, batched", How::Store(self.batched()))));
        }
        if self.has(Part::Commit) {
            own.extend(OWN.map(pgbench("pgbench, one transaction", Script::CommitOutcome)));
            own.extend(OWN.map(pgbench("pgbench, claim and transaction", Script::Apart)));
            own.extend(OWN.map(who("`commit`", How::Own(Form::Commit))));
            own.extend(OWN.map(who("one transaction", How::Own(Form::OneTransaction))));
        }
        (pairs, own)
    }
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Servers live where temporary files do.
    let machine = Machine::at(&std::env::temp_dir())?;
    let gateway = match arguments.has(Part::Gateway) {
        true => Some(gateway_program(arguments.gateway.as_deref())?),
        false => None,
    };
    let site = Site::start(&arguments.settings, arguments.fillfactor)?;
    let mut report = Report::new(&site, arguments.rounds, arguments.seconds);
    take_turns(arguments, &site, &mut report)?;
    if arguments.has(Part::Purge) {
        report.purge = Some(purge::run(&site, arguments.expired())?);
    }
    if let Some(program) = gateway {
        let (place, directory) = (site.database()?, store::directory(None)?);
        let turn = Duration::from_secs(arguments.seconds.into());
        let rounds = arguments.rounds;
        report.gateway = on_both_stores(&program, directory.path(), place.url(), rounds, turn)?;
        directory.close()?;
    }
    drop(site);
    report.print(&machine, arguments.date.as_deref());
    Ok(())
}

/// Everything that is compared takes its turns in the same rounds.
fn take_turns(arguments: &Arguments, site: &Site, report: &mut Report) -> Result<(), Failure> {
    let (pairs, own) = arguments.contestants();
    let sizes = if arguments.has(Part::Size) { arguments.records() } else { Vec::new() };
    if pairs.is_empty() && own.is_empty() && sizes.is_empty() {
        return Ok(());
    }
    let place = site.database()?;
    let pgbench = site.pgbench(&place)?;
    report.body_bytes = Some(pgbench.sample.sizes());
    let mut filled = Vec::new();
    for &records in &sizes {
        let place = site.database()?;
        fill(site, &place, &pgbench.sample, records, Age::Fresh)?;
        filled.push(place);
    }
    let arena = arena(site, &place, &pgbench, arguments.seconds);
    let arenas: Vec<_> =
        filled.iter().map(|place| self::arena(site, place, &pgbench, arguments.seconds)).collect();
    let beside = Contestant {
        words: "store, batched",
        how: How::Store(arguments.batched()),
        in_flight: BESIDE_RECORDS,
    };
    let (pair_count, own_count) = (pairs.len(), own.len());
    let mut rows: Vec<_> =
        pairs.into_iter().chain(own).map(|who| (&arena, Row::new(who))).collect();
    rows.extend(arenas.iter().map(|arena| (arena, Row::new(beside))));
    report.others = turns::take("turns", arguments.rounds, &mut rows)?;
    let mut rows = rows.into_iter().map(|(_, row)| row);
    report.pairs = rows.by_ref().take(pair_count).collect();
    report.own = rows.by_ref().take(own_count).collect();
    report.sizes =
        sizes.into_iter().zip(rows).map(|(records, row)| Size { records, row }).collect();
    report.bytes_each = place.bytes_each()?;
    Ok(())
}

fn arena<'a>(
    site: &'a Site,
    place: &'a BenchDatabase,
    pgbench: &'a Pgbench,
    seconds: u32,
) -> Arena<'a> {
    Arena { site, place, pgbench, seconds, numbers: Arc::new(AtomicU64::new(0)) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(words: &[&str]) -> Arguments {
        Line::try_parse_from([&["postgres"], words].concat()).unwrap().arguments
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = parsed(&[]);
        assert!(Part::value_variants().iter().all(|&part| all.has(part)));
        assert_eq!((all.records(), all.expired()), (vec![100_000, 500_000], 200_000));
        let some = parsed(&["--only", "pairs,purge", "--full", "--records", "1k,2k"]);
        assert!(some.has(Part::Pairs) && some.has(Part::Purge) && !some.has(Part::Commit));
        assert_eq!((some.records(), some.expired()), (vec![1000, 2000], 1_000_000));
    }

    #[test]
    fn one_statement_each_has_as_many_connections_as_pgbench() {
        let (pairs, own) = parsed(&["--only", "pairs"]).contestants();
        let single = pairs.iter().filter(|who| who.words == "store, one statement each");
        let single: Vec<_> = single.map(|who| (who.in_flight, who.connections())).collect();
        assert_eq!(single, [(16, 16), (64, 64)]);
        assert!(own.is_empty());
    }
}
