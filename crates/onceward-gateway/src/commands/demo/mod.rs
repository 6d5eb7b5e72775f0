//! `onceward demo`: two gateways before a flaky payments API, a bad network, and not one charge too
//! many.

mod clients;
mod gateways;
mod kill;
mod ledger;
mod network;
mod port;
mod reconciled;
mod records;
mod screen;
mod service;
mod storm;
mod summary;
mod tally;
mod try_it;
mod upstream;
mod verify;

use std::{
    future::Future,
    io::{self, Write as _},
    pin::{Pin, pin},
    process::ExitCode,
};

use clap::{Args, value_parser};
use tokio::signal::unix::{SignalKind, signal};

use super::terminal::{self, BoxError};
use reconciled::Reconciled;
use screen::{Screen, Unwritable};
use service::Service;
use storm::{Storm, StormEnd};
use summary::{KillReport, Setting, Summary};

const STOPPED: &str =
    "stopped before the end: the demo has counted nothing, and removes the records";

/// Shows it: two gateways before a flaky API, clients on a bad network, one charge for every tap.
///
/// Starts a sample payments API that recognises no repeats, and two gateways (`onceward serve`)
/// before it, on free ports of this computer, their records in one SQLite file in a temporary
/// directory or on a Redis server. Clients tap "Pay" and lose answers, time out, tap twice and restart, on real sockets.
/// The API is slow, unready or away at times, or breaks off; half-way one gateway is killed with
/// SIGKILL and started again. At the end the demo counts every charge; anything but one for each tap
/// makes the command fail. Then everything stays up for you to try, until Ctrl-C.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward demo                watch it, then try it with curl
  onceward demo --once         watch it and leave nothing behind
  onceward demo --unprotected  what happens without Onceward
  onceward demo --once --json  the numbers for a program
  onceward demo --store redis://127.0.0.1:6379
                               the same with the records on a Redis or Valkey server")]
pub(crate) struct Options {
    /// Stops after the summary instead of serving on.
    #[arg(long)]
    once: bool,
    /// How long the clients tap.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// How many clients tap at the same time.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = value_parser!(u16).range(1..=200))]
    clients: u16,
    /// Which mischief the network makes [default: a new one each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The same API without Onceward: people are charged twice, and the command fails. Implies
    /// `--once`.
    #[arg(long)]
    unprotected: bool,
    /// Keeps the records on this Redis or Valkey server, under a prefix of the demo's own, and removes them at the
    /// end [default: a SQLite file in a temporary directory].
    #[arg(long, value_name = "URL", conflicts_with = "unprotected")]
    store: Option<String>,
    /// Prints the numbers as JSON; what is for people goes to standard error.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    terminal::run(show(options))
}

async fn show(options: &Options) -> Result<ExitCode, BoxError> {
    let stopped = pin!(stopped()?);
    let mut screen = Screen::open(options.json);
    let setting = Setting {
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        protected: !options.unprotected,
    };
    // Not to be left half-way: it takes a moment, and an interruption is noticed after it.
    let mut service = Service::start(setting, options.store.as_deref()).await?;
    let played = play(options, setting, &mut service, &mut screen, stopped).await;
    // Whatever has happened: no gateway and no file stays.
    let complaints = service.stop().await;
    let Played { code, was_tried } = played?;
    if !complaints.is_empty() {
        return Err(complaints.join("\n").into());
    }
    if was_tried {
        let end = "Stopped. Everything that ran is settled, and the records are removed.";
        screen.line(format_args!("\n{end}")).map_err(Unwritable)?;
    }
    Ok(code)
}

struct Played {
    code: ExitCode,
    was_tried: bool,
}

async fn play(
    options: &Options,
    setting: Setting,
    service: &mut Service,
    screen: &mut Screen,
    mut stopped: Pin<&mut impl Future<Output = ()>>,
) -> Result<Played, BoxError> {
    open(screen, service, options).map_err(Unwritable)?;
    let storm = Storm::new(options, setting.seed, service);
    let weathered = tokio::select! {
        end = storm.weather(service.gateways.as_mut(), screen) => Some(end?),
        () = &mut stopped => None,
    };
    screen.end_progress().map_err(Unwritable)?;
    let StormEnd { receipts, kill } = weathered.ok_or(STOPPED)?;
    service.upstream.calm_down();
    service.quiet().await;
    let kill_report = match (kill, &mut service.gateways) {
        (Some(kill), Some(gateways)) => {
            if let Some(name) = gateways.fallen() {
                return Err(
                    format!("gateway {name} has ended by itself, which must not happen").into()
                );
            }
            let asked = service.upstream.ledger.asked();
            let reconciled =
                Reconciled::read(&*gateways.records.open().await?, &asked, &kill).await?;
            Some(KillReport { kill, reconciled })
        }
        _ => None,
    };
    let findings = verify::verify(&receipts, &service.ledger().charged());
    let unluckiest = storm.tally().unluckiest_story();
    let numbers = storm.tally().numbers(service.ledger());
    let summary = Summary { numbers, setting, kill_report, findings, unluckiest };
    summary.show(screen).map_err(Unwritable)?;
    if options.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&summary)?).map_err(Unwritable)?;
    }
    let code = summary.exit_code();
    match &service.gateways {
        Some(gateways) if !options.once && summary.is_as_it_should_be() => {
            service.upstream.is_back().await;
            try_it::show(screen, gateways).map_err(Unwritable)?;
            stopped.await;
            Ok(Played { code, was_tried: true })
        }
        _ => Ok(Played { code, was_tried: false }),
    }
}

fn open(screen: &mut Screen, service: &Service, options: &Options) -> io::Result<()> {
    let Options { clients, seconds, .. } = options;
    let api = format!("A payments API on http://{}", service.upstream.address);
    let title = match &service.gateways {
        Some(gateways) => {
            let (a, b) = (gateways.address(0), gateways.address(1));
            let kind = gateways.records.kind();
            format!(
                "{api}, and two gateways before it on\n{kind}: A on http://{a}, B on http://{b}."
            )
        }
        None => format!("{api}, WITHOUT Onceward."),
    };
    let kill = if options.unprotected { "" } else { "Half-way gateway B is killed. " };
    screen.line(screen.strong(&title))?;
    screen.line(format_args!(
        "{clients} clients tap \"Pay\" for {seconds} s. The network cuts them off and loses answers;\n\
         people tap twice; phones restart. The API is slow, unready or away at times,\n\
         or breaks off. {kill}Each tap has one key,\n\
         and its client retries until it has an answer.\n"
    ))
}

/// Ends with Ctrl-C, or when the process is asked to terminate or loses its terminal; listens from now on.
fn stopped() -> io::Result<impl Future<Output = ()>> {
    let (stopped, mut hung_up) = (terminal::stopped()?, signal(SignalKind::hangup())?);
    Ok(async move {
        tokio::select! {
            () = stopped => {}
            _ = hung_up.recv() => {}
        }
    })
}
