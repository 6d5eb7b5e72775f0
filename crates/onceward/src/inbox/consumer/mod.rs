//! The loop of a consumer: take a delivery, apply it once, commit, and only then acknowledge it.
//!
//! What the loop adds to an [`Inbox`](super::Inbox) is the order of these steps, and what to do when one of them
//! fails: a delivery whose own fault it is gets so many attempts and goes to the dead letters; everything else waits.

mod delivery;
mod failure;

use std::{future::Future, sync::Arc, time::Duration};

use onceward_core::retry::Backoff;
use tokio::time::sleep;

use super::Inbox;
use crate::{crashpoint, engine::injected, telemetry::event};

pub use delivery::{Applied, Delivery, Incoming, Source};
pub use failure::{ConsumeError, Outage, Poison};

/// Applies deliveries one after the other, each once, and acknowledges them when that is committed.
///
/// Dropping the loop at any moment is safe: what was not acknowledged comes again, and what was applied is
/// recognised then. For more than one at a time run several, each on a part of the deliveries.
///
/// ```
/// use onceward::{
///     engine::Transaction,
///     inbox::{Applied, ConsumeError, Consumer, Inbox, Incoming, Poison, Source},
///     message::Receive,
/// };
///
/// # struct Pool<T>(std::sync::Arc<std::sync::Mutex<Option<T>>>);
/// # impl<T> Clone for Pool<T> { fn clone(&self) -> Self { Self(self.0.clone()) } }
/// # impl<T> Pool<T> { async fn begin(&self) -> Result<T, ConsumeError> { unimplemented!() } }
/// # async fn write_invoice<T>(_: &mut T, _: &str) -> Result<(), ConsumeError> { Ok(()) }
/// # async fn write_dead_letter(_: Poison<String>) -> Result<(), ConsumeError> { Ok(()) }
/// async fn apply<T, S>(pool: Pool<T>, mut incoming: Incoming<String, S>) -> Result<Applied, ConsumeError>
/// where
///     T: Transaction,
///     S: Receive<T::Connection>,
/// {
///     let mut shop = pool.begin().await?;
///     if incoming.first_time(&mut shop).await? {
///         write_invoice(&mut shop, incoming.message()).await?;
///     }
///     incoming.commit(shop).await
/// }
///
/// async fn bill<T, S>(pool: Pool<T>, store: S, events: impl Source<Message = String>)
/// where
///     T: Transaction,
///     S: Receive<T::Connection>,
/// {
///     let consumer = Consumer::new(Inbox::new(store), "billing");
///     consumer.run(events, |incoming| apply(pool.clone(), incoming), write_dead_letter).await;
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Consumer<S> {
    inbox: Arc<Inbox<S>>,
    name: Arc<str>,
    attempts: u32,
    backoff: Backoff,
}

impl<S> Consumer<S> {
    /// Attempts to apply one delivery, if not said otherwise.
    pub const ATTEMPTS: u32 = 5;

    /// The name is that under which the inbox remembers what was applied: another one would apply it again.
    #[must_use]
    pub fn new(inbox: Inbox<S>, name: &str) -> Self {
        let backoff =
            Backoff::Full { base: Duration::from_millis(100), cap: Duration::from_secs(30) };
        Self { inbox: Arc::new(inbox), name: name.into(), attempts: Self::ATTEMPTS, backoff }
    }

