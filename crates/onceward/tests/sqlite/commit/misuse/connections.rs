//! Connections on which a commit would not mean what it should.

use std::{path::PathBuf, time::Duration};

use axum::response::IntoResponse as _;
use onceward::{
    CommitError, StoreError,
    server::{Claim, Completed},
    store::sqlite::{SqliteStore, SqliteStoreBuilder},
};
use rusqlite::Connection;
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};

use super::{is_charged_once, is_mended_by_a_retry};
use crate::{
    commit::shop::{CommitMethod, Shop, Till},
    server_support::created,
};

/// The text of a refusal that says that nothing was written.
fn refusal(completed: &Result<Completed, CommitError>) -> String {
    match completed {
        Err(CommitError::NotCommitted(StoreError::Unusable(text))) => {
            assert!(text.contains("nothing was written"), "{text}");
            text.clone()
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The client is not told of success, and a retry on a good connection charges once.
async fn is_refused<Fut>(
    shop: &Shop,
    says: &'static str,
    charge: impl Fn(Till, Claim) -> Fut + Clone + Send + Sync + 'static,
) where
    Fut: Future<Output = Result<Completed, CommitError>> + Send + 'static,
{
    let app = shop.app(move |till, claim| {
        let charge = charge.clone();
        async move {
            if claim.attempt() > 1 {
                return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
            }
            let completed = charge(till, claim).await;
            let text = refusal(&completed);
            assert!(text.contains(says), "{text}");
            completed
        }
    });
    is_mended_by_a_retry(shop, &app, 500, "misconfigured").await;
}

/// A file that is not the shop's, with a table for charges and perhaps with one for records.
fn another_file(shop: &Shop, has_records: bool) -> Till {
    let path = shop.directory.path().join("another.db");
    if has_records {
        drop(SqliteStore::open(&path).unwrap());
    }
    let till = Till::new(path);
    let table = "CREATE TABLE charges (id INTEGER PRIMARY KEY, note TEXT NOT NULL)";
    till.connect().execute_batch(table).unwrap();
    till
}

/// The client is not told of success: record and effect would be in two files.
#[tokio::test]
async fn a_transaction_on_another_file_is_refused() {
    for has_records in [false, true] {
        for way in [CommitMethod::Commit, CommitMethod::CompleteInBlocking] {
            let shop = Shop::new();
            let other = another_file(&shop, has_records);
            let inside = other.clone();
            is_refused(&shop, "another.db", move |_, claim| {
                let other = inside.clone();
                async move { other.charge(way, &claim, created("elsewhere")).await }
            })
            .await;
            let count = "SELECT count(*) FROM charges";
            let elsewhere: u32 = other.connect().query_row(count, [], |row| row.get(0)).unwrap();
            assert_eq!(elsewhere, 0, "{way:?}: rolled back there too");
        }
    }
}

/// The client is not told of success: what is in memory is gone with the process.
#[tokio::test]
async fn a_transaction_in_memory_is_refused() {
    let shop = Shop::new();
    is_refused(&shop, "but the records are in", |_, claim| async move {
        let pool = SqlitePool::connect("sqlite::memory:").await?;
        let transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
        claim.commit(transaction, created("in memory")).await
    })
    .await;
    let shop = Shop::new();
    is_refused(&shop, "but the records are in", |till, claim| async move {
        till.blocking(move |connection| {
            *connection = Connection::open_in_memory()?;
            let transaction = connection.transaction()?;
            claim.commit_blocking(transaction, created("in memory"))
        })
        .await
    })
    .await;
}

/// The client hears of its charge: a symbolic link is the same file to SQLite too.
#[cfg(unix)]
#[tokio::test]
async fn a_symbolic_link_to_the_file_is_the_file() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let link = shop.directory.path().join("link.db");
        std::os::unix::fs::symlink(&shop.till.path, &link).unwrap();
        let till = Till::new(link);
        let app = shop.app(move |_, claim| {
            let till = till.clone();
            async move { till.charge(way, &claim, created("charge 1")).await }
        });
        is_charged_once(&shop, &app).await;
    }
}

/// A till whose every connection is told this first.
fn told(shop: &Shop, options: SqliteConnectOptions, statement: String) -> SqlitePool {
    let options = options.filename(&shop.till.path);
    let pool = SqlitePoolOptions::new().after_connect(move |connection, _| {
        let statement = statement.clone();
        Box::pin(async move {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.map(drop)
        })
    });
    pool.connect_lazy_with(options)
}

/// Charges with the driver of the way, on a connection that was told this first.
async fn charge_on(
    till: Till,
    claim: Claim,
    blocking: bool,
    statement: String,
) -> Result<Completed, CommitError> {
    if !blocking {
        return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
    }
    till.blocking(move |connection| {
        connection.execute_batch(&statement)?;
        let transaction = crate::commit::shop::begin_charge_blocking(connection);
        claim.commit_blocking(transaction, created("charge 1"))
    })
    .await
}

/// The client is not told of success that a power failure could undo, unless the shop accepts that.
#[tokio::test]
async fn a_connection_that_promises_less_is_refused_unless_it_is_accepted() {
    for blocking in [false, true] {
        for (number, synchronous) in [(0, SqliteSynchronous::Off), (1, SqliteSynchronous::Normal)] {
            let relaxed = |shop: &Shop| {
                let options = SqliteConnectOptions::new().synchronous(synchronous);
                let pool = told(shop, options, String::new());
                let statement = format!("PRAGMA synchronous = {number}");
                (Till { pool, ..shop.till.clone() }, statement)
            };
            let shop = Shop::new();
            let (till, statement) = relaxed(&shop);
            is_refused(&shop, "synchronous = FULL", move |_, claim| {
                charge_on(till.clone(), claim, blocking, statement.clone())
            })
            .await;

            let shop = Shop::with(SqliteStoreBuilder::accept_relaxed_transactions);
            let (till, statement) = relaxed(&shop);
            let app = shop
                .app(move |_, claim| charge_on(till.clone(), claim, blocking, statement.clone()));
            is_charged_once(&shop, &app).await;
        }
    }
}

/// The client is not told of success that a power failure could halve, unless the shop accepts that.
#[tokio::test]
async fn a_connection_with_another_file_attached_is_refused_unless_it_is_accepted() {
    for blocking in [false, true] {
        let attached = |shop: &Shop| {
            let other: PathBuf = shop.directory.path().join("attached.db");
            Connection::open(&other).unwrap().execute_batch("CREATE TABLE more (id)").unwrap();
            let statement = format!("ATTACH '{}' AS attached", other.display());
            let pool = told(shop, SqliteConnectOptions::new(), statement.clone());
            (Till { pool, ..shop.till.clone() }, statement)
        };
        let shop = Shop::new();
        let (till, statement) = attached(&shop);
        is_refused(&shop, "other files attached", move |_, claim| {
            charge_on(till.clone(), claim, blocking, statement.clone())
        })
        .await;

        let shop = Shop::with(SqliteStoreBuilder::accept_relaxed_transactions);
        let (till, statement) = attached(&shop);
        let app =
            shop.app(move |_, claim| charge_on(till.clone(), claim, blocking, statement.clone()));
        is_charged_once(&shop, &app).await;
    }
}

/// The client hears of its charge: what is attached in memory, or shadows a table, does no harm.
#[tokio::test]
async fn what_a_connection_keeps_in_memory_does_no_harm() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let statement = "ATTACH ':memory:' AS scratch;
            CREATE TEMP TABLE onceward_record (digest, fence);
            CREATE TEMP TABLE onceward_spool (digest, fence)";
        let pool = told(&shop, SqliteConnectOptions::new(), statement.to_owned());
        let till = Till { pool, ..shop.till.clone() };
        let app = shop
            .app(move |_, claim| charge_on(till.clone(), claim, blocking, statement.to_owned()));
        is_charged_once(&shop, &app).await;
    }
}

