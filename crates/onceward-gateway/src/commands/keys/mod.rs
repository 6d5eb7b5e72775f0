//! `onceward keys`: find operations and repair them, through the operators' listener or on the store
//! itself.

mod admin_client;
mod table;
mod watch;

use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::config;
pub(crate) use admin_client::{AdminClient, DEFAULT_TOKEN};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Finds operations and repairs them.
///
/// Through the operators' listener of a running gateway (`--admin`), or on the store itself (`--store`,
/// `--config`), also while gateways use it. Without any of them: the store of ./onceward.toml. Keys are
/// never shown: an operation is named by its reference, as in the header `Onceward-Operation`.
#[derive(Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  onceward keys list --state unknown --older 1h          what somebody has to look at
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
    Release(Release),
    Purge(Purge),
    Watch(Watch),
}

/// Where to ask.
#[derive(Args, Clone)]
#[command(group = ArgGroup::new("place").args(["config", "store", "admin"]))]
struct StoreLocation {
    /// The store of this configuration, and how long its routes keep things.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This store, as `sqlite://onceward.db` or `postgres://user@host/database`.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The operators' listener of a gateway, as `http://127.0.0.1:8081`.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The environment variable that holds the token for `--admin`.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TOKEN)]
    token_env: String,
    /// Writes JSON to standard output; everything for people goes to standard error.
    #[arg(long)]
    json: bool,
}

/// Which operations.
#[derive(Args, Clone)]
struct Which {
    /// `in_progress`, `succeeded`, `failed_final`, `failed_retryable`, `unknown`, `interrupted`,
    /// `released`, `expired` or `clock_suspect`.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// To whom they belong, as a list shows it: `jwt:sub=alice`.
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    /// What is done, as a list shows it: `charge.create`.
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
    which: Which,
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Newest first.
    #[arg(long)]
    newest: bool,
    #[command(flatten)]
    place: StoreLocation,
}

/// Shows one operation with everything that was done to it.
#[derive(Args)]
struct Show {
    #[command(flatten)]
    which: Which,
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
    /// It happened: duplicates get the response, or are told that it cannot be shown.
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

/// Gives a key back, so that another request may use it.
///
/// For what was interrupted or may be run again, when no retry will come. Unknown outcomes are resolved
/// instead, and what has ended is purged. With --force also what is running, or may have had its effect.
#[derive(Args)]
#[command(after_help = "\
Example:
  onceward keys release --operation REF --reason \"the client gave up\"")]
struct Release {
    #[command(flatten)]
    change: Change,
}

/// Deletes the record of what has ended: its key is new after that, and the trail stays.
///
/// Not within a minute of its last change, and not what is running or unknown. With --force also a
/// damaged record, once you know what became of it.
#[derive(Args)]
#[command(after_help = "\
Example:
  onceward keys purge --key order-6 --reason \"a charge of a test\"")]
struct Purge {
    #[command(flatten)]
    change: Change,
}

