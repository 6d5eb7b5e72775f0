//! What comes, and how it is applied.

use std::{fmt, future::Future, sync::Arc};

use onceward_core::{BoxFuture, StoreError, message::Receive};

use super::{ConsumeError, Inbox};
use crate::{
    crashpoint,
    engine::{Transaction, injected},
};

pub(super) type Acknowledge =
    Box<dyn FnOnce() -> BoxFuture<'static, Result<(), ConsumeError>> + Send>;

/// Where deliveries come from: a broker, a table, a webhook's queue.
///
/// The receiving half of a channel is one, for what is made of other things.
///
/// ```
/// use onceward::inbox::{ConsumeError, Delivery, Source};
///
/// struct Broker { /* a connection */ }
/// # struct Received { id: String, body: Vec<u8> }
/// # impl Broker {
/// #     async fn receive(&mut self) -> Result<Received, ConsumeError> { Err("not here".into()) }
/// # }
/// # async fn acknowledge(_: String) -> Result<(), ConsumeError> { Ok(()) }
///
/// impl Source for Broker {
///     type Message = Vec<u8>;
///
///     async fn next(&mut self) -> Result<Option<Delivery<Vec<u8>>>, ConsumeError> {
///         let received = self.receive().await?;
///         let id = received.id.clone();
///         Ok(Some(Delivery::new(received.id, received.body, || acknowledge(id))))
///     }
/// }
/// ```
pub trait Source: Send {
    /// What is delivered.
    type Message: Send + Sync;

    /// The next delivery; `None`: there are no more. The loop asks again after an error.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<Delivery<Self::Message>>, ConsumeError>> + Send;
}

impl<M: Send + Sync> Source for tokio::sync::mpsc::Receiver<Delivery<M>> {
    type Message = M;

    async fn next(&mut self) -> Result<Option<Delivery<M>>, ConsumeError> {
        Ok(self.recv().await)
    }
}

/// A message as a source has delivered it.
///
/// ```
/// use onceward::inbox::Delivery;
///
/// let delivery = Delivery::new("0198c5a0-7d4e", "{\"order\":7}", || async { Ok(()) }).failed(2);
/// assert_eq!((delivery.id(), *delivery.message()), ("0198c5a0-7d4e", "{\"order\":7}"));
/// ```
pub struct Delivery<M> {
    pub(super) id: String,
    pub(super) message: M,
    pub(super) failed: u32,
    pub(super) acknowledge: Acknowledge,
}

impl<M> Delivery<M> {
    /// A message with the id that it has on every delivery. The loop calls `acknowledge` when it was applied, or
    /// is with the dead letters.
    pub fn new<F>(
        id: impl Into<String>,
        message: M,
        acknowledge: impl FnOnce() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), ConsumeError>> + Send + 'static,
    {
        let acknowledge: Acknowledge = Box::new(move || Box::pin(acknowledge()));
        Self { id: id.into(), message, failed: 0, acknowledge }
    }

    /// It failed so often before, as its source counts: they count as attempts.
    #[must_use]
    pub fn failed(mut self, times: u32) -> Self {
        self.failed = times;
        self
    }

    /// By which a repeat is recognised.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What was sent.
    #[must_use]
    pub fn message(&self) -> &M {
        &self.message
    }
}

impl<M> fmt::Debug for Delivery<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Delivery({})", self.id)
    }
}

/// One attempt to apply a delivery: what it is, and how it is applied once.
///
/// ```
/// use onceward::{engine::Transaction, inbox::{Applied, ConsumeError, Incoming}, message::Receive};
///
/// async fn apply<T, S>(mut incoming: Incoming<String, S>, mut shop: T) -> Result<Applied, ConsumeError>
/// where
///     T: Transaction,
///     S: Receive<T::Connection>,
/// {
///     if incoming.first_time(&mut shop).await? {
///         // … the effect, in the same transaction …
///     }
///     incoming.commit(shop).await
/// }
/// ```
pub struct Incoming<M, S> {
    inbox: Arc<Inbox<S>>,
    consumer: Arc<str>,
    id: Arc<str>,
    message: Arc<M>,
    attempt: u32,
    is_asked: bool,
}

