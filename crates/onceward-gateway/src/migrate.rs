//! `onceward migrate`: brings the tables of the records up to date.

use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use onceward::stores::sqlite::{SqliteStore, Tables};

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
  onceward migrate --store sqlite://shop.db --check  only look: fails if there is something to do")]
pub(crate) struct Options {
    /// Where the records are: `sqlite://<file>`.
    #[arg(long, value_name = "URL", value_parser = sqlite_file)]
    store: PathBuf,
    /// Changes nothing, and fails if there is something to do.
    #[arg(long)]
    check: bool,
    /// How many seconds to wait for others who are writing.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    wait: u64,
}

/// The file that a store's address names.
pub(crate) fn sqlite_file(address: &str) -> Result<PathBuf, String> {
    let path = match address.split_once("://") {
        Some(("sqlite", path)) => path,
        Some((scheme, _)) => {
            return Err(format!(
                "this version knows no stores `{scheme}://`; name a file as `sqlite://shop.db`"
            ));
        }
        None => address.strip_prefix("sqlite:").unwrap_or(address),
    };
    if path.contains(['?', '#']) {
        return Err("options after `?` are not known here; name the file only".to_owned());
    }
    match path {
        "" => Err("it names no file; write `sqlite://shop.db`".to_owned()),
        path => Ok(PathBuf::from(path)),
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    migrate(options).unwrap_or_else(|error| {
        // Standard error may be closed as well; then there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {error}");
        ExitCode::FAILURE
    })
}

fn migrate(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let store =
        || SqliteStore::builder(&options.store).busy_timeout(Duration::from_secs(options.wait));
    let file = options.store.display();
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
