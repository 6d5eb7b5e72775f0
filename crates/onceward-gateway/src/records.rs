//! Where the records are: whichever store the configuration names, as one type.

use std::{error::Error, sync::Arc, time::Duration};

use onceward::{
    BoxFuture, Inspect, Spool, StoreError, Trail,
    seal::Keyring,
    stores::{Census, sqlite::SqliteStore},
};

use crate::config::{PostgresUrl, StoreUrl};

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

/// What happens to tables that are missing or old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// They are made, or brought up to date.
    Made,
    /// The store is refused: who only looks changes nothing.
    AsTheyAre,
}

/// Opens the store that an address names; answers are sealed with `keys`, if there are any.
pub(crate) async fn open(
    store: &StoreUrl,
    keys: Option<Arc<Keyring>>,
    tables: Tables,
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
        StoreUrl::Postgres(url) => postgres(url, keys, tables).await,
    }
}

async fn postgres(
    url: &PostgresUrl,
    _: Option<Arc<Keyring>>,
    _: Tables,
) -> Result<Arc<dyn Records>, Failure> {
    let _ = url.with_password();
    Err("this version cannot open postgres:// yet".into())
}
