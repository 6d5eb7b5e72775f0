//! `onceward keys`: find operations and repair them, through the operators' listener or on the store
//! itself.

mod admin_client;
mod list;
mod repair;
mod table;
mod watch;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;

use super::terminal::{self, BoxError};
use crate::config;
pub(crate) use admin_client::{AdminClient, DEFAULT_TOKEN, user};
pub(super) use table::{seconds, text};

/// Finds operations and repairs them.
///
/// Through the operators' listener of a running gateway (`--admin`), or on the store itself (`--store`,
/// `--config`), also while gateways use it. Without any of them: the store of ./onceward.toml. The
/// command shows no keys: an operation has a reference, as in the header `Onceward-Operation`.
#[derive(Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  onceward keys list --state unknown --older 1h          what an operator has to look at
  onceward keys show --key 8e03978e-40d5-43dd            one operation, with its trail
  onceward keys resolve --operation REF --applied --reason \"charge ch_7 is in the ledger\"
  onceward keys resolve --state unknown --older 1d --not-applied --reason \"provider was down\"
                                                         in bulk: a dry run, until you say --yes
  onceward keys watch --admin http://127.0.0.1:8081      follows what happens"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Resolve(Resolve),
    /// Gives a key back, so that another request may use it.
    ///
    /// For what was interrupted or may run again, when no retry will come. `resolve` is for unknown outcomes,
    /// `purge` for what has ended. With --force also what is running, or may have had its effect.
    #[command(after_help = "\
Example:
  onceward keys release --operation REF --reason \"the client gave up\"")]
    Release(Change),
    /// Deletes the record of what has ended: its key is new after that, and the trail stays.
    ///
    /// Not within a minute of its last change, and not what is running or unknown. With --force also a
    /// damaged record, once you know what became of it.
    #[command(after_help = "\
Example:
  onceward keys purge --key order-6 --reason \"a charge of a test\"")]
    Purge(Change),
    Watch(Watch),
}

/// Where to ask.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("place").args(["config", "store", "admin"]))]
pub(crate) struct StoreLocation {
    /// The store of this configuration, and how long its routes keep things.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// This store, as `sqlite://onceward.db`, `postgres://user@host/database` or `redis://host`.
    #[arg(long, value_name = "URL")]
    pub(super) store: Option<String>,
    /// With --store: flags alone started its gateway, without a configuration, so the built-in times count.
    #[arg(long, requires = "store")]
    pub(super) defaults: bool,
    /// The operators' listener of a gateway, as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL")]
    pub(super) admin: Option<String>,
    /// The environment variable that holds the token for `--admin`.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TOKEN)]
    pub(super) token_env: String,
    /// Writes JSON to standard output; everything for people goes to standard error.
    #[arg(long)]
    pub(super) json: bool,
}

/// Which operations.
#[derive(Args, Clone)]
struct OperationSelector {
    /// `in_progress`, `succeeded`, `failed_final`, `failed_retryable`, `unknown`, `interrupted`,
    /// `released`, `expired` or `clock_suspect`.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Whose they are, as a list shows it: `jwt:sub=alice`.
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// Which operation, as a list shows it: `charge.create`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// First claimed so long ago or longer: 90s, 2h, 7d.
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    older: Option<Duration>,
    /// The exact key of the client, in whichever scope, or with --scope and --name exactly that one.
    #[arg(long, value_name = "KEY", conflicts_with = "operation")]
    key: Option<String>,
    /// The reference of one operation.
    #[arg(long, value_name = "REF")]
    operation: Option<String>,
}

/// Lists operations, oldest first.
#[derive(Args)]
struct List {
    #[command(flatten)]
    which: OperationSelector,
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Newest first.
    #[arg(long)]
    newest: bool,
    #[command(flatten)]
    place: StoreLocation,
}

/// Shows one operation with its trail.
#[derive(Args)]
struct Show {
    #[command(flatten)]
    which: OperationSelector,
    #[command(flatten)]
    place: StoreLocation,
}

/// Ends unknown outcomes, because you found out what became of them.
///
/// One, by --operation or --key; or all that --state unknown, --scope, --name and --older select: that is
/// a dry run, until you say --yes.
#[derive(Args)]
#[command(group = ArgGroup::new("outcome").args(["applied", "not_applied"]).required(true))]
struct Resolve {
    /// It happened: duplicates get the response, or the answer that it cannot be shown.
    #[arg(long)]
    applied: bool,
    /// It did not happen and cannot any more: the key may be used again.
    #[arg(long)]
    not_applied: bool,
    /// What duplicates get, as JSON: {"status":201,"headers":[["location","/c/7"]],"body":"…"};
    /// `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "not_applied")]
    response: Option<PathBuf>,
    /// Resolves what a filter selects, and not only counts it.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    change: Change,
}

#[derive(Args)]
struct Change {
    #[command(flatten)]
    which: OperationSelector,
    /// Why; the trail keeps it with your name.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Also where it may still be running, or where its record cannot be read. Think twice: what runs
    /// is not stopped, and a second run may double its effect.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: StoreLocation,
}

/// Follows what happens, until Ctrl-C.
#[derive(Args)]
struct Watch {
    #[command(flatten)]
    which: OperationSelector,
    /// How often to look.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = config::duration)]
    every: Duration,
    /// Ends after so long.
    #[arg(long = "for", value_name = "DURATION", value_parser = config::duration)]
    end: Option<Duration>,
    #[command(flatten)]
    place: StoreLocation,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    terminal::run(async {
        match &options.command {
            Command::List(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Resolve(resolve) => resolve.run().await,
            Command::Release(change) => change.run("release").await,
            Command::Purge(change) => change.run("purge").await,
            Command::Watch(watch) => watch.run().await,
        }
        .map(|()| ExitCode::SUCCESS)
    })
}

fn show_one(document: &Value, is_json: bool) -> Result<(), BoxError> {
    match is_json {
        true => print(&format!("{document:#}")),
        false => print(&table::whole(document)),
    }
}

/// To standard output. The command ends if no program reads that any more.
pub(super) fn print(text: &str) -> Result<(), BoxError> {
    Ok(writeln!(io::stdout(), "{text}")?)
}
