//! A shop, and its till with both drivers.

use std::{future::Future, path::PathBuf, sync::Arc};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{Request, Response},
    response::IntoResponse,
    routing::post as on_post,
};
use onceward::{
    CommitError, Effect, Status, Store,
    clock::ManualClock,
    server::{Claim, Completed, IdempotencyBuilder},
    store::sqlite::{SqliteStore, SqliteStoreBuilder},
};
use rusqlite::{Connection, TransactionBehavior};
use sqlx::{Sqlite, SqlitePool, Transaction, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::server_support::{self, layer, post};

/// What a charge is, without any constraint: two rows are two effects.
const CHARGES: &str = "CREATE TABLE charges (id INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT";
const INSERT: &str = "INSERT INTO charges (note) VALUES ('a charge')";

/// One file with the shop's own table and the records, by a clock that the test moves.
pub(crate) struct Shop {
    pub(crate) store: SqliteStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) till: Till,
    pub(crate) directory: TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(choose: impl FnOnce(SqliteStoreBuilder) -> SqliteStoreBuilder) -> Self {
        let directory = testbed::directory();
        let path = directory.path().join("shop.db");
        let clock = Arc::new(ManualClock::default());
        let builder = choose(SqliteStore::builder(&path)).clock(clock.clone());
        let store = builder.open().unwrap();
        Connection::open(&path).unwrap().execute_batch(CHARGES).unwrap();
        Self { store, clock, till: Till::new(path), directory }
    }

    /// The store of another process on the same file.
    pub(crate) fn another_store(&self) -> SqliteStore {
        SqliteStore::builder(&self.till.path).clock(self.clock.clone()).open().unwrap()
    }

    /// A service whose handler is given the till and its claim.
    pub(crate) fn service<Fut>(
        &self,
        choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
        handler: impl Fn(Till, Claim) -> Fut + Clone + Send + Sync + 'static,
    ) -> Router
    where
        Fut: Future<Output: IntoResponse> + Send + 'static,
    {
        service_on(self.store.clone(), self.till.clone(), choose, handler)
    }

    pub(crate) fn app<Fut>(
        &self,
        handler: impl Fn(Till, Claim) -> Fut + Clone + Send + Sync + 'static,
    ) -> Router
    where
        Fut: Future<Output: IntoResponse> + Send + 'static,
    {
        self.service(|layer| layer, handler)
    }

    /// How many charges there really are.
    pub(crate) fn charges(&self) -> usize {
        self.count("charges")
    }

    /// How many chunks of large answers are kept.
    pub(crate) fn chunks(&self) -> usize {
        self.count("onceward_spool")
    }

    fn count(&self, table: &str) -> usize {
        let sql = format!("SELECT count(*) FROM {table}");
        let count: u32 = self.till.connect().query_row(&sql, [], |row| row.get(0)).unwrap();
        count as usize
    }

    /// What the record of a key means now.
    pub(crate) async fn status(&self, key: &str) -> Option<Status> {
        server_support::status(&self.store, key).await
    }
}

/// A service on any store.
pub(crate) fn service_on<Fut>(
    store: impl Store,
    till: Till,
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    handler: impl Fn(Till, Claim) -> Fut + Clone + Send + Sync + 'static,
) -> Router
where
    Fut: Future<Output: IntoResponse> + Send + 'static,
{
    let idempotency = choose(layer(store).effect(Effect::Transactional)).build().unwrap();
    let handler = move |claim: Claim| handler(till.clone(), claim);
    Router::new().route("/charges", on_post(handler)).layer(idempotency)
}

/// The shop's own connections to its file.
#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) path: PathBuf,
    pub(crate) pool: SqlitePool,
}

impl Till {
    pub(crate) fn new(path: PathBuf) -> Self {
        let options = SqliteConnectOptions::new().filename(&path);
        Self { path, pool: SqlitePool::connect_lazy_with(options) }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    pub(crate) async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    /// A transaction of sqlx with the effect in it.
    pub(crate) async fn begin_charge(&self) -> Transaction<'static, Sqlite> {
        let mut transaction = self.begin().await;
        sqlx::query(INSERT).execute(&mut *transaction).await.unwrap();
        transaction
    }

    /// Runs blocking code with a new connection of rusqlite.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        body: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> T {
        let mut connection = self.connect();
        tokio::task::spawn_blocking(move || body(&mut connection)).await.unwrap()
    }

    /// Charges and ends the claim with this answer, in one of the ways.
    pub(crate) async fn charge(
        &self,
        way: CommitMethod,
        claim: &Claim,
        answer: Response<AxumBody>,
    ) -> Result<Completed, CommitError> {
        match way {
            CommitMethod::Commit => claim.commit(self.begin_charge().await, answer).await,
            CommitMethod::CompleteIn => {
                let mut transaction = self.begin_charge().await;
                let completed = claim.complete_in(&mut transaction, answer).await?;
                transaction.commit().await?;
                Ok(completed)
            }
            CommitMethod::CommitBlocking => {
                let claim = claim.clone();
                self.blocking(move |connection| {
                    claim.commit_blocking(begin_charge_blocking(connection), answer)
                })
                .await
            }
            CommitMethod::CompleteInBlocking => {
                let claim = claim.clone();
                self.blocking(move |connection| {
                    let transaction = begin_charge_blocking(connection);
                    let completed = claim.complete_in_blocking(&transaction, answer)?;
                    transaction.commit()?;
                    Ok(completed)
                })
                .await
            }
        }
    }
}

/// A transaction of rusqlite with the effect in it.
pub(crate) fn begin_charge_blocking(connection: &mut Connection) -> rusqlite::Transaction<'_> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute(INSERT, []).unwrap();
    transaction
}

/// How a handler ends its claim with its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitMethod {
    Commit,
    CompleteIn,
    CommitBlocking,
    CompleteInBlocking,
}

impl CommitMethod {
    pub(crate) const ALL: [Self; 4] =
        [Self::Commit, Self::CompleteIn, Self::CommitBlocking, Self::CompleteInBlocking];
}

pub(crate) fn request(key: &str) -> Request<AxumBody> {
    post("/charges", key, "{}")
}
