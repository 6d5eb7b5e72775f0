//! Where the records are: whichever store the configuration names, as one type.

use std::{error::Error, future::ready, sync::Arc, time::Duration};

use onceward::{
    StoreError,
    clock::Suspicion,
    message::{InspectQueue, MessageId, MessageNote},
    seal::Keyring,
    store::{
        BoxFuture, Census, Cursor, Inspect, KeptRoute, Living, Spool, Trail,
        postgres::{PostgresStore, Rebase, Rebased},
        redis::RedisStore,
        sqlite::SqliteStore,
    },
};

use crate::config::{Guarantee, PostgresUrl, RedisUrl, StoreUrl};

type BoxError = Box<dyn Error + Send + Sync>;

/// How long other processes may keep a file to themselves before clients get 503.
const BUSY: Duration = Duration::from_secs(2);

/// A store with everything that the gateway asks of one.
pub(crate) trait Records: Inspect + Trail + Spool {
    fn census(&self) -> BoxFuture<'_, Result<Census, StoreError>>;

    fn routes(&self) -> BoxFuture<'_, Result<Vec<KeptRoute>, StoreError>>;

    /// Writes the names of a route, if what is stored for it is still `before`; returns whether it was.
    fn keep_route<'a>(
        &'a self,
        before: Option<&'a KeptRoute>,
        route: &'a KeptRoute,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    fn living(&self, after: Option<Cursor>) -> BoxFuture<'_, Result<Living, StoreError>>;

    /// What is suspected of the store's clock.
    fn clock_suspicion(&self) -> BoxFuture<'_, Result<Option<Suspicion>, StoreError>>;

    /// An operator said that the store's clock is right; returns what was suspected.
    fn trust_clock(&self) -> BoxFuture<'_, Result<Option<Suspicion>, StoreError>>;

    /// Its outbox, for relays and operators; `None`: it has none.
    fn outbox(&self) -> Option<Arc<dyn Outbox>>;

    /// Whether there is room for new claims, as far as this process can see.
    fn check_room(&self) -> Result<(), StoreError>;

    /// How records that it acknowledged can be lost, by what its server said when it was opened.
    fn losses(&self) -> Vec<String>;
}

/// An outbox with everything that operators ask of one.
pub(crate) trait Outbox: InspectQueue {
    /// What operators changed of a message.
    fn message_trail(&self, id: MessageId) -> BoxFuture<'_, Result<Vec<MessageNote>, StoreError>>;
}

/// The stores have these methods of their own.
macro_rules! records {
    ($($store:ty: $clock:expr, $trust:expr, $outbox:expr, $room:expr, $losses:expr;)*) => {$(
        impl Records for $store {
            fn census(&self) -> BoxFuture<'_, Result<Census, StoreError>> {
                Box::pin(self.census())
            }

            fn routes(&self) -> BoxFuture<'_, Result<Vec<KeptRoute>, StoreError>> {
                Box::pin(self.routes())
            }

            fn keep_route<'a>(
                &'a self,
                before: Option<&'a KeptRoute>,
                route: &'a KeptRoute,
            ) -> BoxFuture<'a, Result<bool, StoreError>> {
                Box::pin(self.keep_route(before, route))
            }

            fn living(&self, after: Option<Cursor>) -> BoxFuture<'_, Result<Living, StoreError>> {
                Box::pin(self.living(after))
            }

            fn clock_suspicion(&self) -> BoxFuture<'_, Result<Option<Suspicion>, StoreError>> {
                $clock(self)
            }

            fn trust_clock(&self) -> BoxFuture<'_, Result<Option<Suspicion>, StoreError>> {
                $trust(self)
            }

            fn outbox(&self) -> Option<Arc<dyn Outbox>> {
                $outbox(self)
            }

            fn check_room(&self) -> Result<(), StoreError> {
                $room(self)
            }

            fn losses(&self) -> Vec<String> {
                $losses(self)
            }
        }
    )*};
}

records! {
    SqliteStore:
        |it: &Self| Box::pin(ready(Ok(it.clock_suspicion()))),
        |it: &Self| Box::pin(ready(Ok(it.trust_clock()))),
        own_outbox,
        Self::check_room,
        |_: &Self| Vec::new();
    // The server's disk is not seen from here; what it cannot write it refuses by itself.
    PostgresStore:
        |it| Box::pin(Self::clock_suspicion(it)),
        |it| Box::pin(Self::trust_clock(it)),
        own_outbox,
        |_: &Self| Ok(()),
        weaknesses;
    // The same of its memory.
    RedisStore:
        |it| Box::pin(Self::clock_suspicion(it)),
        |it| Box::pin(Self::trust_clock(it)),
        |_: &Self| None,
        |_: &Self| Ok(()),
        |it: &Self| it.durability().losses();
}

/// The stores have these methods of their own.
macro_rules! outboxes {
    ($($store:ty)*) => {$(
        impl Outbox for $store {
            fn message_trail(
                &self,
                id: MessageId,
            ) -> BoxFuture<'_, Result<Vec<MessageNote>, StoreError>> {
                Box::pin(self.message_trail(id))
            }
        }
    )*};
}

outboxes! { SqliteStore PostgresStore }

/// In the same place as the records.
fn own_outbox<S: Outbox + Clone>(store: &S) -> Option<Arc<dyn Outbox>> {
    Some(Arc::new(store.clone()))
}

fn weaknesses(store: &PostgresStore) -> Vec<String> {
    let promotes = store.address().is_promotable();
    store.durability().map(|durability| durability.weaknesses(promotes)).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
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
) -> Result<Arc<dyn Records>, BoxError> {
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
        // Operators may look at what a gateway accepted: they promise clients nothing.
        StoreUrl::Redis(url) if tables == Tables::AsTheyAre => {
            redis(url, keys, Guarantee::Relaxed).await
        }
        StoreUrl::Redis(url) => redis(url, keys, guarantee).await,
    }
}

/// Mends the outbox of a restored database.
pub(crate) async fn rebase(
    url: &PostgresUrl,
    guarantee: Guarantee,
    how: Rebase,
    actor: &str,
    reason: &str,
) -> Result<Rebased, BoxError> {
    let mut builder = PostgresStore::builder(url.with_password())?.without_migrations();
    if guarantee == Guarantee::Relaxed {
        builder = builder.accept_relaxed();
    }
    let store = builder.open().await.map_err(|error| format!("{url}: {error}"))?;
    Ok(store.rebase(how, Some(actor), reason).await?)
}

async fn postgres(
    url: &PostgresUrl,
    keys: Option<Arc<Keyring>>,
    tables: Tables,
    guarantee: Guarantee,
) -> Result<Arc<dyn Records>, BoxError> {
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

async fn redis(
    url: &RedisUrl,
    keys: Option<Arc<Keyring>>,
    guarantee: Guarantee,
) -> Result<Arc<dyn Records>, BoxError> {
    let mut builder = RedisStore::builder(url.with_password())?;
    if guarantee == Guarantee::Relaxed {
        builder = builder.accept_relaxed();
    }
    let builder = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys));
    let opened = builder.open().await.map_err(|error| format!("{url}: {error}"))?;
    Ok(Arc::new(opened))
}
