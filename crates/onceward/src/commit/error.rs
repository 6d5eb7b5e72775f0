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
/// assert!(!is_worth_another_try(&CommitError::LeaseLost), "somebody else has done it");
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
    /// What was written since then is committed, and nobody knows what that is.
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

/// The effect failed before it came to a commit: nothing was committed.
#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}

/// The effect failed before it came to a commit: nothing was committed.
#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        Self::NotCommitted(StoreError::Unavailable(error.to_string()))
    }
}
