//! The inbox: a message that comes again changes nothing.
//!
//! A consumer records the id of a message in the transaction of its effect. What a relay, a broker or a webhook
//! sends at least once is then applied once.
//!
//! ```
//! use onceward::{StoreError, engine::Transaction, inbox::Inbox, message::Receive};
//!
//! /// `true`: apply it, then commit; `false`: acknowledge it, nothing is to be done.
//! async fn is_new<T, S>(inbox: &Inbox<S>, shop: &mut T, id: &str) -> Result<bool, StoreError>
//! where
//!     T: Transaction,
//!     S: Receive<T::Connection>,
//! {
//!     inbox.first_time(shop, "billing", id).await
//! }
//! ```

#[cfg(feature = "sqlite")]
mod blocking;
mod builder;
mod consumer;

use std::time::Duration;

use crate::{
    StoreError, crashpoint,
    engine::{Transaction, injected},
    message::Receive,
};

pub use builder::{InboxBuilder, InboxError};
pub use consumer::{Applied, ConsumeError, Consumer, Delivery, Incoming, Outage, Poison, Source};

/// Remembers which messages a consumer has got, in the consumer's own database.
///
/// The store is one in that database: `PostgresStore` or `SqliteStore`. Transactions of rusqlite have a method of
/// their own, whose name ends in `_blocking`.
///
/// ```
/// use std::time::Duration;
/// use onceward::inbox::Inbox;
/// # use onceward::store::postgres::PostgresStore;
///
/// # async fn consume(store: PostgresStore, client: &mut tokio_postgres::Client, id: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = Inbox::new(store);
///
/// let mut shop = client.transaction().await?;
/// if inbox.first_time(&mut shop, "billing", id).await? {
///     shop.execute("INSERT INTO invoice (event) VALUES ($1)", &[&id]).await?;
/// }
/// shop.commit().await?; // then acknowledge
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Inbox<S> {
    pub(crate) store: S,
    pub(crate) retain: Duration,
}

impl<S> Inbox<S> {
    /// How long a message is remembered, if not said otherwise.
    pub const RETAIN: Duration = Duration::from_secs(7 * 24 * 3600);

    /// The longest name of a consumer, and the longest id of a message.
    pub const MAX_NAME: usize = 255;

    /// Remembers messages for seven days.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store, retain: Self::RETAIN }
    }

    /// Starts with the default options, to say how long messages may come again.
    pub fn builder(store: S) -> InboxBuilder<S> {
        InboxBuilder::new(store)
    }

    /// Whether this consumer gets this message for the first time; the transaction's commit remembers it.
    ///
    /// `true`: apply the message in this transaction and commit. `false`: it was applied before; acknowledge it.
    /// A second delivery waits for the transaction of the first one. After an error the transaction must be rolled
    /// back, and the message must not be acknowledged.
    pub async fn first_time<T: Transaction>(
        &self,
        transaction: &mut T,
        consumer: &str,
        message: &str,
    ) -> Result<bool, StoreError>
    where
        S: Receive<T::Connection>,
    {
        Self::check(consumer, message)?;
        let connection = transaction.connection();
        let first = self.store.first_time_in(connection, consumer, message, self.retain);
        crashpoint!("inbox.first_time", first.await, injected())
    }

    /// How long a message is remembered.
    #[must_use]
    pub fn retain(&self) -> Duration {
        self.retain
    }

    pub(crate) fn check(consumer: &str, message: &str) -> Result<(), StoreError> {
        let fits = |text: &str| (1..=Self::MAX_NAME).contains(&text.len()) && !text.contains('\0');
        match fits(consumer) && fits(message) {
            true => Ok(()),
            false => Err(StoreError::Refused(
                "the name of a consumer and the id of a message have 1 to 255 bytes, none of them zero; \
                 nothing was recorded: the message cannot be recognised when it comes again"
                    .to_owned(),
            )),
        }
    }
}
