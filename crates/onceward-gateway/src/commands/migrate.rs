//! `onceward migrate`: brings the tables of the records up to date.

use std::{
    env,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use onceward::store::{
    postgres::{MIGRATIONS, PostgresStore},
    sqlite::{SqliteStore, Tables},
};

use super::terminal::{self, BoxError, refused};
use crate::config::{PostgresUrl, StoreUrl};

/// Makes or updates the tables of Onceward in a database, and touches no other table in it.
///
/// In PostgreSQL they are in a schema `onceward`, and services call functions in it as members of the role
/// `onceward_app`. A SQLite file gets a write-ahead log (`journal_mode = wal`), if it has none.
///
/// The records live beside the tables of the application, so that an effect and its record commit
/// together. A store does the same by itself when a process opens it, except with `without_migrations`:
/// then run this command before you start a new version. It does all or nothing, older processes may be
/// running meanwhile, and a second run changes nothing. In Redis and Valkey there is nothing to make.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward migrate --store sqlite://shop.db          make or update the tables
  onceward migrate --store sqlite://shop.db --check  only look: fails if there is something to do
  ONCEWARD_STORE=postgres://owner:…@db/shop onceward migrate
  onceward migrate --print > onceward.sql            the SQL for PostgreSQL, to be run by other tools
  onceward migrate --store sqlite://shop.db --accept-loss 'the disk was replaced'")]
pub(crate) struct Options {
    /// Where the records are: `sqlite://<file>` or `postgres://<user>@<host>/<database>`, with
    /// `?dialect=wire` for another engine that speaks PostgreSQL's protocol, or `redis://<host>`. Without it, the environment
    /// variable `ONCEWARD_STORE` names it, so that no list of processes shows a password.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Changes nothing, and fails if there is something to do.
    #[arg(long)]
    check: bool,
    /// Changes nothing, and prints the SQL that brings tables in PostgreSQL up to date, for tools of
    /// your own: all of it, or with --store what that store lacks.
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Accepts that a SQLite file lacks commits that were durable, for this reason: gateways can use the
    /// file again, and a retry of an operation that was acknowledged in those commits runs again. Copy
    /// all files first. The table `onceward_loss` keeps the reason.
    #[arg(long, value_name = "REASON", conflicts_with_all = ["check", "print"])]
    accept_loss: Option<String>,
    /// How many seconds to wait for other processes that write to the file.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    wait: u64,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    // Not by clap, which quotes what is wrong: it may hold a password.
    let in_environment = || env::var("ONCEWARD_STORE").ok().filter(|url| !url.is_empty());
    let url = options.store.clone().or_else(in_environment);
    match url.as_deref().map(StoreUrl::of_argument) {
        Some(Ok(store)) => terminal::run(migrate(&store, options)),
        Some(Err(error)) => refused(&error, 2),
        None if options.print => terminal::ended(print(MIGRATIONS)),
        None => {
            let text = "say where the records are: --store sqlite://<file> or postgres://…, or set \
                        ONCEWARD_STORE";
            refused(&text, 2)
        }
    }
}

async fn migrate(store: &StoreUrl, options: &Options) -> Result<ExitCode, BoxError> {
    match store {
        StoreUrl::Sqlite(_) | StoreUrl::Redis(_) if options.print => {
            Err("only tables in PostgreSQL have scripts of their own; leave --print out".into())
        }
        StoreUrl::Sqlite(file) => in_file(file, options),
        StoreUrl::Postgres(_) | StoreUrl::Redis(_) if options.accept_loss.is_some() => {
            Err("only a SQLite file counts its commits; leave --accept-loss out".into())
        }
        StoreUrl::Postgres(url) => on_server(url, options).await,
        StoreUrl::Redis(url) => {
            writeln!(
                io::stdout(),
                "{url}: nothing to do: records in Redis and Valkey need no tables"
            )?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn in_file(file: &Path, options: &Options) -> Result<ExitCode, BoxError> {
    let store = || SqliteStore::builder(file).busy_timeout(Duration::from_secs(options.wait));
    let name = file.display().to_string();
    if let Some(reason) = &options.accept_loss {
        let said = match store().accept_loss(reason)? {
            0 => "no commit is missing; nothing was changed".to_owned(),
            count => format!(
                "the loss of {count} commits was accepted: what was acknowledged in them runs again \
                 when it is retried"
            ),
        };
        writeln!(io::stdout(), "{name}: {said}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let Tables { found, known } = store().tables()?;
    if let Some(code) = settled(&name, &format!("sqlite://{name}"), (found, known), options)? {
        return Ok(code);
    }
    let after = store().migrate()?;
    done(&name, after.found, found)
}

async fn on_server(url: &PostgresUrl, options: &Options) -> Result<ExitCode, BoxError> {
    let store = || PostgresStore::builder(url.with_password());
    if options.print {
        return print(&store()?.missing().await?);
    }
    let before = store()?.tables().await?;
    let versions = (before.found, before.newest);
    if let Some(code) = settled(&url.to_string(), "postgres://…", versions, options)? {
        return Ok(code);
    }
    // Another process may have been faster: the message says what this one did.
    let done_by_us = store()?.migrate().await?;
    done(&url.to_string(), done_by_us.newest, done_by_us.found)
}

/// Reports, if there is nothing to do or `--check` forbids it.
fn settled(
    name: &str,
    address: &str,
    (found, known): (u32, u32),
    options: &Options,
) -> Result<Option<ExitCode>, BoxError> {
    let mut out = io::stdout().lock();
    if found == known {
        writeln!(out, "{name}: the tables are up to date (version {known})")?;
        return Ok(Some(ExitCode::SUCCESS));
    }
    if found > known {
        let text = format!(
            "the tables have version {found}, this software knows {known}: use the newer one"
        );
        return Err(text.into());
    }
    if options.check {
        writeln!(out, "{name}: the tables have version {found}, this software needs {known}")?;
        writeln!(out, "run: onceward migrate --store {address}")?;
        return Ok(Some(ExitCode::FAILURE));
    }
    Ok(None)
}

fn done(name: &str, now: u32, before: u32) -> Result<ExitCode, BoxError> {
    writeln!(io::stdout(), "{name}: the tables have version {now} now, after {before}")?;
    Ok(ExitCode::SUCCESS)
}

/// Scripts, each in a transaction of its own.
fn print(migrations: &[(&str, &str)]) -> Result<ExitCode, BoxError> {
    let mut out = io::stdout().lock();
    for (name, text) in migrations {
        // The role that runs them may have another one, with a schema in it that others may write to.
        let path = "SET LOCAL search_path = pg_catalog, pg_temp;";
        writeln!(out, "-- {name}\nBEGIN;\n{path}\n{}\nCOMMIT;\n", text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
