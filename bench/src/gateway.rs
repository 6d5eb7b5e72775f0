//! `gateway`: the plan of a run, from the processes to the report.

mod bare;
mod beside;
mod client;
pub(crate) mod exchange;
pub(crate) mod install;
mod peers;
mod result;
mod subjects;
mod upstream;

pub(crate) use peers::{EXPRESS_ALWAYS, EXPRESS_EVERYSEC};
pub(crate) use subjects::{
    ON_POSTGRES, ON_REDIS_ALWAYS, ON_REDIS_EVERYSEC, ON_SQLITE, gateway_program,
};

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum as _};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Failure,
    machine::Machine,
    measure::{Others, quantile},
    options::seconds,
    progress::Progress,
    store,
};
use client::{CONNECTIONS, Keys, Window};
use exchange::Kind;
use result::{Report, Turn};
use subjects::{Name, Subject};

pub(crate) use beside::{BesideRedis, Urls, on_both_stores, on_redis};
pub(crate) use result::{Line, ratio};

pub(crate) use bare::{BareArguments, be_the_bare_proxy};
pub(crate) use upstream::{UpstreamArguments, be_the_upstream};

/// Measures `onceward serve` against bare proxies, and against others that know keys.
///
/// Each gets the same requests over 64 connections in turns, in front of the same small service; load,
/// service and proxy share this machine. Every answer is looked at, and the service counts how often it
/// ran: a wrong answer or a second execution breaks the run off. nginx and Redis are installed from the
/// distribution, the others with npm below `target/`, if they are absent; what cannot be had is skipped
/// and named. The result is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench gateway                                  everything, about 4 minutes\n  \
    cargo xtask bench gateway --quick --only onceward,hyper    does it work? a few seconds\n  \
    cargo xtask bench gateway --only onceward,hyper,nginx      without what npm installs\n  \
    cargo xtask bench gateway --only onceward,telemetry        what metrics, logs and traces cost\n  \
    cargo xtask bench gateway --date 2026-11-16 > result.md    ready to paste")]
pub(crate) struct Arguments {
    /// Short turns and few of them: proves that it works and little else
    #[arg(long)]
    quick: bool,

    /// Who is measured [default: all but telemetry]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SUBJECTS")]
    only: Option<Vec<Name>>,

    /// How often everybody gets a turn; medians count [default: 9]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// How long each turn takes, without its warm-up [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// The gateway's program [default: `onceward` beside this program, which xtask builds]
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,

    /// Where files go, in a directory on a disk that is removed afterwards
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

/// How long everybody is asked before a turn counts, so that all connections are made.
const WARM_UP: Duration = Duration::from_millis(250);

/// Measures what the arguments ask for and prints the result.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = store::directory(arguments.dir.as_deref())?;
    let machine = Machine::at(directory.path())?;
    let report = upstream::runtime()?.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            report = measure(arguments, directory.path()) => report,
            _ = interrupt.recv() => Err("it was interrupted".into()),
            _ = terminate.recv() => Err("it was told to end".into()),
        }
    })?;
    directory.close()?;
    report.print(&machine, arguments.date.as_deref());
    Ok(())
}

