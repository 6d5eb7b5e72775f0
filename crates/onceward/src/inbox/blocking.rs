//! Transactions of rusqlite, where blocking is allowed.

use super::Inbox;
use crate::{
    StoreError, crashpoint,
    engine::injected,
    store::sqlite::{BlockingTransaction, SqliteStore},
};

impl Inbox<SqliteStore> {
    /// [`first_time`](Self::first_time) for a transaction of rusqlite.
    ///
    /// ```
    /// use onceward::{inbox::Inbox, store::sqlite::SqliteStore};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("billing.db");
    /// # let id = "0198c0de-0000-7000-8000-000000000000";
    /// let store = SqliteStore::open(&path)?;
    /// let mut billing = rusqlite::Connection::open(&path)?;
    /// # billing.execute("CREATE TABLE invoice (event TEXT)", [])?;
    /// let inbox = Inbox::new(store.clone());
    ///
    /// let transaction = store.begin_blocking(&mut billing)?;
    /// if inbox.first_time_blocking(&transaction, "billing", id)? {
    ///     transaction.execute("INSERT INTO invoice (event) VALUES (?1)", [id])?;
    /// }
    /// transaction.commit()?; // then acknowledge
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_time_blocking(
        &self,
        transaction: &impl BlockingTransaction,
        consumer: &str,
        message: &str,
    ) -> Result<bool, StoreError> {
        Self::check(consumer, message)?;
        let connection = transaction.connection();
        crashpoint!(
            "inbox.first_time",
            self.store.first_time_in_blocking(connection, consumer, message, self.retain),
            injected()
        )
    }
}
