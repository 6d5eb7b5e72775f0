//! What can go wrong: when a store is opened, and while it is used.

use std::{error::Error, fmt};

use onceward_core::StoreError;
use redis::{RedisError, ServerError};

use crate::telemetry;

/// Why a [`RedisStore`](super::RedisStore) could not be opened. Nothing was changed.
///
/// No message holds a password.
///
/// ```
/// use onceward::store::redis::{OpenError, RedisStore};
///
/// let mistaken = RedisStore::builder("redis://localhost?prefx=shop").map(drop);
/// assert!(matches!(mistaken, Err(OpenError::Address { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The address of the server cannot be understood.
    Address {
        /// What is wrong with it, as "names no host"; never a part of a password.
        message: String,
        /// What to write.
        help: String,
    },
    /// No server could be reached that takes writes.
    Unreachable(String),
    /// The server does not let this user in.
    Refused(String),
    /// This user may not do what the store needs.
    NotAllowed(String),
    /// The server is none that can keep records: too old, a replica, or one that throws data away when it is full.
    Unfit(String),
    /// The server may lose what it acknowledged, and the operator did not say that this is acceptable.
    Relaxed(String),
    /// Something else went wrong.
    Failed(String),
}

impl OpenError {
    pub(super) fn address(message: &str, help: &str) -> Self {
        Self::Address { message: message.to_owned(), help: help.to_owned() }
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
                    "no Redis or Valkey server that takes writes could be reached: {detail}"
                )
            }
            Self::Refused(detail) => write!(
                formatter,
                "the server does not let us in: {detail}; check user and password in the store's address, and \
                 requirepass or the ACL of the server"
            ),
            Self::NotAllowed(detail) => write!(
                formatter,
                "{detail}; give this user the commands, keys and channels that docs/redis.md lists"
            ),
            Self::Relaxed(detail) => write!(
                formatter,
                "{detail}; say that a lost record is acceptable (guarantee = \"relaxed\", `accept_relaxed`), or \
                 use SQLite or PostgreSQL"
            ),
            Self::Unfit(detail) | Self::Failed(detail) => formatter.write_str(detail),
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

/// When a store is opened, what keeps it from answering keeps it from being opened.
impl From<Trouble> for OpenError {
    fn from(trouble: Trouble) -> Self {
        match trouble.why {
            Why::Refused => Self::Refused(trouble.words),
            Why::NotAllowed => Self::NotAllowed(trouble.words),
            Why::Other | Why::Full => Self::Failed(trouble.words),
            _ => Self::Unreachable(trouble.words),
        }
    }
}

/// Why the server did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The connection broke or was silent: it may have been done.
    Broken,
    /// The connection could not be opened: it was not done.
    Unreachable,
    /// The server does not know the script. Not done.
    NoScript,
    /// Another node of the cluster has the slot. Not done.
    Moved,
    /// Another node has the slot for this once. Not done.
    Asked,
    /// It takes no writes: a replica, or one that lost its primary's role. Not done.
    ReadOnly,
    /// It is busy for a moment: it loads, moves a slot, looks for its primary. Not done.
    Passing,
    /// No memory. Not done.
    Full,
    /// Wrong user or password. Not done.
    Refused,
    /// The user lacks a right. Not done.
    NotAllowed,
    /// Something else.
    Other,
}

/// What went wrong, and the words for it.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: Why,
    pub(super) words: String,
    /// Where the slot is, as `host:port`, with [`Why::Moved`] and [`Why::Asked`].
    pub(super) place: Option<String>,
}

impl Trouble {
    pub(super) fn new(why: Why, words: impl Into<String>) -> Self {
        Self { why, words: words.into(), place: None }
    }

    /// What the driver reports: an answer of the server, or a connection that failed.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => Self::coded(code, error.detail().unwrap_or_default()),
            None if error.kind() == redis::ErrorKind::AuthenticationFailed => {
                Self::new(Why::Refused, error.to_string())
            }
            None => Self::new(Why::Broken, error.to_string()),
        }
    }

    /// An error inside a pipeline.
    pub(super) fn answered(error: &ServerError) -> Self {
        Self::coded(error.code(), error.details().unwrap_or_default())
    }

    /// The server's own words, and what they mean.
    fn coded(code: &str, detail: &str) -> Self {
        // An error inside a script has the code of the command only in its words.
        let inner = detail.split_whitespace().next().unwrap_or_default();
        let code = if code == "ERR" && inner == "OOM" { inner } else { code };
        let words = format!("{code} {detail}");
        let (why, help) = meaning(code, detail);
        let words = match help {
            "" => words,
            help => format!("{words} ({help})"),
        };
        let place = detail.split_whitespace().nth(1).map(str::to_owned);
        let place = place.filter(|_| matches!(why, Why::Moved | Why::Asked));
        Self { why, words, place }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self.why {
            Why::Full => {
                telemetry::STORE_FULL
                    .raise(format_args!("the server has no memory left: {}", self.words));
                StoreError::Full(self.words)
            }
            Why::Refused => StoreError::Unusable(OpenError::Refused(self.words).to_string()),
            Why::NotAllowed => StoreError::Unusable(OpenError::NotAllowed(self.words).to_string()),
            Why::Other => StoreError::Unusable(self.words),
            _ => StoreError::Unavailable(self.words),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        trouble.into_error()
    }
}

fn meaning(code: &str, detail: &str) -> (Why, &'static str) {
    match code {
        "NOSCRIPT" => (Why::NoScript, ""),
        "MOVED" => (
            Why::Moved,
            "this server is a node of a cluster: write redis+cluster:// in the store's address",
        ),
        "ASK" => (
            Why::Asked,
            "this server is a node of a cluster: write redis+cluster:// in the store's address",
        ),
        "READONLY" => (
            Why::ReadOnly,
            "it is a replica; a primary takes over, or the address names the wrong server",
        ),
        "LOADING" => (Why::Passing, "it reads its data after a start"),
        "MASTERDOWN" => (Why::Passing, "the link to its primary is down"),
        "BUSY" => (Why::Passing, "a script of another client runs for too long"),
        "NOREPLICAS" => {
            (Why::Passing, "fewer replicas are connected than min-replicas-to-write asks for")
        }
        "TRYAGAIN" => (Why::Passing, "a slot of the cluster is being moved"),
        "CLUSTERDOWN" => (Why::Passing, "the cluster has too few primaries"),
        "MISCONF" => (Why::Passing, "it could not write its snapshot or log to disk: see its log"),
        "OOM" => (Why::Full, "raise maxmemory, or keep records for a shorter time"),
        "NOAUTH" | "WRONGPASS" => (Why::Refused, ""),
        "NOPERM" => (Why::NotAllowed, ""),
        "ERR" if detail.contains("cluster support disabled") => {
            (Why::Other, "it is no node of a cluster: write redis:// in the store's address")
        }
        "ERR" if detail.contains("can't run this command") => (Why::NotAllowed, ""),
        "ERR" if detail.contains("AUTH") => (Why::Refused, ""),
        "ERR" if detail.contains("max number of clients") => (Why::Passing, "raise maxclients"),
        _ => (Why::Other, ""),
    }
}
