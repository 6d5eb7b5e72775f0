//! What can go wrong: when a database is opened, and while it is used.

use std::{error::Error, fmt};

use onceward_core::StoreError;
use tokio_postgres::error::{DbError, SqlState};

use crate::telemetry;

/// Why a [`PostgresStore`](super::PostgresStore) could not be opened. Nothing was changed.
///
/// No message holds a password.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use onceward::store::postgres::{OpenError, PostgresStore};
///
/// let error = PostgresStore::connect("postgres://shop@localhost/shop?sslmod=require").await.unwrap_err();
/// assert!(matches!(error, OpenError::Address { .. }));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The address of the database cannot be understood.
    Address {
        /// What is wrong with it, as "has a `#` in it"; never a part of a password.
        message: String,
        /// What to write.
        help: String,
    },
    /// No server could be reached that takes writes.
    Unreachable(String),
    /// The server does not let this user in, or not to this database.
    Refused(String),
    /// This user may not do what the store needs.
    NotAllowed(String),
    /// The tables are missing or older than this software, and an option keeps it from changing them.
    Outdated {
        /// The version of the tables; 0 if there are none.
        found: u32,
        /// The version that this software needs.
        needed: u32,
    },
    /// Newer software has changed the tables.
    Newer {
        /// The version of the tables.
        found: u32,
        /// The newest version that this software knows.
        known: u32,
    },
    /// The server promises less than a strict store must.
    Relaxed(String),
    /// Something else went wrong.
    Failed(String),
}

const STANDBY: &str = "; this is a standby, or read-only by its settings, and nothing was changed: name the \
    primary in the store's address, or all servers of it with commas, as in postgres://shop@one,two/shop";

impl OpenError {
    pub(super) fn address(message: &str, help: &str) -> Self {
        Self::Address { message: message.to_owned(), help: help.to_owned() }
    }

    pub(super) fn from_driver(error: &tokio_postgres::Error) -> Self {
        let text = describe(error);
        let Some(code) = error.code() else {
            // The driver looks for a server that takes writes, and has no code for one that does not.
            let is_standby = text.contains("does not allow writes");
            let help = if is_standby { STANDBY } else { "" };
            return Self::Unreachable(format!("{text}{help}"));
        };
        match code.code() {
            "28P01" | "28000" | "3D000" => Self::Refused(text),
            "42501" => Self::NotAllowed(text),
            "53300" => Self::Unreachable(format!(
                "{text}; raise max_connections of the server, or put a pooler like PgBouncer between"
            )),
            "57P03" | "57P01" | "57P02" => Self::Unreachable(text),
            _ => Self::Failed(text),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { message, help } => {
                write!(formatter, "the store's address {message}; {help}")
            }
            Self::Unreachable(detail) => {
                write!(
                    formatter,
                    "no PostgreSQL server that takes writes could be reached: {detail}"
                )
            }
            Self::Refused(detail) => write!(
                formatter,
                "PostgreSQL does not let us in: {detail}; check user, password and database in the \
                 store's address, and pg_hba.conf of the server"
            ),
            Self::NotAllowed(detail) => write!(
                formatter,
                "{detail}; let the owner of the schema run `onceward migrate`, then: GRANT USAGE ON \
                 SCHEMA onceward TO this user; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN \
                 SCHEMA onceward TO this user; for relays, and operators of messages, also: GRANT SELECT \
                 ON ALL SEQUENCES IN SCHEMA onceward TO this user; GRANT EXECUTE ON ALL FUNCTIONS IN \
                 SCHEMA onceward TO this user"
            ),
            Self::Outdated { found: 0, .. } => formatter.write_str(
                "the database has no tables of Onceward; run `onceward migrate --store …` first",
            ),
            Self::Outdated { found, needed } => write!(
                formatter,
                "the tables have version {found}, this software needs {needed}; run `onceward migrate \
                 --store …` first"
            ),
            Self::Newer { found, known } => write!(
                formatter,
                "the tables have version {found}, this software knows {known}; start the newer \
                 software that changed them"
            ),
            Self::Relaxed(detail) => write!(
                formatter,
                "{detail}; set that right, or say that a lost record is acceptable (guarantee = \
                 \"relaxed\", `accept_relaxed`)"
            ),
            Self::Failed(detail) => formatter.write_str(detail),
        }
    }
}

impl Error for OpenError {}

/// While it is used, a store that could not be opened anew does not answer.
impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Unreachable(_) | OpenError::Failed(_) => {
                Self::Unavailable(error.to_string())
            }
            other => Self::Unusable(other.to_string()),
        }
    }
}

/// What an error of the driver says, with the server's own words and its hint. Never a value.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return describe_db(error);
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        let words = deeper.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = deeper.source();
    }
    text
}

fn describe_db(error: &DbError) -> String {
    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{hint} [{}]", error.message(), error.code().code())
}

/// What became of a statement that failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// An open transaction of a service held a row for too long. Nothing was changed.
    Held,
    /// It got in the way of another transaction, and was undone. It may be sent again.
    Undone(StoreError),
    /// The server does not take a value of one of the changes. Nothing was changed.
    Value(StoreError),
    /// Everything else.
    Failed(StoreError),
}

impl Trouble {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Held,
            Some(&(SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED)) => {
                Self::Undone(StoreError::Unavailable(describe(error)))
            }
            Some(code) if is_of_value(code.code()) => Self::Value(store_error(error)),
            _ => Self::Failed(store_error(error)),
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Held => {
                StoreError::Unavailable("another transaction holds the record".to_owned())
            }
            Self::Undone(error) | Self::Value(error) | Self::Failed(error) => error,
        }
    }
}

/// Data exceptions, violated constraints, and limits of the server as the size of a row in an index.
fn is_of_value(code: &str) -> bool {
    ["22", "23", "54"].iter().any(|class| code.starts_with(class))
}

/// What an error of the driver means for a store: only what the server itself has refused is definite.
pub(super) fn store_error(error: &tokio_postgres::Error) -> StoreError {
    let text = describe(error);
    let Some(code) = error.code() else { return StoreError::Unavailable(text) };
    match code.code() {
        // The disk, or a quota.
        "53100" => {
            telemetry::STORE_FULL.raise(format_args!("PostgreSQL has no room left: {text}"));
            StoreError::Full(text)
        }
        "XX001" | "XX002" => {
            telemetry::STORE_CORRUPT.raise(format_args!("PostgreSQL reports damage: {text}"));
            StoreError::Unusable(text)
        }
        "42501" => StoreError::Unusable(OpenError::NotAllowed(text).to_string()),
        // What relays are told that must not go on.
        "OW004" => StoreError::Unusable(text),
        "42P01" | "3F000" | "42703" | "42883" => StoreError::Unusable(format!(
            "{text}; the tables of Onceward are missing or older than this software: run `onceward \
             migrate --store …`"
        )),
        "57014" => StoreError::Unavailable(format!(
            "{text}; raise the statement_timeout of this role, or look what keeps the server busy"
        )),
        _ => StoreError::Unavailable(text),
    }
}
