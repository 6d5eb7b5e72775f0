//! `onceward migrate`: brings the tables of the records up to date.

use std::{
    env,
    error::Error,
    fmt::Display,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use onceward::stores::sqlite::{SqliteStore, Tables};

use crate::config::StoreUrl;

/// Makes or updates the tables of Onceward in a database, and touches no other table in it.
///
/// The file gets a write-ahead log (`journal_mode = wal`), if it has none.
///
/// The records live beside the tables of the application, so that an effect and its record commit
/// together. A store that is opened does the same by itself, unless it was told not to
/// (`without_migrations`): then this command runs before a new version is started. All of it is done
/// or nothing, older processes may be running meanwhile, and a second run changes nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward migrate --store sqlite://shop.db          make or update the tables
  onceward migrate --store sqlite://shop.db --check  only look: fails if there is something to do
  ONCEWARD_STORE=postgres://owner:…@db/shop onceward migrate")]
pub(crate) struct Options {
    /// Where the records are: `sqlite://<file>` or `postgres://<user>@<host>/<database>`; the
    /// environment variable `ONCEWARD_STORE` if it is not said, so that no list of processes shows a
    /// password.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Changes nothing, and fails if there is something to do.
    #[arg(long)]
    check: bool,
    /// How many seconds to wait for others who are writing.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    wait: u64,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let refused = |error: &dyn Display, code| {
        // Standard error may be closed as well; then there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {error}");
        code
    };
    // Not by clap, which quotes what is wrong: it may hold a password.
    let said = options.store.clone().or_else(|| env::var("ONCEWARD_STORE").ok());
    let store = match said.as_deref().map(StoreUrl::of_argument) {
        Some(Ok(store)) => store,
        Some(Err(error)) => return refused(&error, ExitCode::from(2)),
        None => {
            let text = "say where the records are: --store sqlite://<file> or postgres://…, or set \
                        ONCEWARD_STORE";
            return refused(&text, ExitCode::from(2));
        }
    };
    migrate(&store, options).unwrap_or_else(|error| refused(&error, ExitCode::FAILURE))
}

fn migrate(store: &StoreUrl, options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    match store {
        StoreUrl::Sqlite(file) => in_file(file, options),
        StoreUrl::Postgres(_) => Err("this version cannot open postgres:// yet".into()),
    }
}

fn in_file(file: &Path, options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let store = || SqliteStore::builder(file).busy_timeout(Duration::from_secs(options.wait));
    let file = file.display();
    let before = store().tables()?;
    let Tables { found, known } = before;
    let mut out = io::stdout().lock();
    if before.is_current() {
        writeln!(out, "{file}: the tables are up to date (version {known})")?;
        return Ok(ExitCode::SUCCESS);
    }
    if found > known {
        let text = format!(
            "the tables have version {found}, this software knows {known}: use the newer one"
        );
        return Err(text.into());
    }
    if options.check {
        writeln!(out, "{file}: the tables have version {found}, this software needs {known}")?;
        writeln!(out, "run: onceward migrate --store sqlite://{file}")?;
        return Ok(ExitCode::FAILURE);
    }
    let after = store().migrate()?;
    writeln!(out, "{file}: the tables have version {} now, after {found}", after.found)?;
    Ok(ExitCode::SUCCESS)
}