    /// After how many failed attempts a delivery goes to the dead letters; at least one is made.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How long to wait before another attempt: with full jitter from 100 ms to 30 s, if not said otherwise.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Takes deliveries from a source until it has no more.
    ///
    /// `apply` has its effect in a transaction of its own, after it has asked
    /// [`first_time`](Incoming::first_time) in it, and ends with [`commit`](Incoming::commit). After an [`Outage`]
    /// the loop waits and calls it again; any other error counts against the delivery. One that has failed so
    /// often goes to `dead`, which keeps it somewhere; then it is acknowledged. If `dead` fails, the loop calls it
    /// again.
    pub async fn run<M, A, D>(
        &self,
        mut source: impl Source<Message = M>,
        mut apply: impl FnMut(Incoming<M, S>) -> A,
        mut dead: impl FnMut(Poison<M>) -> D,
    ) where
        A: Future<Output = Result<Applied, ConsumeError>>,
        D: Future<Output = Result<(), ConsumeError>>,
    {
        let mut misses = 0;
        loop {
            let delivery = match source.next().await {
                Ok(Some(delivery)) => delivery,
                Ok(None) => return,
                Err(error) => {
                    let text = "the source of deliveries failed; it is asked again";
                    self.rest(text, &error, &mut misses).await;
                    continue;
                }
            };
            misses = 0;
            let Delivery { id, message, failed, acknowledge } = delivery;
            let (id, message) = (Arc::from(id), Arc::new(message));
            if let Some(poison) = self.consume(&id, &message, failed, &mut apply).await {
                self.bury(poison, &mut dead).await;
            }
            if let Err(error) =
                crashpoint!("inbox.acknowledge", acknowledge().await, injected().into())
            {
                tracing::warn!(
                    event = event::CONSUMER_TROUBLE,
                    consumer = &*self.name,
                    message = &*id,
                    %error,
                    "a delivery could not be acknowledged; it comes again, and is recognised"
                );
            }
        }
    }

    /// Returns when the delivery was applied, now or before, or must be given up.
    async fn consume<M, A>(
        &self,
        id: &Arc<str>,
        message: &Arc<M>,
        mut failures: u32,
        apply: &mut impl FnMut(Incoming<M, S>) -> A,
    ) -> Option<Poison<M>>
    where
        A: Future<Output = Result<Applied, ConsumeError>>,
    {
        let mut outages = 0;
        loop {
            let attempt = failures.saturating_add(1);
            let of = (self.inbox.clone(), self.name.clone());
            let error = match apply(Incoming::new(of, id.clone(), message.clone(), attempt)).await {
                Ok(Applied { .. }) => return None,
                Err(error) => error,
            };
            if Outage::is(&*error) {
                let text = "a consumer cannot reach what it needs; it waits";
                self.rest(text, &error, &mut outages).await;
                continue;
            }
            (failures, outages) = (attempt, 0);
            if failures >= self.attempts {
                let (id, message) = (id.clone(), message.clone());
                return Some(Poison { id, message, attempts: failures, why: error.to_string() });
            }
            tracing::warn!(
                event = event::CONSUMER_TROUBLE,
                consumer = &*self.name,
                message = &**id,
                attempt,
                %error,
                "a delivery could not be applied; it is tried again"
            );
            sleep(self.backoff.wait(failures, Duration::ZERO, fastrand::u64(..))).await;
        }
    }

    async fn bury<M, D>(&self, poison: Poison<M>, dead: &mut impl FnMut(Poison<M>) -> D)
    where
        D: Future<Output = Result<(), ConsumeError>>,
    {
        tracing::warn!(
            event = event::CONSUMER_GAVE_UP,
            consumer = &*self.name,
            message = &*poison.id,
            attempts = poison.attempts,
            error = poison.why,
            "a delivery was given up; it goes to the dead letters of its consumer"
        );
        let mut misses = 0;
        while let Err(error) = dead(poison.clone()).await {
            let text = "a dead letter could not be kept; it is tried again";
            self.rest(text, &error, &mut misses).await;
        }
    }

    async fn rest(&self, what: &str, error: &ConsumeError, misses: &mut u32) {
        *misses = misses.saturating_add(1);
        let name = &*self.name;
        tracing::warn!(event = event::CONSUMER_TROUBLE, consumer = name, %error, "{what}");
        sleep(self.backoff.wait(*misses, Duration::ZERO, fastrand::u64(..))).await;
    }
}
