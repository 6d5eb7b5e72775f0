//! Where the records are: whichever store the configuration names, as one type.

use std::{error::Error, sync::Arc, time::Duration};

use onceward::{
    BoxFuture, Inspect, Spool, StoreError, Trail,
    seal::Keyring,
    stores::{Census, postgres::PostgresStore, sqlite::SqliteStore},
};

use crate::config::{Guarantee, PostgresUrl, StoreUrl};

type Failure = Box<dyn Error + Send + Sync>;

/// How long others may keep a file to themselves before clients are told that it is unavailable.
const BUSY: Duration = Duration::from_secs(2);

/// A store with everything that the gateway asks of one.
pub(crate) trait Records: Inspect + Trail + Spool {
    /// Counts what is open: for metrics.
    fn census(&self) -> BoxFuture<'_, Result<Census, StoreError>>;
}

impl Records for SqliteStore {
    fn census(&self) -> BoxFuture<'_, Result<Census, StoreError>> {
        Box::pin(self.census())
    }
}

impl Records for PostgresStore {
    fn census(&self) -> BoxFuture<'_, Result<Census, StoreError>> {
        Box::pin(self.census())
    }
}

/// What happens to tables that are missing or old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// They are made, or brought up to date.
    Made,
    /// The store is refused: who only looks changes nothing.
    AsTheyAre,
}

/// Opens the store that an address names; answers are sealed with `keys`, if there are any. A server
/// that may lose what it acknowledges is refused, unless the guarantee is relaxed.
pub(crate) async fn open(
    store: &StoreUrl,
    keys: Option<Arc<Keyring>>,
    tables: Tables,
    guarantee: Guarantee,
) -> Result<Arc<dyn Records>, Failure> {
    match store {
        StoreUrl::Sqlite(file) => {
            let mut builder = SqliteStore::builder(file);
            if tables == Tables::AsTheyAre {
                builder = builder.without_migrations();
            } else {
                builder = builder.busy_timeout(BUSY);
            }
            let builder = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys));
            Ok(Arc::new(builder.open()?))
        }
        StoreUrl::Postgres(url) => postgres(url, keys, tables, guarantee).await,
    }
}

async fn postgres(
    url: &PostgresUrl,
    keys: Option<Arc<Keyring>>,
    tables: Tables,
    guarantee: Guarantee,
) -> Result<Arc<dyn Records>, Failure> {
    let mut builder = PostgresStore::builder(url.with_password())?;
    if tables == Tables::AsTheyAre {
        builder = builder.without_migrations();
    }
    if guarantee == Guarantee::Relaxed {
        builder = builder.accept_relaxed();
    }
    let builder = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys));
    // Which server it was is not said by the error itself.
    let opened = builder.open().await.map_err(|error| format!("{url}: {error}"))?;
    Ok(Arc::new(opened))
}
