//! `onceward simulate`: published studies of retries, run again with the code that ships.

mod agenda;
mod chart;
mod contention;
mod layers;
mod metastable;
mod ours;
mod outage;
mod peers;
mod policy;
mod random;
mod report;
mod row;
mod tail;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use super::terminal::{BoxError, ended, read_enough, refused, tell};
use row::{Findings, Row};

/// Runs published studies of retries again, with the code that ships beside others.
///
/// Clients, servers and the network are simulated; what decides about each attempt is the very code that
/// the library and the gateway use, and next to it the policies of Finagle, tower, the AWS SDKs, gRPC,
/// Brooker and tower-resilience, modelled after their source. A run takes seconds, needs nothing, and
/// gives the same numbers for the same seed.
#[derive(Args)]
#[command(after_help = "\
Scenarios:
  contention   many clients write one row; waits must spread        (AWS 2015)
  outage       a share of all attempts fails; retries add load      (Brooker 2022)
  metastable   a brown-out of ten seconds that may not end          (OSDI 2022)
  tail         few answers are very late; second requests help      (Tail at Scale 2013)
  layers       five services retry, one behind the other            (Builders' Library)

Examples:
  onceward simulate outage
  onceward simulate metastable --svg charts
  onceward simulate contention --seed 7 --json
  onceward simulate outage --attempts 3
  onceward simulate metastable --service-time")]
pub(crate) struct Options {
    scenario: Scenario,
    /// Other chance, other numbers; the same seed gives the same numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Attempts in all [default: those of the study; outage and metastable 4, layers 3].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10))]
    attempts: Option<u32>,
    /// metastable: the work itself takes the server's time, instead of the wait for its turn alone.
    #[arg(long)]
    service_time: bool,
    /// Prints the rows as JSON; what is for people goes to standard error.
    #[arg(long)]
    json: bool,
    /// Writes charts into this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    Contention,
    Outage,
    Metastable,
    Tail,
    Layers,
}

impl Scenario {
    fn run(self, setting: &mut Setting<'_>) -> Findings {
        match self {
            Self::Contention => contention::run(setting),
            Self::Outage => outage::run(setting),
            Self::Metastable => metastable::run(setting),
            Self::Tail => tail::run(setting),
            Self::Layers => layers::run(setting),
        }
    }

    fn has_attempts(self) -> bool {
        !matches!(self, Self::Contention | Self::Tail)
    }
}

struct Setting<'a> {
    seed: u64,
    attempts: Option<u32>,
    service_time: bool,
    progress: &'a mut dyn FnMut(&str),
}

impl Setting<'_> {
    fn progress(&mut self, policy: &str) {
        (self.progress)(policy);
    }
}

#[derive(Serialize)]
struct Document<'a> {
    scenario: Scenario,
    seed: u64,
    rows: &'a [Row],
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let scenario = options.scenario;
    if options.attempts.is_some() && !scenario.has_attempts() {
        return refused(&"the study gives the attempts of this scenario: leave --attempts out", 2);
    }
    if options.service_time && scenario != Scenario::Metastable {
        return refused(&"only metastable has a server that works: leave --service-time out", 2);
    }
    let began = Instant::now();
    let mut shown = began;
    let mut progress = |policy: &str| {
        if shown.elapsed() >= Duration::from_secs(2) {
            shown = Instant::now();
            tell(format_args!("{policy}, {} s so far", began.elapsed().as_secs()));
        }
    };
    let mut setting = Setting {
        seed: options.seed,
        attempts: options.attempts,
        service_time: options.service_time,
        progress: &mut progress,
    };
    let findings = scenario.run(&mut setting);
    let written = read_enough(show(options, &findings));
    ended(written.map(|()| ExitCode::SUCCESS).map_err(BoxError::from))
}

fn show(options: &Options, findings: &Findings) -> io::Result<()> {
    let words = report::words(options, &findings.rows);
    let mut out = io::stdout().lock();
    if options.json {
        io::stderr().write_all(words.as_bytes())?;
        let (scenario, seed) = (options.scenario, options.seed);
        serde_json::to_writer_pretty(&mut out, &Document { scenario, seed, rows: &findings.rows })?;
        writeln!(out)?;
    } else {
        out.write_all(words.as_bytes())?;
    }
    out.flush()?;
    match &options.svg {
        Some(directory) => draw(directory, findings),
        None => Ok(()),
    }
}

fn draw(directory: &Path, findings: &Findings) -> io::Result<()> {
    let explained = |path: &Path, error: &io::Error| {
        let (kind, name) = (error.kind(), path.display());
        let advice = "no chart is there; give another directory";
        io::Error::new(kind, format!("{name} was not written ({error}): {advice}"))
    };
    fs::create_dir_all(directory).map_err(|error| explained(directory, &error))?;
    for chart in &findings.charts {
        let path = directory.join(format!("{}.svg", chart.file));
        fs::write(&path, chart.svg()).map_err(|error| explained(&path, &error))?;
        tell(format_args!("wrote {}", path.display()));
    }
    Ok(())
}
