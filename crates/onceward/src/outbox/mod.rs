//! The outbox: messages that leave with a commit.
//!
//! A producer puts a message into the outbox inside the transaction of its effect. If that commits, a relay
//! delivers the message at least once, in order per aggregate; if it does not, no sink ever gets it.
//!
//! ```
//! use onceward::{engine::Transaction, message::Enqueue, outbox::{EnqueueError, NewMessage, Outbox}};
//!
//! /// Works with tokio-postgres, deadpool and sqlx: the commit of the order is that of its event.
//! async fn placed<T, Q>(outbox: &Outbox<Q>, shop: &mut T, order: u64) -> Result<(), EnqueueError>
//! where
//!     T: Transaction,
//!     Q: Enqueue<T::Connection>,
//! {
//!     let message = NewMessage::new("order.placed", format!("{{\"order\":{order}}}"))?;
//!     outbox.enqueue(shop, message.aggregate(&format!("order-{order}"))?).await?;
//!     Ok(())
//! }
//! ```

#[cfg(feature = "sqlite")]
mod blocking;
mod error;
#[cfg(feature = "relay")]
mod http_sink;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod json;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "relay")]
mod sink;
#[cfg(feature = "relay")]
mod spans;
#[cfg(feature = "postgres")]
mod with_commit;

use crate::{
    crashpoint,
    engine::{Transaction, injected},
    message::Enqueue,
};

pub use crate::message::{Aggregate, Message, MessageError, MessageId, NewMessage, Topic};
#[cfg(feature = "relay")]
pub use crate::message::{DeadLetters, Sent, SinkName, StartFrom};
pub use error::EnqueueError;
#[cfg(feature = "relay")]
pub use http_sink::{HttpSink, HttpSinkError};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use json::{JsonError, json};
#[cfg(feature = "relay")]
pub use relay::{
    OtherTopics, Relay, RelayBuildError, RelayBuilder, RelayError, SinkOptions, Waker,
};
#[cfg(feature = "relay")]
pub use sink::{Attempt, Sink};
#[cfg(feature = "relay")]
pub use spans::DeliverySpan;
#[cfg(feature = "postgres")]
pub use with_commit::PreparedOutbox;

/// Puts messages into a queue, inside transactions of the caller's own.
///
/// The queue is a store in the database of those transactions: `PostgresStore` or `SqliteStore`. Transactions of
/// rusqlite have a method of their own, whose name ends in `_blocking`.
///
/// ```
/// use onceward::outbox::{EnqueueError, Outbox, json};
/// # use onceward::store::postgres::PostgresStore;
///
/// # async fn order(store: PostgresStore, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = Outbox::new(store);
///
/// let mut shop = client.transaction().await?;
/// shop.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
/// let placed = json("order.placed", &[("order", 7)])?;
/// outbox.enqueue(&mut shop, placed.aggregate("order-7")?).await?;
/// shop.commit().await?; // this sends it
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Outbox<Q> {
    pub(crate) queue: Q,
}

impl<Q> Outbox<Q> {
    /// Messages go into this queue.
    #[must_use]
    pub fn new(queue: Q) -> Self {
        Self { queue }
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Puts a message into the outbox: the transaction's commit sends it, a rollback leaves nothing of it.
    ///
    /// To keep the order of an aggregate, enqueue after its row was locked or written in this transaction. After
    /// an error the transaction must be rolled back.
    pub async fn enqueue<T: Transaction>(
        &self,
        transaction: &mut T,
        message: NewMessage,
    ) -> Result<MessageId, EnqueueError>
    where
        Q: Enqueue<T::Connection>,
    {
        message.check()?;
        let enqueued = self.queue.enqueue_in(transaction.connection(), &message);
        let enqueued = crashpoint!("outbox.enqueue", enqueued.await, injected());
        enqueued.map_err(|error| EnqueueError::of(error, &message))
    }
}
