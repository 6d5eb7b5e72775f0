//! Many duplicates that wait for one execution, and how soon they are answered when it ends.

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use onceward::{
    Body, Digest, Store, StoreError,
    protocol::Found,
    server::{Idempotency, IdempotencyBuilder, InFlight},
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};
use tower::{Layer as _, service_fn};

use crate::{
    Failure,
    requests::{answer, request, scope},
    subject::open_sqlite,
};

/// How long a duplicate waits at most: the most that the layer allows.
const WAIT: Duration = IdempotencyBuilder::MAX_WAIT;

const ANSWER: &[u8] = br#"{"id": "ch_42", "cents": 1999}"#;

/// All rounds on one store.
pub(crate) struct Waiters {
    /// The store, in words.
    pub(crate) store: &'static str,
    /// How many waited.
    pub(crate) waiters: usize,
    /// From the end of the handler until the last one had read the answer; by rounds.
    pub(crate) took: Vec<Duration>,
    /// How often the store was asked to read meanwhile, the most in a round.
    pub(crate) reads: usize,
}

impl Waiters {
    fn none(store: &'static str, waiters: usize) -> Self {
        Self { store, waiters, took: Vec::new(), reads: 0 }
    }
}

/// Lets so many wait for one execution, so many times, on both stores in turn.
pub(crate) fn run(directory: &Path, waiters: usize, rounds: u32) -> Result<[Waiters; 2], Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::not_durable());
    let stores = [memory, open_sqlite(&directory.join("waiters.sqlite"))?];
    let mut measured = ["memory", "SQLite"].map(|store| Waiters::none(store, waiters));
    for _ in 0..rounds {
        for (store, measured) in stores.iter().zip(&mut measured) {
            let counted = Counted { store: store.clone(), counts: Arc::default() };
            measured.took.push(runtime.block_on(round(&counted, waiters))?);
            measured.reads = measured.reads.max(counted.counts.gets.load(Ordering::Relaxed));
        }
    }
    Ok(measured)
}

/// One execution and all who wait for it.
async fn round(store: &Counted, waiters: usize) -> Result<Duration, Failure> {
    let (may_end, ended) = (Arc::new(Semaphore::new(0)), Arc::new(OnceLock::new()));
    let handler = Handler { may_end: may_end.clone(), ended: ended.clone() };
    let service = service_fn(move |_: Request<Body>| handler.clone().answer());
    let layer = Idempotency::builder(store.clone(), |_: &Parts| scope());
    let service = layer.in_flight(InFlight::Wait(WAIT)).build()?.layer(service);

    let number = fastrand::u128(..);
    let mut callers = JoinSet::new();
    for _ in 0..=waiters {
        let service = service.clone();
        callers.spawn(async move {
            let (status, body) = answer(service, request(Some(number))).await?;
            Ok::<_, String>((Instant::now(), status, body))
        });
    }
    while store.counts.swaps.load(Ordering::Relaxed) <= waiters {
        sleep(Duration::from_millis(5)).await;
    }
    // The last of them was told to wait a moment ago; now all of them do.
    sleep(Duration::from_millis(50)).await;
    may_end.add_permits(1);

    let mut last = None;
    for answered in callers.join_all().await {
        let (at, status, body) = answered?;
        if (status, &body[..]) != (StatusCode::CREATED, ANSWER) {
            return Err(format!("answered with {status}: {body:?}").into());
        }
        last = last.max(Some(at));
    }
    let (last, ended) = last.zip(ended.get().copied()).ok_or("nobody was answered")?;
    Ok(last.duration_since(ended))
}

/// Ends when it may, and says when that was.
#[derive(Clone)]
struct Handler {
    may_end: Arc<Semaphore>,
    ended: Arc<OnceLock<Instant>>,
}

impl Handler {
    async fn answer(self) -> Result<Response<Body>, Infallible> {
        // It is closed by nobody; and if it were, the round would end with an error.
        let _ = self.may_end.acquire().await;
        let mut answer = Response::new(Body::from(Bytes::from_static(ANSWER)));
        *answer.status_mut() = StatusCode::CREATED;
        self.ended.get_or_init(Instant::now);
        Ok(answer)
    }
}

/// A store that counts what it is asked.
#[derive(Clone)]
struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    swaps: AtomicUsize,
    gets: AtomicUsize,
}

impl Store for Counted {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            let swap = self.store.swap(change).await;
            self.counts.swaps.fetch_add(1, Ordering::Relaxed);
            swap
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.counts.gets.fetch_add(1, Ordering::Relaxed);
        self.store.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.store.sweep(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_answered_on_both_stores() {
        let directory = tempfile::tempdir().unwrap();
        for measured in run(directory.path(), 50, 2).unwrap() {
            assert_eq!((measured.waiters, measured.took.len()), (50, 2));
            assert!(measured.reads > 0);
        }
    }
}
