//! What `onceward relay` is asked.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::rebase::RebaseOptions;
use crate::{
    config::{Config, Mistake, NamedSink, Overrides, SourceLocation, Sources},
    observe::LogFormat,
};

/// Delivers what is in the outbox: to each sink, in order per aggregate, until it was accepted.
///
/// Without `--config` the relay reads ./onceward.toml, if it is there: its `store`, `[relay]`, every `[[sink]]`, and for
/// operators `admin` and `[admin_tokens]`. Without a file, `--store` and `--sink` are enough. Several relays on one
/// store share its messages, and take over from one that dies. SIGTERM and Ctrl-C let attempts under way end.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  onceward relay --store sqlite://shop.db --sink billing=http://127.0.0.1:8080/events
  onceward relay --store postgres://shop@db/shop --sink billing=https://billing.example/events \\
                 --sink mail=https://mail.example/events --topics billing=order.* --topics mail=order.placed,user.*
  onceward relay --config relay.toml     the store and every [[sink]] of that file

Then: onceward messages sinks, onceward messages list --state dead. All options of a sink: onceward check --options"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// The configuration, ./onceward.toml if not said.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The store whose outbox is relayed; `sqlite://onceward.db` if it is said nowhere.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A sink: its name and the URL that messages are sent to. May be given several times; then those of the file do not
    /// count.
    #[arg(long, value_name = "NAME=URL", value_parser = pair)]
    sink: Vec<(String, String)>,
    /// Which topics a --sink takes, with commas: `billing=order.*,refund.requested`; all, if not said.
    #[arg(long, value_name = "NAME=TOPICS", value_parser = pair, requires = "sink")]
    topics: Vec<(String, String)>,
    /// The operators' listener; none if it is said nowhere.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The form of the log on standard error; `ONCEWARD_LOG_FORMAT` sets it too.
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

#[derive(Subcommand)]
pub(super) enum Command {
    Rebase(RebaseOptions),
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write the name of the sink, `=` and the rest, as billing=http://…".to_owned()),
    }
}

impl Options {
    pub(super) fn load(&self, file: Option<&Path>) -> Result<Config, Vec<Mistake>> {
        let (store, admin) = (self.store.clone(), self.admin.clone());
        let overrides = Overrides { store, admin, ..Overrides::default() };
        let mut sources = Sources::gather(file, overrides)?;
        let named = |(name, url): &(String, String)| {
            let said = self.topics.iter().filter(|(of, _)| of == name);
            let topics = said.flat_map(|(_, topics)| topics.split(','));
            let topics = topics.map(|topic| topic.trim().to_owned()).collect();
            NamedSink { name: name.clone(), url: url.clone(), topics }
        };
        sources.sinks = self.sink.iter().map(named).collect();
        let is_unknown = |name: &String| self.sink.iter().all(|(known, _)| known != name);
        if let Some((name, _)) = self.topics.iter().find(|(name, _)| is_unknown(name)) {
            let message = format!("there is no --sink that is called \"{name}\"");
            let help = "spell it as in --sink, or leave it out";
            return Err(vec![Mistake::error(SourceLocation::Argument("--topics"), message, help)]);
        }
        let config = Config::load_to_relay(&sources)?;
        if config.sinks.is_empty() {
            let message = "there is no [[sink]]: nothing would be delivered".to_owned();
            let help = "add [[sink]] with name = \"billing\" and url = \"https://…\", or say --sink billing=https://…";
            return Err(vec![Mistake::error(sources.whole(), message, help)]);
        }
        Ok(config)
    }
}
