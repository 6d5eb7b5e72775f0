//! A store between the engine and the real one that breaks the store's promises.

use std::{
    any::Any,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onceward::{
    Digest, Effect, State, Store, StoreError, Timestamp,
    protocol::{Found, Stored, StoredBody},
    store::{BoxFuture, Change, Swap, sqlite::SqliteStore},
};

use super::{Bug, Stake};

pub(super) struct Spoilt {
    pub(super) inner: SqliteStore,
    pub(super) bug: Bug,
}

impl Store for Spoilt {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        let ends = change.next.state != State::InProgress;
        match self.bug {
            Bug::SettlementOverwrites if ends => Box::pin(self.overwrite(change, |_| true)),
            Bug::SharedClaims if change.is_claim() => {
                let is_claimed = |stored: &Stored| stored.record.state == State::InProgress;
                Box::pin(self.overwrite(change, is_claimed))
            }
            Bug::AnswerBeforeRecord if ends => Box::pin(self.store_later(change)),
            Bug::BodyCut => Box::pin(async { self.inner.swap(&with_half_a_body(change)).await }),
            Bug::ReaderDecides => {
                Box::pin(async { Ok(repeatable(self.inner.swap(change).await?)) })
            }
            _ => self.inner.swap(change),
        }
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.inner.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.inner.sweep(limit)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.inner.as_any()
    }
}

impl Spoilt {
    /// Whatever fence is stored, it is the expected one.
    async fn overwrite(
        &self,
        change: &Change,
        may_be_overwritten: fn(&Stored) -> bool,
    ) -> Result<Swap, StoreError> {
        let mut change = change.clone();
        loop {
            match self.inner.swap(&change).await? {
                Swap::Conflict(Found::Record(stored)) if may_be_overwritten(&stored) => {
                    change.expected = Some(stored.record.fence);
                }
                swap => return Ok(swap),
            }
        }
    }

    async fn store_later(&self, change: &Change) -> Result<Swap, StoreError> {
        let (store, change) = (self.inner.clone(), change.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            store.swap(&change).await
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_micros()).unwrap_or_default();
        Ok(Swap::Stored { at: Timestamp::from_unix_micros(now) })
    }
}

fn with_half_a_body(change: &Change) -> Change {
    let mut change = change.clone();
    if let State::Succeeded(outcome) = &mut change.next.state
        && let StoredBody::Inline(bytes) = &mut outcome.body
    {
        bytes.truncate(bytes.len() / 2);
    }
    change
}

/// What an external effect left behind is read as repeatable.
fn repeatable(swap: Swap) -> Swap {
    let Swap::Conflict(Found::Record(mut stored)) = swap else { return swap };
    if stored.record.effect == Effect::External {
        stored.record.effect = Stake::Repeatable.effect();
    }
    Swap::Conflict(Found::Record(stored))
}
