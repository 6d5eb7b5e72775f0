//! `onceward demo`: a payments API, a bad network, and not one charge too many.

mod clients;
mod network;
mod payments;
mod screen;
mod service;
mod storm;
mod summary;
mod tally;
mod try_it;
mod verify;

use std::{
    error::Error,
    future::Future,
    io::{self, Write as _},
    pin::pin,
    process::ExitCode,
};

use clap::{Args, value_parser};
use tokio::signal;

use screen::{Screen, Unwritable};
use service::Service;
use storm::Storm;
use summary::{Setting, Summary};

/// Shows it: a payments API, clients that retry on a bad network, and one charge for every tap.
///
/// Starts a sample API on a free port of this computer, its records in an SQLite file in a
/// temporary directory. Clients tap "Pay" and lose answers, time out, tap twice and restart, on
/// real sockets. At the end every charge is counted; anything but one for each tap makes the command
/// fail. Then the API stays up for you to try, until Ctrl-C.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward demo                watch it, then try it with curl
  onceward demo --once         watch it and leave nothing behind
  onceward demo --unprotected  what happens without Onceward
  onceward demo --once --json  the numbers for a program")]
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
    /// Which mischief the network makes; a new one each time if not said.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The same API without Onceward: people are charged twice, and the command fails. Implies
    /// `--once`.
    #[arg(long)]
    unprotected: bool,
    /// Prints the numbers as JSON; what is for people goes to standard error.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let shown = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(show(options)),
        Err(error) => Err(error.into()),
    };
    shown.unwrap_or_else(|error| {
        // Standard error may be closed as well; then there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {error}");
        ExitCode::FAILURE
    })
}

async fn show(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let mut stopped = pin!(stopped()?);
    let mut screen = if options.json { Screen::stderr() } else { Screen::stdout() };
    let setting = Setting {
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        protected: !options.unprotected,
    };
    let service = Service::start(setting).await?;
    open(&mut screen, &service, options).map_err(Unwritable)?;

    let storm = Storm::new(options, setting.seed, &service);
    let weathered = tokio::select! {
        receipts = storm.weather(&mut screen) => Some(receipts?),
        () = &mut stopped => None,
    };
    screen.end_progress().map_err(Unwritable)?;
    let Some(receipts) = weathered else {
        service.stop().await;
        return Err("stopped before the end: nothing was counted; the records are removed".into());
    };
    service.quiet().await;
    let findings = verify::verify(&receipts, &service.payments.ledger());
    let summary = Summary::of(storm.tally(), &service.payments, setting, findings);
    summary.show(&mut screen).map_err(Unwritable)?;
    if options.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&summary)?).map_err(Unwritable)?;
    }
    if options.once || options.unprotected || !summary.is_as_it_should_be() {
        service.stop().await;
        return Ok(summary.exit_code());
    }
    try_it::show(&mut screen, &service).map_err(Unwritable)?;
    stopped.await;
    let end = match service.stop().await {
        0 => "Stopped. Everything that ran is settled, and the records are removed.".to_owned(),
        unsettled => format!("Stopped. {unsettled} executions could not be settled in time."),
    };
    screen.line(format_args!("\n{end}")).map_err(Unwritable)?;
    Ok(summary.exit_code())
}

fn open(screen: &mut Screen, service: &Service, options: &Options) -> io::Result<()> {
    let Options { clients, seconds, .. } = options;
    let layer = if options.unprotected { "WITHOUT Onceward" } else { "Onceward on SQLite" };
    let title = format!("A payments API on http://{}, {layer}.", service.address);
    screen.line(screen.strong(&title))?;
    screen.line(format_args!(
        "{clients} clients tap \"Pay\" for {seconds} s. The network cuts them off and loses answers;\n\
         people tap twice; phones restart. Each tap has one key, and its client\n\
         retries until it has an answer.\n"
    ))
}

/// Ends with Ctrl-C or when the process is asked to terminate; listens from now on.
#[cfg(unix)]
fn stopped() -> io::Result<impl Future<Output = ()>> {
    use signal::unix::{SignalKind, signal};
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stopped() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(signal::ctrl_c().await) })
}