/// The client is not told of success: a connection that only reads cannot commit.
#[tokio::test]
async fn a_connection_that_only_reads_is_refused() {
    let shop = Shop::new();
    let pool = told(&shop, SqliteConnectOptions::new(), "PRAGMA query_only = true".to_owned());
    is_refused(&shop, "read-only", move |_, claim| {
        let pool = pool.clone();
        async move { claim.commit(pool.begin().await?, created("never")).await }
    })
    .await;
}

/// A transaction that has read, while somebody else has written since.
async fn read_before_another_wrote(till: &Till) -> sqlx::Transaction<'static, sqlx::Sqlite> {
    let mut transaction = till.pool.begin().await.unwrap();
    let count = sqlx::query("SELECT count(*) FROM charges");
    count.fetch_one(&mut *transaction).await.unwrap();
    till.connect().execute_batch("CREATE TABLE another (id)").unwrap();
    transaction
}

/// The client is not told of success, and the handler how to do better.
#[tokio::test]
async fn a_transaction_that_reads_first_while_another_writes_is_told_to_begin_otherwise() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
            }
            let completed = if blocking {
                till.blocking(move |connection| {
                    let other = Connection::open(connection.path().unwrap())?;
                    let transaction = connection.transaction()?;
                    let count = "SELECT count(*) FROM charges";
                    transaction.query_row(count, [], |_| Ok(()))?;
                    other.execute_batch("CREATE TABLE another (id)")?;
                    claim.commit_blocking(transaction, created("never"))
                })
                .await
            } else {
                claim.commit(read_before_another_wrote(&till).await, created("never")).await
            };
            let error = completed.as_ref().unwrap_err().to_string();
            assert!(error.contains("BEGIN IMMEDIATE") && error.contains("nothing was"), "{error}");
            completed
        });
        is_mended_by_a_retry(&shop, &app, 503, "not-committed").await;
    }
}

