//! `onceward relay rebase`: mends the outbox of a restored database.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgGroup, Args};
use onceward::store::postgres::{Rebase, Rebased};

use crate::{
    admin::NO_OUTBOX,
    commands::{
        arguments::load_or_explain,
        keys::user,
        terminal::{self, BoxError, counted},
    },
    config::{Guarantee, StoreUrl, USUAL_FILE},
    records,
};

/// Mends the outbox of a restored dump, of which relays say that it was made in another database.
///
/// What a sink had not got when the copy was made is delivered: at least once, in order, as always. Producers wait
/// meanwhile. Stop the relays of the database that was copied first, if it still runs.
#[derive(Args)]
#[command(
    group = ArgGroup::new("place").args(["config", "store"]),
    after_help = "\
Examples:
  onceward relay rebase --store postgres://shop@db/shop --reason \"restored the dump of Tuesday\"
  onceward relay rebase --keep --reason \"pg_upgrade to 18\"     the numbers of transactions were kept"
)]
pub(crate) struct RebaseOptions {
    /// The store of this configuration; ./onceward.toml if nothing is said.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This store, as `postgres://user@host/database`.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The numbers of transactions were kept, as by `pg_upgrade`: only the identity of the database is new.
    #[arg(long)]
    keep: bool,
    /// Why; it is kept in the trail.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) fn run(options: &RebaseOptions) -> ExitCode {
    terminal::run(async { options.rebase().await.map(|()| ExitCode::SUCCESS) })
}

impl RebaseOptions {
    async fn rebase(&self) -> Result<(), BoxError> {
        let (store, guarantee) = match &self.store {
            Some(store) => (StoreUrl::of_argument(store)?, Guarantee::Strict),
            None => {
                let file = self.config.as_deref().unwrap_or_else(|| Path::new(USUAL_FILE));
                let config = load_or_explain(file, "")?;
                (config.store, config.guarantee)
            }
        };
        if let StoreUrl::Redis(_) = &store {
            return Err(NO_OUTBOX.into());
        }
        let StoreUrl::Postgres(url) = &store else {
            return Err("an outbox in a file needs no rebase: its messages and the places of its sinks are in one \
                        file; if the file is older than its mark: onceward migrate --accept-loss; nothing was \
                        changed"
                .into());
        };
        let how = if self.keep { Rebase::Upgraded } else { Rebase::Restored };
        let actor = format!("store{}", user().map(|user| format!("/{user}")).unwrap_or_default());
        let Rebased { renewed, waiting, .. } =
            records::rebase(url, guarantee, how, &actor, &self.reason).await?;
        let text = match how {
            Rebase::Upgraded => "the outbox belongs to this database now".to_owned(),
            Rebase::Restored => format!(
                "the outbox belongs to this database now: {} to be delivered that no sink had got, and {} \
                 that some sinks had not got",
                messages(renewed),
                messages(waiting)
            ),
        };
        Ok(writeln!(io::stdout(), "{store}: {text}")?)
    }
}

fn messages(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "message")
}