impl<M, S> Incoming<M, S> {
    pub(super) fn new(
        (inbox, consumer): (Arc<Inbox<S>>, Arc<str>),
        id: Arc<str>,
        message: Arc<M>,
        attempt: u32,
    ) -> Self {
        Self { inbox, consumer, id, message, attempt, is_asked: false }
    }

    /// By which a repeat is recognised.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What was sent.
    #[must_use]
    pub fn message(&self) -> &M {
        &self.message
    }

    /// Which attempt it is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the delivery is to be applied in this transaction; `false`: it was applied before.
    ///
    /// Either way the transaction ends with [`commit`](Self::commit).
    pub async fn first_time<T: Transaction>(
        &mut self,
        transaction: &mut T,
    ) -> Result<bool, ConsumeError>
    where
        S: Receive<T::Connection>,
    {
        let is_first = self.inbox.first_time(transaction, &self.consumer, &self.id).await?;
        self.is_asked = true;
        Ok(is_first)
    }

    /// Commits; only what this gives lets the loop acknowledge the delivery.
    ///
    /// # Errors
    ///
    /// The commit failed, or its answer is missing: then the next attempt finds out. Nothing is committed if
    /// [`first_time`](Self::first_time) was not asked, or if it would end a savepoint only.
    pub async fn commit<T: Transaction>(&self, transaction: T) -> Result<Applied, ConsumeError> {
        self.check(transaction.is_outermost())?;
        crashpoint!(
            "inbox.commit",
            transaction.commit().await.map_err(ConsumeError::from),
            injected().into()
        )?;
        Ok(Applied(()))
    }

    fn check(&self, is_outermost: bool) -> Result<(), StoreError> {
        let fault = match (self.is_asked, is_outermost) {
            (false, _) => {
                "it was not asked whether it comes for the first time: ask `first_time` in the transaction"
            }
            (true, false) => {
                "its transaction is a savepoint inside another one: commit the outer one with `commit`"
            }
            (true, true) => return Ok(()),
        };
        let id = self.id();
        Err(StoreError::Refused(format!("the delivery {id} was not committed, because {fault}")))
    }
}

#[cfg(feature = "sqlite")]
impl<M> Incoming<M, crate::store::sqlite::SqliteStore> {
    /// [`first_time`](Self::first_time) in a transaction of rusqlite.
    ///
    /// ```
    /// use onceward::{inbox::{Applied, ConsumeError, Incoming}, store::sqlite::SqliteStore};
    ///
    /// fn apply(
    ///     mut incoming: Incoming<String, SqliteStore>,
    ///     shop: rusqlite::Transaction<'_>,
    /// ) -> Result<Applied, ConsumeError> {
    ///     if incoming.first_time_blocking(&shop)? {
    ///         shop.execute("INSERT INTO invoice (event) VALUES (?1)", [incoming.id()])?;
    ///     }
    ///     incoming.commit_blocking(shop)
    /// }
    /// ```
    pub fn first_time_blocking(
        &mut self,
        transaction: &impl crate::store::sqlite::BlockingTransaction,
    ) -> Result<bool, ConsumeError> {
        let is_first = self.inbox.first_time_blocking(transaction, &self.consumer, &self.id)?;
        self.is_asked = true;
        Ok(is_first)
    }

    /// [`commit`](Self::commit) of a transaction of rusqlite: see [`first_time_blocking`](Self::first_time_blocking).
    ///
    /// # Errors
    ///
    /// The commit failed, and nothing of it was done; or `first_time_blocking` was not asked.
    pub fn commit_blocking(
        &self,
        transaction: impl crate::store::sqlite::BlockingTransaction,
    ) -> Result<Applied, ConsumeError> {
        self.check(true)?;
        crashpoint!(
            "inbox.commit",
            transaction.commit().map_err(ConsumeError::from),
            injected().into()
        )?;
        Ok(Applied(()))
    }
}

impl<M, S> fmt::Debug for Incoming<M, S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Incoming({}, attempt {})", self.id(), self.attempt)
    }
}

/// A delivery was applied, now or before, and that is committed: see [`Incoming::commit`].
///
/// ```
/// use onceward::inbox::Applied;
///
/// fn log(_: &Applied) {
///     println!("committed");
/// }
/// ```
#[derive(Debug)]
pub struct Applied(());
