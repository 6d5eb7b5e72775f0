//! Where the shop, or the consumer, keeps what it has.

use std::{convert::Infallible, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use onceward::{
    message::InspectQueue,
    store::{postgres::PostgresStore, sqlite::SqliteStore},
};
use rusqlite::Connection;
use tokio_postgres::{Client, NoTls};

use super::Failure;

/// A machine that is busy may let a connection wait for long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A file of SQLite, or a database of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file.
    Sqlite(PathBuf),
    /// Its address.
    Postgres(String),
}

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.starts_with("postgres") {
            true => Self::Postgres(text.to_owned()),
            false => Self::Sqlite(text.into()),
        })
    }
}

impl Place {
    /// As it is written on the command line.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres(url) => url.clone(),
        }
    }

    /// Makes all tables that are not there.
    pub async fn prepare(&self) -> Result<(), Failure> {
        match self {
            Self::Sqlite(path) => {
                sqlite(path)?;
                connection(path)?.execute_batch(
                    "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY);
                     CREATE TABLE IF NOT EXISTS ledger
                         (place INTEGER PRIMARY KEY, aggregate TEXT NOT NULL, body TEXT NOT NULL)",
                )?;
            }
            Self::Postgres(url) => {
                PostgresStore::connect(url).await?;
                client(url)
                    .await?
                    .batch_execute(
                        "CREATE TABLE IF NOT EXISTS orders (number bigint PRIMARY KEY);
                         CREATE TABLE IF NOT EXISTS ledger
                             (place bigserial PRIMARY KEY, aggregate text NOT NULL, body text NOT NULL)",
                    )
                    .await?;
            }
        }
        Ok(())
    }

    /// The outbox that is there.
    pub async fn queue(&self) -> Result<Arc<dyn InspectQueue>, Failure> {
        Ok(match self {
            Self::Sqlite(path) => Arc::new(sqlite(path)?),
            Self::Postgres(url) => Arc::new(PostgresStore::connect(url).await?),
        })
    }

    /// The numbers of the orders that were committed.
    pub async fn orders(&self) -> Result<Vec<i64>, Failure> {
        let query = "SELECT number FROM orders ORDER BY number";
        Ok(match self {
            Self::Sqlite(path) => {
                let connection = connection(path)?;
                let mut statement = connection.prepare(query)?;
                let rows = statement.query_map([], |row| row.get(0))?;
                rows.collect::<Result<_, _>>()?
            }
            Self::Postgres(url) => {
                let rows = client(url).await?.query(query, &[]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        })
    }

    /// Aggregate and body of what was applied, in its order.
    pub async fn ledger(&self) -> Result<Vec<(String, String)>, Failure> {
        let query = "SELECT aggregate, body FROM ledger ORDER BY place";
        Ok(match self {
            Self::Sqlite(path) => {
                let connection = connection(path)?;
                let mut statement = connection.prepare(query)?;
                let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect::<Result<_, _>>()?
            }
            Self::Postgres(url) => {
                let rows = client(url).await?.query(query, &[]).await?;
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
        })
    }
}

pub(super) fn sqlite(path: &PathBuf) -> Result<SqliteStore, Failure> {
    Ok(SqliteStore::builder(path).busy_timeout(PATIENCE).reserve_bytes(0).open()?)
}

pub(super) fn connection(path: &PathBuf) -> Result<Connection, Failure> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

pub(super) async fn client(url: &str) -> Result<Client, Failure> {
    let (client, driver) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(driver);
    Ok(client)
}
