//! `onceward messages`: find messages of the outbox and repair them, through an operators' listener or on the store
//! itself.

mod list;
mod repair;
mod sinks;
mod table;
mod watch;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;

use super::{
    keys::{AdminClient, DEFAULT_TOKEN, StoreLocation, print},
    terminal::{self, BoxError},
};
use crate::config;

/// Finds messages of the outbox, and repairs them.
///
/// Through the operators' listener of a running relay or gateway (`--admin`), or on the store itself (`--store`,
/// `--config`), also while they use it. Without any of them: the store of ./onceward.toml. Lists show no bodies.
#[derive(Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  onceward messages sinks                           how far each sink is, and who delivers to it
  onceward messages list --state dead               what an operator has to look at
  onceward messages show --message ID               one message, with its trail
  onceward messages redrive --message ID --reason \"the address is right now\"
  onceward messages redrive --state dead --sink billing --reason \"billing is repaired\"
                                                    in bulk: a dry run, until you say --yes
  onceward messages discard --message ID --reason \"a test\"
  onceward messages watch                           follows what happens"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Show(Show),
    /// Sends messages again at once, from their first attempt: dead, held and waiting ones.
    ///
    /// One, by --message; or all that --state, --sink, --topic, --aggregate and --older select: that is a dry run,
    /// until you say --yes.
    #[command(after_help = "\
Example:
  onceward messages redrive --message ID --reason \"the address is right now\"")]
    Redrive(Repair),
    /// Never sends messages: dead, held, waiting and scheduled ones. What waits behind them goes on.
    ///
    /// One, by --message; or all that a filter selects: that is a dry run, until you say --yes.
    #[command(after_help = "\
Example:
  onceward messages discard --message ID --reason \"the order was cancelled by hand\"")]
    Discard(Repair),
    Watch(Watch),
    Sinks(Sinks),
    RemoveSink(RemoveSink),
}

/// Where to ask.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("place").args(["config", "store", "admin"]))]
struct OutboxLocation {
    /// The store of this configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This store, as `sqlite://onceward.db` or `postgres://user@host/database`.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The operators' listener of a relay or a gateway, as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The environment variable that holds the token for `--admin`.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TOKEN)]
    token_env: String,
    /// Writes JSON to standard output; everything for people goes to standard error.
    #[arg(long)]
    json: bool,
}

impl OutboxLocation {
    async fn open(&self) -> Result<AdminClient, BoxError> {
        let Self { config, store, admin, token_env, json } = self.clone();
        let place = StoreLocation { config, store, defaults: false, admin, token_env, json };
        AdminClient::open(&place).await
    }
}

/// Which messages.
#[derive(Args, Clone)]
struct MessageSelector {
    /// Of this sink.
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// `waiting`, `scheduled`, `delivered`, `dead`, `discarded`, `expired` or `held`.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Of this topic, as a list shows it: `order.placed`.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Of this aggregate: `order-7`.
    #[arg(long, value_name = "AGGREGATE")]
    aggregate: Option<String>,
    /// Enqueued so long ago or longer: 90s, 2h, 7d.
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    older: Option<Duration>,
}

/// Lists messages, each as every sink has it, oldest first.
#[derive(Args)]
struct List {
    #[command(flatten)]
    which: MessageSelector,
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    place: OutboxLocation,
}

/// Shows one message with its trail.
#[derive(Args)]
struct Show {
    /// Its id.
    #[arg(long, value_name = "ID")]
    message: String,
    /// Shows its body, too: with --admin that needs a token with the role `resolve`.
    #[arg(long)]
    body: bool,
    #[command(flatten)]
    place: OutboxLocation,
}

#[derive(Args)]
struct Repair {
    /// One message; its sink may be left out if only one could be meant.
    #[arg(long, value_name = "ID")]
    message: Option<String>,
    #[command(flatten)]
    which: MessageSelector,
    /// Changes what a filter selects, and not only counts it.
    #[arg(long)]
    yes: bool,
    /// Why; it is kept in the trail.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    place: OutboxLocation,
}

/// Follows what becomes of messages that are not delivered yet.
#[derive(Args)]
struct Watch {
    #[command(flatten)]
    which: MessageSelector,
    /// How often to look.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = config::duration)]
    every: Duration,
    /// Ends after so long.
    #[arg(long = "for", value_name = "DURATION", value_parser = config::duration)]
    end: Option<Duration>,
    #[command(flatten)]
    place: OutboxLocation,
}

/// Shows how far each sink is: what it has not got yet, what is stuck, and who delivers to it.
#[derive(Args)]
struct Sinks {
    #[command(flatten)]
    place: OutboxLocation,
}

/// Forgets a sink: what it had not got, it never gets. No relay may have it in its configuration any more.
///
/// A sink that no relay delivers to keeps all messages from being swept.
#[derive(Args)]
#[command(after_help = "\
Example:
  onceward messages remove-sink billing --reason \"billing reads the orders itself now\" --yes")]
struct RemoveSink {
    /// Its name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Removes it, and does not only say what would be forgotten.
    #[arg(long)]
    yes: bool,
    /// Why; it is kept in the trail.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    place: OutboxLocation,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    terminal::run(async {
        match &options.command {
            Command::List(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Redrive(repair) => repair.run("redrive").await,
            Command::Discard(repair) => repair.run("discard").await,
            Command::Watch(watch) => watch.run().await,
            Command::Sinks(sinks) => sinks.run().await,
            Command::RemoveSink(remove) => remove.run().await,
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
