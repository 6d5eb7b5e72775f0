//! `messages`: the plan of a run, from a new server to the report.

mod conditions;
mod enqueue;
mod latency;
mod own;
mod peers;
mod relay;
mod result;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::{
    Failure,
    machine::Machine,
    measure::Others,
    options::{Count, seconds},
    postgres::site::Site,
    store,
};
use peers::{Peer, PeerName};
use result::Report;

/// Measures the outbox and its relay on PostgreSQL, beside River, graphile-worker and pg-boss.
///
/// A server of its own is started and removed afterwards, with 256 MB of shared buffers, 4 GB of log
/// between checkpoints and `fsync`; load and server share this machine. Everybody works in a database of
/// its own, and they take turns; ratios are medians of the rounds' ratios. Figures of different runs must
/// not be compared. Peers are installed from npm, and built with Go, below `target/`; one that cannot be
/// had is named and skipped. The result is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench messages                             about 3 minutes\n  \
    cargo xtask bench messages --full                      a million messages, a snapshot of 3 minutes\n  \
    cargo xtask bench messages --only relay,latency --peers graphile-worker\n  \
    cargo xtask bench messages --peers none --date 2026-11-19 > result.md")]
pub(crate) struct Arguments {
    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Option<Vec<Part>>,

    /// Who is measured beside us: river, graphile-worker, pg-boss, or none [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PEERS", value_parser = peer)]
    peers: Option<Vec<Beside>>,

    /// The sizes that the figures are about
    #[arg(long)]
    full: bool,

    /// How often everybody gets a turn; medians count
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long turns take that are not as long as their backlog
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// How many messages are in a backlog
    #[arg(long, value_name = "COUNT", default_value = "20k")]
    messages: Count,

    /// For how long an old snapshot is held [default: 20; with --full 180]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    hold: Option<Duration>,

    /// How many messages were delivered before, and stay [default: 100k; with --full 1M]
    #[arg(long, value_name = "COUNT")]
    delivered: Option<Count>,

    /// How many messages one lane has [default: 100k; with --full 1M]
    #[arg(long, value_name = "COUNT")]
    backlog: Option<Count>,

    /// Where peers run, in a directory that is removed afterwards
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A backlog, delivered to a sink that does nothing.
    Relay,
    /// A transaction of one insert, with and without a message.
    Enqueue,
    /// From commit to delivery, at a low rate.
    Latency,
    /// A backlog beside an old snapshot.
    Snapshot,
    /// A backlog behind messages that were delivered.
    Delivered,
    /// A long backlog in one lane.
    Lane,
}

/// One word of `--peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    None,
    Peer(PeerName),
}

fn peer(word: &str) -> Result<Beside, String> {
    match word {
        "none" => Ok(Beside::None),
        word => PeerName::from_str(word, false).map(Beside::Peer),
    }
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&part))
    }

    fn peers(&self) -> Vec<PeerName> {
        let given = self.peers.as_ref().map(|given| {
            let peers = given.iter().filter_map(|beside| match beside {
                Beside::Peer(name) => Some(*name),
                Beside::None => None,
            });
            peers.collect()
        });
        given.unwrap_or_else(|| PeerName::value_variants().to_vec())
    }

    fn many(&self, given: Option<Count>) -> u64 {
        let usual = if self.full { 1_000_000 } else { 100_000 };
        given.map_or(usual, |count| count.0.max(1))
    }

    fn hold(&self) -> Duration {
        self.hold.unwrap_or(Duration::from_secs(if self.full { 180 } else { 20 }))
    }
}

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Servers live where temporary files do.
    let machine = Machine::at(&std::env::temp_dir())?;
    let directory = store::directory(arguments.dir.as_deref())?;
    let site = Site::start(&[], None)?;
    let mut report = Report::new(&site, arguments.rounds);
    let messages = arguments.messages.0.max(1);
    let rounds = arguments.rounds;

    let peers = peers(arguments, &site, directory.path(), &mut report)?;
    let watch = Others::watch();
    std::thread::sleep(Duration::from_millis(500));
    report.others = watch.share();
    if arguments.has(Part::Relay) {
        report.relay = Some(relay::run(&site, &peers, rounds, messages)?);
    }
    if arguments.has(Part::Enqueue) {
        report.enqueue = enqueue::run(&site, &peers, rounds, arguments.seconds)?;
    }
    if arguments.has(Part::Latency) {
        report.latency = latency::run(&site, &peers, rounds, arguments.seconds)?;
    }
    drop(peers);
    if arguments.has(Part::Snapshot) {
        report.snapshot = Some(conditions::old_snapshot(&site, arguments.hold(), messages)?);
    }
    if arguments.has(Part::Delivered) {
        let delivered = arguments.many(arguments.delivered);
        report.delivered = Some(conditions::delivered(&site, rounds, delivered, messages)?);
    }
    if arguments.has(Part::Lane) {
        let backlog = arguments.many(arguments.backlog);
        report.lane = Some(conditions::one_lane(&site, rounds, backlog, (messages / 2).max(1))?);
    }
    drop(site);
    directory.close()?;
    report.print(&machine, arguments.date.as_deref());
    Ok(())
}

/// Starts the peers that can be had; the report names the others.
fn peers(
    arguments: &Arguments,
    site: &Site,
    directory: &Path,
    report: &mut Report,
) -> Result<Vec<Peer>, Failure> {
    let is_beside = [Part::Relay, Part::Enqueue, Part::Latency].map(|part| arguments.has(part));
    if is_beside == [false; 3] {
        return Ok(Vec::new());
    }
    let mut peers = Vec::new();
    for name in arguments.peers() {
        match Peer::start(name, site.database()?, directory) {
            Ok(peer) => peers.push(peer),
            Err(reason) => {
                eprintln!("{name} is skipped: {reason}");
                report.absent.push((name, reason.to_string()));
            }
        }
    }
    Ok(peers)
}

/// The clock that processes of one machine share.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanos).unwrap_or_default()
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
        Line::try_parse_from([&["messages"], words].concat()).unwrap().arguments
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = parsed(&[]);
        assert!(Part::value_variants().iter().all(|&part| all.has(part)));
        assert_eq!(all.peers(), PeerName::value_variants());
        assert_eq!((all.many(None), all.hold()), (100_000, Duration::from_secs(20)));
        let some = parsed(&["--full", "--only", "relay", "--peers", "none", "--backlog", "2k"]);
        assert!(some.has(Part::Relay) && !some.has(Part::Lane));
        assert_eq!(
            (some.peers(), some.many(None), some.many(some.backlog)),
            (vec![], 1_000_000, 2_000)
        );
        assert_eq!(
            parsed(&["--peers", "river,pg-boss"]).peers(),
            [PeerName::River, PeerName::PgBoss]
        );
    }
}
