//! Transactions of rusqlite, where blocking is allowed.

use super::{EnqueueError, MessageId, NewMessage, Outbox};
use crate::{
    crashpoint,
    engine::injected,
    store::sqlite::{BlockingTransaction, SqliteStore},
};

impl Outbox<SqliteStore> {
    /// [`enqueue`](Self::enqueue) for a transaction of rusqlite.
    ///
    /// ```
    /// use onceward::{outbox::{Outbox, json}, store::sqlite::SqliteStore};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("shop.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut shop = rusqlite::Connection::open(&path)?;
    /// # shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)", [])?;
    /// let outbox = Outbox::new(store.clone());
    ///
    /// let transaction = store.begin_blocking(&mut shop)?;
    /// transaction.execute("INSERT INTO orders (id) VALUES (7)", [])?;
    /// let placed = json("order.placed", &[("order", 7)])?;
    /// outbox.enqueue_blocking(&transaction, placed.aggregate("order-7")?)?;
    /// transaction.commit()?; // this sends it
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "as `enqueue` does")]
    pub fn enqueue_blocking(
        &self,
        transaction: &impl BlockingTransaction,
        message: NewMessage,
    ) -> Result<MessageId, EnqueueError> {
        message.check()?;
        let connection = transaction.connection();
        let enqueued = crashpoint!(
            "outbox.enqueue",
            self.queue.enqueue_in_blocking(connection, &message),
            injected()
        );
        enqueued.map_err(|error| EnqueueError::of(error, &message))
    }
}