/// The client is not told of success if it is the effect that meets the other writer.
#[tokio::test]
async fn an_effect_after_a_read_while_another_writes_is_rolled_back() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
        }
        let mut transaction = read_before_another_wrote(&till).await;
        let insert = sqlx::query("INSERT INTO charges (note) VALUES ('never')");
        insert.execute(&mut *transaction).await?;
        panic!("the snapshot is outdated");
    });
    is_mended_by_a_retry(&shop, &app, 503, "not-committed").await;
}

/// The client hears of its charge: a deferred transaction that nobody meets is as good.
#[tokio::test]
async fn a_deferred_transaction_that_meets_nobody_commits() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        let mut transaction = till.pool.begin().await?;
        let count = sqlx::query("SELECT count(*) FROM charges");
        count.fetch_one(&mut *transaction).await?;
        let insert = sqlx::query("INSERT INTO charges (note) VALUES ('a charge')");
        insert.execute(&mut *transaction).await?;
        claim.commit(transaction, created("charge 1")).await
    });
    is_charged_once(&shop, &app).await;
}

/// The client is not told of success while somebody else holds the file.
#[tokio::test]
async fn a_transaction_that_waits_too_long_for_another_writer_is_rolled_back() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let options = SqliteConnectOptions::new().busy_timeout(Duration::from_millis(10));
        let pool = told(&shop, options, String::new());
        let app = shop.app(move |till, claim| {
            let pool = pool.clone();
            async move {
                if claim.attempt() > 1 {
                    return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
                }
                let other = till.begin().await;
                let completed = if blocking {
                    till.blocking(move |connection| {
                        connection.busy_timeout(Duration::from_millis(10))?;
                        claim.commit_blocking(connection.transaction()?, created("never"))
                    })
                    .await
                } else {
                    claim.commit(pool.begin().await?, created("never")).await
                };
                let error = completed.as_ref().unwrap_err();
                assert!(matches!(error, CommitError::NotCommitted(_)), "{error:?}");
                other.rollback().await?;
                completed
            }
        });
        is_mended_by_a_retry(&shop, &app, 503, "not-committed").await;
    }
}

/// The client is not told of success after the file was replaced under a running shop.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_replaced_takes_no_commits() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        for suffix in ["", "-wal", "-shm", "-mark"] {
            let name = format!("shop.db{suffix}");
            let _ = std::fs::remove_file(till.path.with_file_name(name));
        }
        let replaced = Till::new(till.path.clone());
        drop(SqliteStore::open(&till.path).unwrap());
        let table = "CREATE TABLE charges (id INTEGER PRIMARY KEY, note TEXT NOT NULL)";
        replaced.connect().execute_batch(table).unwrap();
        let completed = replaced.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
        assert!(completed.is_err(), "{completed:?}");
        completed.into_response()
    });
    let first = crate::server_support::ask(&app, "k").await;
    assert!(first.status.is_client_error() || first.status.is_server_error(), "{first:?}");
    assert_eq!(shop.charges(), 0);
}
