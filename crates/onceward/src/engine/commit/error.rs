//! Why an operation did not end in the user's transaction.

use std::fmt;

use onceward_core::StoreError;

/// Why an operation did not end in the user's transaction.
///
/// ```
/// use onceward::CommitError;
///
/// fn is_worth_another_try(error: &CommitError) -> bool {
///     matches!(error, CommitError::NotCommitted(_) | CommitError::Doubtful(_))
/// }
/// assert!(!is_worth_another_try(&CommitError::LeaseLost), "another execution has done it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitError {
    /// The claim is over: another execution took over, and has the right to the effect. Roll back.
    LeaseLost,
    /// This execution has ended the operation before; the first end counts. Roll back.
    Twice,
    /// The engine's store is not one that such a transaction can reach. Roll back.
    WrongStore,
    /// It is a savepoint inside another transaction, whose commit is not the end. Commit the outer one.
    Savepoint,
    /// No transaction is open: SQLite has rolled it back by itself after an error that was not heeded.
    /// What was written since then is committed, and the engine does not know what that is.
    NotOpen,
    /// The body of the answer broke off, or did not come at once. Roll back.
    AnswerBroke,
    /// The database refused; nothing was committed.
    NotCommitted(StoreError),
    /// The commit failed, and whether it was done cannot be read now.
    Doubtful(StoreError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseLost => formatter.write_str(
                "another execution took this operation over, and its effect counts; roll back",
            ),
            Self::Twice => formatter.write_str(
                "this execution has ended its operation before, and the first end counts; roll back \
                 and end it once",
            ),
            Self::WrongStore => formatter.write_str(
                "the records of this engine are not in such a database, so that they cannot be \
                 committed together; roll back and use a store in the same database",
            ),
            Self::Savepoint => formatter.write_str(
                "this is a savepoint inside another transaction; propose the end with \
                 `complete_in` and commit the outer one",
            ),
            Self::NotOpen => formatter.write_str(
                "no transaction is open: SQLite has rolled it back by itself after an error, and \
                 what was written since then is committed already; heed the errors of statements",
            ),
            Self::AnswerBroke => formatter.write_str(
                "the body of the answer broke off or did not come at once, so that it cannot be \
                 kept; roll back",
            ),
            Self::NotCommitted(error) => write!(formatter, "nothing was committed: {error}"),
            Self::Doubtful(error) => write!(
                formatter,
                "it cannot be read now whether the transaction was committed: {error}"
            ),
        }
    }
}

impl std::error::Error for CommitError {}

impl CommitError {
    /// What an error inside the transaction means.
    pub(super) fn inside(error: StoreError) -> Self {
        match error {
            StoreError::NotOpen(_) => Self::NotOpen,
            error => Self::NotCommitted(error),
        }
    }
}

/// Whether an error with this SQLSTATE is the server's own word that it did not do what it was asked.
///
/// Not where the connection or the server went away: a pooler may say so, and
/// a server that stops while a commit waits for its standby has written it. Nor where the
/// server itself does not know.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
pub(crate) fn is_refusal(sqlstate: &str) -> bool {
    !(sqlstate.starts_with("08") || sqlstate.starts_with("57P0") || sqlstate == "40003")
}

/// Whether an error of SQLite may be of a commit that comes back after a crash.
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
fn may_come_back(code: i32) -> bool {
    const IOERR: i32 = 10;
    const FULL: i32 = 13;
    matches!(code & 0xff, IOERR | FULL)
}

/// Nothing was committed if the error says so for certain. One without an answer may be that of a
/// commit, and then it is in doubt.
#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let is_certain = match &error {
            E::Database(error) => match error.code() {
                // SQLite's codes are shorter.
                Some(code) if code.len() == 5 => is_refusal(&code),
                Some(code) => code.parse().is_ok_and(|code| !may_come_back(code)),
                None => false,
            },
            // They come from the driver's side, or before a transaction.
            E::Configuration(_)
            | E::InvalidArgument(_)
            | E::RowNotFound
            | E::TypeNotFound { .. }
            | E::ColumnIndexOutOfBounds { .. }
            | E::ColumnNotFound(_)
            | E::ColumnDecode { .. }
            | E::Encode(_)
            | E::Decode(_)
            | E::PoolTimedOut
            | E::PoolClosed
            | E::BeginFailed => true,
            _ => false,
        };
        let error = StoreError::Unavailable(error.to_string());
        match is_certain {
            true => Self::NotCommitted(error),
            false => Self::Doubtful(error),
        }
    }
}

/// Nothing was committed, unless the disk failed: that may be the error of a commit, which may come
/// back after a crash.
#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        let code = error.sqlite_error().map(|error| error.extended_code);
        let error = StoreError::Unavailable(error.to_string());
        match code.is_some_and(may_come_back) {
            true => Self::Doubtful(error),
            false => Self::NotCommitted(error),
        }
    }
}