async fn measure(arguments: &Arguments, directory: &Path) -> Result<Report, Failure> {
    let (rounds, turn) = match arguments.quick {
        true => (2, Duration::from_millis(300)),
        false => (9, Duration::from_secs(1)),
    };
    let rounds = arguments.rounds.unwrap_or(rounds);
    let turn = arguments.seconds.unwrap_or(turn);
    let only = arguments.only.as_deref().unwrap_or(&Name::DEFAULT);
    let mut report = Report { rounds, turn, ..Report::default() };

    let mut subjects = start(only, arguments.gateway.as_deref(), directory, &mut report).await?;
    let keys = Keys::new();
    for subject in subjects.iter().filter(|subject| subject.kinds.contains(&Kind::Replay)) {
        let storing = client::store_answers(subject.question(Kind::First), &keys);
        let stored = client::within(turn, storing).await;
        stored.map_err(|wrong| subject.blamed(Kind::First, &wrong))?;
    }
    report.lines = lines(&subjects, only);
    let total = u64::from(rounds) * report.lines.len() as u64;
    let mut progress = Progress::new("turns", total);
    let (others, started, used) = (Others::watch(), Instant::now(), used(&subjects));
    for round in 0..rounds {
        for index in 0..report.lines.len() {
            let line = &mut report.lines[index];
            let subject = &subjects[line.subject];
            let taken = take_turn(subject, line, &keys, turn).await;
            taken.map_err(|wrong| subject.blamed(line.kind, &wrong))?;
            progress.at(u64::from(round) * report.lines.len() as u64 + index as u64 + 1);
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let own = self::used(&subjects).zip(used).map(|(now, before)| (now - before).as_secs_f64());
    let own = own.map(|own| own / started.elapsed().as_secs_f64() / cores);
    report.others = others.share().zip(own).map(|(share, own)| (share - own).max(0.0));
    progress.end();
    report.versions = subjects.iter_mut().filter_map(|subject| subject.version.take()).collect();
    report.versions.dedup();
    Ok(report)
}

/// User and system time of all processes.
fn used(subjects: &[Subject]) -> Option<Duration> {
    subjects.iter().map(Subject::cpu_with_beside).sum()
}

/// Starts all that can be had; what cannot is noted with its reason.
async fn start(
    only: &[Name],
    gateway: Option<&Path>,
    directory: &Path,
    report: &mut Report,
) -> Result<Vec<Subject>, Failure> {
    let upstream = subjects::upstream(directory)?;
    let behind = upstream.address;
    let mut subjects = vec![upstream];
    for &name in Name::value_variants().iter().filter(|name| only.contains(name)) {
        let started = match name {
            Name::Upstream => continue,
            Name::Hyper => vec![subjects::hyper(directory, behind)?],
            Name::Onceward => {
                let program = gateway_program(gateway)?;
                vec![subjects::onceward(directory, &program, behind)?]
            }
            Name::Telemetry => {
                let program = gateway_program(gateway)?;
                subjects::telemetry(directory, &program, behind)?.into()
            }
            Name::Nginx => report.or_skipped("nginx", subjects::nginx(directory, behind)),
            Name::Restate => {
                report.or_skipped("Restate", peers::restate(directory).await.map(|one| [one]))
            }
            Name::Express => {
                let express = peers::express(directory).map(|one| [one]);
                report.or_skipped("express-idempotency", express)
            }
        };
        subjects.extend(started);
    }
    Ok(subjects)
}

/// A line for everybody and everything that is asked.
fn lines(subjects: &[Subject], only: &[Name]) -> Vec<Line> {
    let measured = subjects.iter().enumerate().filter(|(_, subject)| only.contains(&subject.name));
    let lines = measured.flat_map(|(index, subject)| {
        let line = move |&kind| Line::new(index, subject.words, kind);
        subject.kinds.iter().map(line)
    });
    lines.collect()
}

/// One turn of one subject, with the proof that it did what it said.
async fn take_turn(
    subject: &Subject,
    line: &mut Line,
    keys: &Keys,
    length: Duration,
) -> Result<(), Failure> {
    let count = async |counter| match counter {
        Some(counter) => client::executions(counter).await.map(Some),
        None => Ok(None),
    };
    let before = count(subject.counter).await?;
    let opens = Instant::now() + WARM_UP;
    let window = Window { opens, closes: opens + length };
    let asking = client::ask(subject.question(line.kind), keys, CONNECTIONS, window);
    let watching = async {
        tokio::time::sleep_until(window.opens.into()).await;
        let (opened, before) = (Instant::now(), subject.cpu());
        tokio::time::sleep_until(window.closes.into()).await;
        Ok::<_, Failure>((opened.elapsed(), subject.cpu().zip(before)))
    };
    let asked = async { tokio::try_join!(asking, watching) };
    let (answered, (watched, cpu)) = client::within(WARM_UP + length, asked).await?;
    let after = count(subject.counter).await?;
    line.answered += answered.all;
    if let Some((before, after)) = before.zip(after) {
        let expected = if line.kind == Kind::Replay { 0 } else { answered.all };
        if after - before != expected {
            return Err(format!(
                "{} requests were answered, but the service ran {} times",
                answered.all,
                after - before
            )
            .into());
        }
        *line.executed.get_or_insert(0) += after - before;
    }
    let rate = answered.took.len() as f64 / length.as_secs_f64();
    let cpu = cpu.map(|(now, before)| now.saturating_sub(before).as_secs_f64());
    line.turns.push(Turn {
        rate,
        p50: quantile(&answered.took, 0.5),
        p99: quantile(&answered.took, 0.99),
        cpu_micros: cpu.map(|cpu| cpu / watched.as_secs_f64() / rate * 1e6),
    });
    rest(subject).await;
    Ok(())
}

/// Waits until a subject has done what it put off, so that the next one does not pay for it.
async fn rest(subject: &Subject) {
    const QUIET: Duration = Duration::from_millis(60);
    const AT_MOST: Duration = Duration::from_secs(2);
    const IDLE_CPU: Duration = Duration::from_millis(20);

    let started = Instant::now();
    let mut before = subject.cpu_with_beside();
    while started.elapsed() < AT_MOST {
        tokio::time::sleep(QUIET).await;
        let now = subject.cpu_with_beside();
        match now.zip(before) {
            Some((now, before)) if now.saturating_sub(before) >= IDLE_CPU => {}
            _ => return,
        }
        before = now;
    }
}
