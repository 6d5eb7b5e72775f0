//! Mends the outbox of a copied database.

use onceward_core::StoreError;
use tokio_postgres::types::{ToSql, Type};

use super::super::{PostgresStore, error::store_error, link::Link};

/// How a database came to be a copy of the one where its outbox was made.
///
/// ```
/// use onceward::store::postgres::Rebase;
///
/// assert_ne!(Rebase::Restored, Rebase::Upgraded);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rebase {
    /// By a dump, or by replication of rows: its transactions have other numbers than before.
    Restored,
    /// By `pg_upgrade`, or as a template of another database of the same server: its transactions kept their numbers.
    Upgraded,
}

/// What a rebase did.
///
/// ```
/// use onceward::store::postgres::Rebased;
///
/// fn undelivered(rebased: &Rebased) -> u64 {
///     rebased.renewed + rebased.waiting
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebased {
    /// How many messages no sink had got: they are new again, in their order.
    pub renewed: u64,
    /// How many times a message waits at a sink that had not got it, while another one had.
    pub waiting: u64,
}

impl PostgresStore {
    /// Mends the outbox of a copied database, so that relays may go on.
    ///
    /// A copy counts its places by the transactions of another server: relays refuse to work on it, because new
    /// messages would look delivered. This finds out what each sink had not got when the copy was made, and
    /// lets it be delivered: at least once, in order, as always. What was enqueued since then is new. Producers wait
    /// meanwhile; an entry in the trail says who did it and why.
    ///
    /// ```no_run
    /// # async fn mend(store: onceward::store::postgres::PostgresStore) -> Result<(), onceward::StoreError> {
    /// use onceward::store::postgres::Rebase;
    ///
    /// let rebased = store.rebase(Rebase::Restored, Some("ada"), "restored the backup of Tuesday").await?;
    /// println!("{} messages are to be delivered", rebased.renewed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebase(
        &self,
        how: Rebase,
        actor: Option<&str>,
        reason: &str,
    ) -> Result<Rebased, StoreError> {
        self.check_takes_messages()?;
        // A connection of its own, on which this may take as long as it needs.
        let link = Link::open(&self.inner.how).await?;
        let is_kept = how == Rebase::Upgraded;
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&is_kept, Type::BOOL), (&actor, Type::TEXT), (&reason, Type::TEXT)];
        let question = "SELECT * FROM onceward.rebase_outbox($1, $2, $3)";
        let row = link.client.query_typed_one(question, &parameters).await;
        let counts = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let (renewed, waiting): (i64, i64) = counts.map_err(|error| store_error(&error))?;
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(Rebased { renewed: count(renewed), waiting: count(waiting) })
    }
}
