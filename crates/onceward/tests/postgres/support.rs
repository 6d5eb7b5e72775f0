//! What the tests on PostgreSQL share: a bench whose stores have a database each.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    Digest,
    conformance::spawn,
    protocol::conformance::Bench,
    store::postgres::{PostgresStore, PostgresStoreBuilder},
};
use testbed::Database;

/// Databases that no bench uses any more: making one takes longer than emptying one.
static IDLE: Mutex<Idle> = Mutex::new(Idle { databases: Vec::new(), benches: 0 });

struct Idle {
    databases: Vec<Database>,
    /// With the last of them the databases are dropped: nothing may be left on somebody's server.
    benches: usize,
}

pub(crate) const EMPTY: &str = "DO $$ BEGIN
    IF to_regclass('onceward.inbox') IS NOT NULL THEN DELETE FROM onceward.inbox; END IF;
    IF to_regclass('onceward.record') IS NOT NULL THEN
        DELETE FROM onceward.record;
        DELETE FROM onceward.open;
        DELETE FROM onceward.trail;
        DELETE FROM onceward.spool;
    END IF;
    IF to_regclass('onceward.message_trail') IS NOT NULL THEN
        TRUNCATE onceward.message, onceward.sink, onceward.relay, onceward.lane, onceward.step, onceward.parked,
            onceward.message_trail;
    END IF;
END $$";

/// The databases of one bench.
#[derive(Default)]
struct Databases(Mutex<HashMap<String, Arc<Database>>>);

impl Databases {
    fn new() -> Self {
        IDLE.lock().unwrap().benches += 1;
        Self::default()
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        let used = std::mem::take(self.0.get_mut().unwrap());
        let mut idle = IDLE.lock().unwrap();
        idle.databases.extend(used.into_values().filter_map(Arc::into_inner));
        idle.benches -= 1;
        if idle.benches == 0 {
            idle.databases.clear();
        }
    }
}

async fn empty_database() -> Database {
    let idle = IDLE.lock().unwrap().databases.pop();
    match idle {
        Some(database) => {
            connect(database.url()).await.batch_execute(EMPTY).await.unwrap();
            database
        }
        None => testbed::postgres().database(),
    }
}

/// How the stores of a bench are opened.
pub(crate) type Options = fn(PostgresStoreBuilder) -> PostgresStoreBuilder;

/// How a store reaches its database.
pub(crate) type Reach = fn(&Database) -> String;

/// Each store has its own database; all of them go with the bench.
#[derive(Clone)]
pub(crate) struct Postgres {
    databases: Arc<Databases>,
    options: Options,
    reach: Reach,
}

impl Postgres {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(options: Options) -> Self {
        Self {
            databases: Arc::new(Databases::new()),
            options,
            reach: |database| database.url().to_owned(),
        }
    }

    pub(crate) fn through(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// The database of a store.
    pub(crate) fn database(&self, store: &PostgresStore) -> Arc<Database> {
        self.databases.0.lock().unwrap()[&store.address().to_string()].clone()
    }

    async fn connect(&self, database: &Database) -> PostgresStore {
        let builder = PostgresStore::builder(&(self.reach)(database)).unwrap();
        (self.options)(builder).open().await.unwrap()
    }
}

/// Makes a record older, as if its times had been read some time ago.
pub(crate) async fn age(database: &Database, id: &Digest, by: Duration) {
    connect(database.url()).await.batch_execute(&age_statement(id, by)).await.unwrap();
}

pub(crate) fn age_statement(id: &Digest, by: Duration) -> String {
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let by = format!("{} * interval '1 microsecond'", by.as_micros());
    format!(
        "UPDATE onceward.record SET started_at = started_at - {by}, updated_at = updated_at - {by},
             expires_at = expires_at - {by}, sweep_after = sweep_after - {by}
         WHERE digest = '\\x{hex}'"
    )
}

impl Bench for Postgres {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        let database = Arc::new(empty_database().await);
        let store = self.connect(&database).await;
        self.databases.0.lock().unwrap().insert(store.address().to_string(), database);
        store
    }

    async fn reopen(&self, store: PostgresStore) -> Option<PostgresStore> {
        let database = self.database(&store);
        drop(store);
        Some(self.connect(&database).await)
    }

    async fn age(&self, store: &PostgresStore, id: &Digest, by: Duration) {
        age(&self.database(store), id, by).await;
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

/// Connections of the user's own.
#[cfg(feature = "deadpool")]
pub(crate) fn pool(url: &str) -> deadpool_postgres::Pool {
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    deadpool_postgres::Pool::builder(manager).max_size(8).build().unwrap()
}

/// One connection of the user's own.
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
