//! Why a delivery was not applied: its own fault, or that of what the consumer needs.

use std::{error::Error, fmt, io, iter, sync::Arc};

use onceward_core::StoreError;

/// Whatever a consumer fails with. What is no [`Outage`] counts against the delivery.
///
/// ```
/// use onceward::inbox::ConsumeError;
///
/// fn amount(text: &str) -> Result<u32, ConsumeError> {
///     Ok(text.parse()?)
/// }
/// assert!(amount("seven").is_err());
/// ```
pub type ConsumeError = Box<dyn Error + Send + Sync>;

/// What the consumer needs is not there, and no delivery is to pay for that: the loop waits and tries again.
///
/// Errors of connections are taken for outages without it: I/O errors, and what stores and drivers say when their
/// database is not there. Wrap what a consumer needs besides.
///
/// ```
/// use onceward::inbox::{ConsumeError, Outage};
///
/// fn rates() -> Result<u32, ConsumeError> {
///     Err(Outage::new("the service for exchange rates does not answer").into())
/// }
/// assert!(Outage::is(&*rates().unwrap_err()));
/// ```
#[derive(Debug)]
pub struct Outage(ConsumeError);

impl Outage {
    /// Wraps what happened.
    pub fn new(error: impl Into<ConsumeError>) -> Self {
        Self(error.into())
    }

    /// Whether an error, or one of its causes, is an outage.
    #[must_use]
    pub fn is(error: &(dyn Error + 'static)) -> bool {
        iter::successors(Some(error), |&error| error.source()).any(|cause| {
            cause.is::<Self>()
                || cause.is::<io::Error>()
                || matches!(cause.downcast_ref(), Some(StoreError::Unavailable(_)))
                || is_of_driver(cause)
        })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for Outage {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// What drivers say when they have no connection, or lost it.
fn is_of_driver(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "postgres")]
    if error.downcast_ref().is_some_and(tokio_postgres::Error::is_closed) {
        return true;
    }
    #[cfg(feature = "deadpool")]
    if error.is::<deadpool_postgres::PoolError>() {
        return true;
    }
    #[cfg(feature = "sqlx")]
    if let Some(sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed) =
        error.downcast_ref()
    {
        return true;
    }
    #[cfg(feature = "sqlite")]
    if let Some(rusqlite::Error::SqliteFailure(failure, _)) = error.downcast_ref() {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, SystemIoFailure};
        return matches!(failure.code, DatabaseBusy | DatabaseLocked | DiskFull | SystemIoFailure);
    }
    let _ = error;
    false
}

/// A delivery that was given up, for the dead letters of its consumer. Cheap to clone.
///
/// ```
/// use onceward::inbox::Poison;
///
/// fn line(poison: &Poison<String>) -> String {
///     format!("{} failed {} times: {}", poison.id, poison.attempts, poison.why)
/// }
/// ```
#[derive(Debug)]
pub struct Poison<M> {
    /// By which it would be recognised.
    pub id: Arc<str>,
    /// What was sent.
    pub message: Arc<M>,
    /// How many attempts have failed.
    pub attempts: u32,
    /// Why the last one did.
    pub why: String,
}

impl<M> Clone for Poison<M> {
    fn clone(&self) -> Self {
        let Self { id, message, attempts, why } = self;
        let (id, message) = (id.clone(), message.clone());
        Self { id, message, attempts: *attempts, why: why.clone() }
    }
}