/// One change and why.
#[derive(Args)]
struct Change {
    #[command(flatten)]
    which: Which,
    /// Why; it is kept in the trail with your name.
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
    which: Which,
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(BoxError::from).and_then(|runtime| {
        runtime.block_on(async {
            match &options.command {
                Command::List(list) => list.run().await,
                Command::Show(show) => show.run().await,
                Command::Resolve(resolve) => resolve.run().await,
                Command::Release(Release { change }) => change.run("release").await,
                Command::Purge(Purge { change }) => change.run("purge").await,
                Command::Watch(watch) => watch.run().await,
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl Which {
    /// As the listener takes it.
    fn filter(&self) -> Map<String, Value> {
        let older = self.older.map(|older| format!("{}ms", older.as_millis()));
        let members = [
            ("state", self.state.clone()),
            ("scope", self.scope.clone()),
            ("name", self.name.clone()),
            ("older", older),
            ("key", self.key.clone()),
        ];
        let given =
            members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        given.collect()
    }

    fn is_one(&self) -> bool {
        self.key.is_some() || self.operation.is_some()
    }

    /// The reference of the one operation that is meant.
    async fn one(&self, admin_client: &AdminClient) -> Result<String, BoxError> {
        if let Some(reference) = &self.operation {
            if !self.filter().is_empty() {
                return Err("--operation names one operation: leave the other filters out".into());
            }
            return Ok(reference.clone());
        }
        if self.key.is_none() {
            return Err("say which operation: --operation <REF>, or --key <KEY>".into());
        }
        let found = admin_client.search(self.filter(), 10).await?;
        match found.as_slice() {
            [] => Err("there is no such operation now; what was purged is found by its reference \
                       (--operation), and --scope and --name are spelled as a list shows them"
                .into()),
            [one] => Ok(one["operation"].as_str().unwrap_or_default().to_owned()),
            several => {
                tell(&table::lines(several));
                Err("several callers or operations have this key: say which with --operation"
                    .into())
            }
        }
    }
}

impl List {
    async fn run(&self) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        if let Some(reference) = &self.which.operation {
            let one = admin_client.get(&format!("/v1/operations/{reference}")).await?;
            return show_list(&[one], self.place.json);
        }
        let mut filter = self.which.filter();
        if self.newest {
            filter.insert("order".into(), "newest".into());
        }
        let found = admin_client.search(filter, self.limit as usize).await?;
        show_list(&found, self.place.json)?;
        if found.len() == self.limit as usize {
            tell("there may be more: say --limit");
        }
        Ok(())
    }
}

fn show_list(found: &[Value], is_json: bool) -> Result<(), BoxError> {
    match is_json {
        true => print(&format!("{:#}", Value::from(found))),
        false if found.is_empty() => print("nothing is found"),
        false => print(&table::lines(found)),
    }
}

impl Show {
    async fn run(&self) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        let reference = self.which.one(&admin_client).await?;
        let document = admin_client.get(&format!("/v1/operations/{reference}")).await?;
        show_one(&document, self.place.json)
    }
}

fn show_one(document: &Value, is_json: bool) -> Result<(), BoxError> {
    match is_json {
        true => print(&format!("{document:#}")),
        false => print(&table::whole(document)),
    }
}

impl Resolve {
    async fn run(&self) -> Result<(), BoxError> {
        let Change { which, place, .. } = &self.change;
        let admin_client = AdminClient::open(place).await?;
        let outcome = if self.applied { "applied" } else { "not_applied" };
        if !which.is_one() {
            return self.run_many(&admin_client, outcome).await;
        }
        let mut document = self.change.document();
        document["outcome"] = outcome.into();
        if let Some(file) = &self.response {
            document["response"] = response(file)?;
        }
        self.change.make(&admin_client, "resolve", document).await
    }

    async fn run_many(&self, admin_client: &AdminClient, outcome: &str) -> Result<(), BoxError> {
        let Change { which, place, force, reason } = &self.change;
        if self.response.is_some() || *force {
            return Err("--response and --force are for one operation: say --operation".into());
        }
        if which.state.is_none() {
            return Err("say which operation (--operation, --key), or all of a filter with \
                        --state unknown"
                .into());
        }
        let (mut filter, is_dry) = (which.filter(), !self.yes);
        let (mut resolved, mut left) = (Vec::new(), Vec::new());
        loop {
            let document = json!({
                "filter": filter, "outcome": outcome, "reason": reason, "dry_run": is_dry,
            });
            let mut page = admin_client.post("/v1/resolve", &document).await?;
            let mut take = |name| page[name].as_array_mut().map(std::mem::take).unwrap_or_default();
            resolved.extend(take("resolved"));
            left.extend(take("left"));
            match page["next"].take() {
                Value::Null => break,
                next => filter.insert("after".into(), next),
            };
            tell(&format!("{} so far, {} left as they are", resolved.len(), left.len()));
        }
        if place.json {
            let document = json!({ "dry_run": is_dry, "resolved": resolved, "left": left });
            print(&format!("{document:#}"))?;
            let is_done = is_dry || left.is_empty();
            return if is_done { Ok(()) } else { Err("not everything was resolved".into()) };
        }
        for one in &left {
            tell(&format!(
                "left: {}: {}",
                table::text(&one["operation"]),
                table::text(&one["detail"])
            ));
        }
        let (done, kept) = (counted(resolved.len()), left.len());
        if is_dry {
            let text = "would be resolved as";
            return print(&format!(
                "dry run: {done} {text} {outcome}, {kept} would be left; say --yes"
            ));
        }
        print(&format!("{done} resolved as {outcome}, {kept} left"))?;
        match kept {
            0 => Ok(()),
            _ => {
                Err("not everything was resolved; what is left is named above, with its reason"
                    .into())
            }
        }
    }
}

fn counted(number: usize) -> String {
    match number {
        1 => "1 operation".to_owned(),
        _ => format!("{number} operations"),
    }
}

fn response(file: &PathBuf) -> Result<Value, BoxError> {
    let text = match file.as_os_str() == "-" {
        true => io::read_to_string(io::stdin())?,
        false => std::fs::read_to_string(file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?,
    };
    let example = "{\"status\":201,\"headers\":[[\"location\",\"/charges/7\"]],\"body\":\"…\"}";
    let parsed = serde_json::from_str(&text);
    Ok(parsed.map_err(|error| format!("--response is not JSON ({error}); write {example}"))?)
}

impl Change {
    async fn run(&self, action: &str) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        self.make(&admin_client, action, self.document()).await
    }

    fn document(&self) -> Value {
        json!({ "reason": self.reason, "force": self.force })
    }

    async fn make(
        &self,
        admin_client: &AdminClient,
        action: &str,
        mut document: Value,
    ) -> Result<(), BoxError> {
        let reference = self.which.one(admin_client).await?;
        let path = format!("/v1/operations/{reference}");
        // Whoever forces means the run that is there now, and none that begins meanwhile.
        if self.force
            && let execution @ Value::String(_) = admin_client.get(&path).await?["execution"].take()
        {
            document["execution"] = execution;
        }
        let changed = admin_client.post(&format!("{path}/{action}"), &document).await?;
        show_one(&changed, self.place.json)
    }
}

/// To standard output; if nobody reads it any more, that is the end.
fn print(text: &str) -> Result<(), BoxError> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

fn tell(text: &str) {
    // Standard error may be closed; then no operator reads it.
    let _ = writeln!(io::stderr(), "{text}");
}
