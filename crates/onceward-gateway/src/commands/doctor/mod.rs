//! `onceward doctor`: says what a configuration and its store really promise, and what is wrong.

mod access;
mod clock;
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

use super::{arguments, check, keys::DEFAULT_TOKEN};
use crate::config::{Config, USUAL_FILE};
use finding::Findings;
use report::Report;

/// Says which guarantee each route really has, and what endangers it.
///
/// It looks into the store, and changes and creates nothing in it; a gateway may be running on it. SQLite
/// puts a write-ahead log that a killed gateway left behind into the file and removes it, as for every
/// process that opens it. Run it as the user and with the environment of the gateway: permissions, tokens and
/// `ONCEWARD_…` variables count as they do there.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward doctor                               ./onceward.toml and its store
  onceward doctor --config gateway.toml --json  the same for machines, as in a deployment
  onceward doctor --offline                     connects to nothing, neither upstream nor gateway
  onceward doctor --clock-is-right --reason \"a snapshot was restored\"
                                                the running gateway trusts its clock again

It ends with 0 if there is no problem, also with warnings and notes, and with 1 if there is one or the
configuration is wrong.")]
pub(crate) struct Options {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = USUAL_FILE)]
    config: PathBuf,
    /// Writes one JSON document to standard output.
    #[arg(long)]
    json: bool,
    /// Connects to nothing.
    #[arg(long)]
    offline: bool,
    /// Makes the running gateway trust its store's clock again after a jump, and examines nothing.
    ///
    /// Keys that are over by this clock may run again after that: look at the clock first. It counts for the
    /// one gateway that is asked, and needs a token with the role `purge`.
    #[arg(long, requires = "reason", conflicts_with = "offline")]
    clock_is_right: bool,
    /// Why the clock is right; the gateway keeps it in the trail with your name.
    #[arg(long, value_name = "TEXT", requires = "clock_is_right")]
    reason: Option<String>,
    /// The operators' listener of the running gateway, as `http://127.0.0.1:8081` [default: `admin` of the
    /// configuration].
    #[arg(long, value_name = "URL", conflicts_with = "offline")]
    admin: Option<String>,
    /// The environment variable that holds the token for it; if it is not set, one of the tokens that the
    /// configuration names.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TOKEN)]
    token_env: String,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(reason) = options.reason.as_deref().filter(|_| options.clock_is_right) {
        return clock::trust(options, reason);
    }
    let file = options.config.display().to_string();
    let (written, is_healthy) = match arguments::load(&options.config) {
        Err(mistakes) if options.json => {
            (writeln!(io::stdout(), "{:#}", report::refused(&file, &mistakes)), false)
        }
        Err(mistakes) => (check::refusal(&mut io::stderr().lock(), &file, &mistakes), false),
        Ok(config) => {
            let report = examine(options, config);
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

fn examine(options: &Options, config: Config) -> Report {
    let file: &Path = &options.config;
    let mut findings = Findings::default();
    let store = store::examine(&config, file, &mut findings);
    store::check_guarantee(&config, store.as_ref(), &mut findings);
    access::examine(&config, &mut findings);
    for route in &config.routes {
        routes::examine(route, config.admin.is_some(), &mut findings);
    }
    if !options.offline {
        reach::examine(&config, &mut findings);
        if config.serves {
            clock::examine(options, &config, &mut findings);
        }
    }
    Report { file: file.display().to_string(), config, store, findings: findings.into_sorted() }
}
