//! `onceward doctor`: says what a configuration and its store really promise, and what is wrong.

mod access;
mod finding;
mod promise;
mod reach;
mod report;
mod routes;
mod store;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use crate::{
    check,
    config::{Config, Overrides, Sources},
};
use finding::Findings;
use report::Report;

/// Says which guarantee each route really has, and what endangers it.
///
/// The store is looked into and nothing in it is changed or created; a gateway may be running on it. A
/// write-ahead log that a killed gateway left behind is put into the file and removed, as SQLite does for
/// everybody who opens it. Run it as the user and with the environment of the gateway: permissions, tokens and
/// `ONCEWARD_…` variables count as they do there.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward doctor                               ./onceward.toml and its store
  onceward doctor --config gateway.toml --json  the same for machines, as in a deployment
  onceward doctor --offline                     does not try to reach the upstream

It ends with 0 if there is no problem, also with warnings and notes, and with 1 if there is one or the
configuration is wrong.")]
pub(crate) struct Options {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "onceward.toml")]
    config: PathBuf,
    /// Writes one JSON document to standard output.
    #[arg(long)]
    json: bool,
    /// Connects to nothing.
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let file = options.config.display().to_string();
    let sources = Sources::gather(Some(&options.config), Overrides::default());
    let (written, is_healthy) = match sources.and_then(|sources| Config::load(&sources)) {
        Err(mistakes) if options.json => {
            (writeln!(io::stdout(), "{:#}", report::refused(&file, &mistakes)), false)
        }
        Err(mistakes) => (check::refusal(&mut io::stderr().lock(), &file, &mistakes), false),
        Ok(config) => {
            let report = examine(&options.config, config, options.offline);
            let written = match options.json {
                true => writeln!(io::stdout(), "{:#}", report.document()),
                false => writeln!(io::stdout(), "{report}"),
            };
            (written, report.is_healthy())
        }
    };
    match (written, is_healthy) {
        (Ok(()), true) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn examine(file: &Path, config: Config, is_offline: bool) -> Report {
    let mut findings = Findings::default();
    let store = store::examine(&config, file, &mut findings);
    store::check_guarantee(&config, store.as_ref(), &mut findings);
    access::examine(&config, &mut findings);
    for route in &config.routes {
        routes::examine(route, &mut findings);
    }
    if !is_offline {
        reach::examine(&config, &mut findings);
    }
    Report { file: file.display().to_string(), config, store, findings: findings.into_sorted() }
}
