//! Requests that wait for the answer of another one.
//!
//! One task for each awaited operation asks the store, often at first and then less; all waiters only
//! listen to it. A settlement in this process makes the task ask at once, and so does one in another
//! process if the store reports it. No waiter depends on that: a wake-up may get lost.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use onceward_core::{Digest, Fingerprint, Found, Replay, Status};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::recall::{self, Recalled};
use crate::{
    server::{Idempotency, PeerMemory},
    telemetry::{self, Begun, LevelGuard},
};

/// The pauses between two questions to the store.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The operations that requests wait for.
#[derive(Default)]
pub(crate) struct Waiters {
    awaited: Mutex<HashMap<Digest, Arc<Awaited>>>,
}

struct Awaited {
    news: watch::Sender<Option<News>>,
    settled: Notify,
}

#[derive(Clone)]
pub(crate) enum News {
    /// It has ended, and this is the answer to the request of this fingerprint.
    Ended(Fingerprint, Arc<Recalled>),
    /// It is not running any more: a request that asks now may run it.
    Changed,
}

impl Waiters {
    /// Makes the task of this operation ask the store now.
    pub(crate) fn wake(&self, id: &Digest) {
        if let Some(awaited) = self.lock().get(id) {
            awaited.settled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Awaited>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the waiters of an operation; `None`: they are too many.
    fn join(
        &self,
        idempotency: &Idempotency,
        id: Digest,
        memory: PeerMemory,
    ) -> Option<watch::Receiver<Option<News>>> {
        let mut all = self.lock();
        if let Some(awaited) = all.get(&id) {
            let has_place = awaited.news.receiver_count() < Idempotency::MAX_WAITERS;
            return has_place.then(|| awaited.news.subscribe());
        }
        let (sender, receiver) = watch::channel(None);
        let awaited = Arc::new(Awaited { news: sender, settled: Notify::new() });
        all.insert(id, awaited.clone());
        drop(all);
        let asking = Asking { idempotency: idempotency.clone(), id, memory, awaited };
        tokio::spawn(asking.until_news());
        Some(receiver)
    }

    /// A request that joins from now on starts a task of its own, which reads afresh.
    fn forget(&self, id: &Digest, awaited: &Arc<Awaited>, when: impl FnOnce() -> bool) -> bool {
        let mut all = self.lock();
        let forget = all.get(id).is_some_and(|known| Arc::ptr_eq(known, awaited)) && when();
        if forget {
            all.remove(id);
        }
        forget
    }
}

/// The task that asks the store. When it ends, also by a panic or with its runtime, its waiters wake.
struct Asking {
    idempotency: Idempotency,
    id: Digest,
    /// Of the first waiter: one copy of the answer serves all.
    memory: PeerMemory,
    awaited: Arc<Awaited>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.idempotency.engine().common().waiters.forget(&self.id, &self.awaited, || true);
    }
}

/// Counts a waiter, also if it leaves before there is news.
struct Waiting {
    begun: Begun,
    _now: LevelGuard,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        telemetry::WAIT_DURATION.since((), self.begun);
    }
}

/// Waits until an operation is not running any more; `None`: not until then.
pub(crate) async fn wait(
    idempotency: &Idempotency,
    id: Digest,
    until: Instant,
    memory: PeerMemory,
) -> Option<News> {
    let mut news = idempotency.engine().common().waiters.join(idempotency, id, memory)?;
    let _waiting = Waiting { begun: Begun::now(), _now: telemetry::WAITERS.hold() };
    let heard = timeout_at(until, news.wait_for(Option::is_some)).await.ok()?;
    if let Some(news) = heard.map_or(None, |news| news.clone()) {
        return Some(news);
    }
    // The task is gone. The waiter asks the store itself, after a pause: the store may be at fault.
    sleep(FIRST_PAUSE).await;
    Some(News::Changed)
}

impl Asking {
    /// Asks the store until there is news, or no waiter is left.
    async fn until_news(self) {
        let Self { idempotency, id, memory, awaited } = &self;
        let waiters = &idempotency.engine().common().waiters;
        if let Some(wake) = idempotency.engine().store().wake() {
            wake.awaited(id);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(news) = news(idempotency, *id, memory).await {
                waiters.forget(id, awaited, || true);
                awaited.news.send_replace(Some(news));
                return;
            }
            if waiters.forget(id, awaited, || awaited.news.receiver_count() == 0) {
                return;
            }
            let _ = timeout(pause, awaited.settled.notified()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// `None`: it is running, or the store does not answer.
async fn news(idempotency: &Idempotency, id: Digest, memory: &PeerMemory) -> Option<News> {
    let Found::Record(stored) = idempotency.engine().read(&id).await.ok()? else {
        return Some(News::Changed);
    };
    let fingerprint = stored.record.fingerprint;
    match stored.status() {
        Status::InProgress => None,
        // Its owner still listens for the answer.
        Status::Unknown if stored.answer_awaited().is_some() => None,
        Status::Succeeded | Status::FailedFinal => {
            let recalled = recall::recall(idempotency, id, Replay::of(*stored)?, memory.clone());
            let recalled = recalled.await.ok();
            let ended = |recalled| News::Ended(fingerprint, Arc::new(recalled));
            Some(recalled.map_or(News::Changed, ended))
        }
        _ => Some(News::Changed),
    }
}
