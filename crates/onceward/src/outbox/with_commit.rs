//! Messages that go with the commit that sends them, on a connection of tokio-postgres.

use tokio_postgres::{Client, Statement};

use super::{EnqueueError, MessageId, NewMessage, Outbox};
use crate::{
    CommitError,
    store::postgres::{OwnTransaction, PostgresStore},
};

impl Outbox<PostgresStore> {
    /// Puts messages into the outbox and commits, in one round trip: they cost none of their own.
    ///
    /// If one of them is refused nothing is committed.
    ///
    /// ```
    /// use onceward::{outbox::{Outbox, json}, store::postgres::PostgresStore};
    ///
    /// # async fn order(outbox: Outbox<PostgresStore>, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let shop = outbox.queue().begin(client).await?;
    /// shop.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
    /// let placed = json("order.placed", &[("order", 7)])?.aggregate("order-7")?;
    /// outbox.enqueue_and_commit(shop, &[placed]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_and_commit(
        &self,
        transaction: OwnTransaction<'_>,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, CommitError> {
        self.queue.enqueue_and_commit(transaction, None, messages).await
    }

    /// Prepares the statement that enqueues, for a connection that is kept: the server need not read and plan it each
    /// time. Not for a connection behind a pooler in transaction mode.
    ///
    /// ```
    /// use onceward::{CommitError, outbox::{EnqueueError, NewMessage, Outbox, PreparedOutbox}, store::postgres::PostgresStore};
    /// use tokio_postgres::Client;
    ///
    /// /// Once for each connection.
    /// async fn prepared(outbox: &Outbox<PostgresStore>, client: &Client) -> Result<PreparedOutbox, EnqueueError> {
    ///     outbox.prepare(client).await
    /// }
    /// ```
    pub async fn prepare(&self, client: &Client) -> Result<PreparedOutbox, EnqueueError> {
        let statement = self.queue.prepare_enqueue(client).await.map_err(EnqueueError::Store)?;
        Ok(PreparedOutbox { queue: self.queue.clone(), statement })
    }
}

/// An outbox with a statement that was prepared on one connection: see [`Outbox::prepare`].
///
/// ```
/// use onceward::{CommitError, outbox::{NewMessage, PreparedOutbox}, store::postgres::OwnTransaction};
///
/// async fn end(outbox: &PreparedOutbox, shop: OwnTransaction<'_>, message: NewMessage) -> Result<(), CommitError> {
///     outbox.enqueue_and_commit(shop, &[message]).await.map(drop)
/// }
/// ```
#[derive(Clone)]
pub struct PreparedOutbox {
    queue: PostgresStore,
    statement: Statement,
}

impl PreparedOutbox {
    /// [`Outbox::enqueue_and_commit`], on the connection that this was prepared on. On another one it is refused, and
    /// nothing is committed.
    pub async fn enqueue_and_commit(
        &self,
        transaction: OwnTransaction<'_>,
        messages: &[NewMessage],
    ) -> Result<Vec<MessageId>, CommitError> {
        self.queue.enqueue_and_commit(transaction, Some(&self.statement), messages).await
    }
}

impl std::fmt::Debug for PreparedOutbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PreparedOutbox").finish_non_exhaustive()
    }
}
