//! Many requests with one key: a service that ends when it is let, and a store that counts.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, request::Parts};
use onceward::{
    Body, Digest, Scope, Store, StoreError,
    protocol::Found,
    server::{Idempotency, InFlight},
    store::{BoxFuture, Change, Swap},
};
use testbed::Reply;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

/// What happens in one process with one store.
#[derive(Clone)]
pub(crate) struct Rig {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
    /// An execution takes one permit before it ends.
    ends: Arc<Semaphore>,
}

#[derive(Default)]
struct Counts {
    executions: AtomicUsize,
    swaps: AtomicUsize,
    gets: AtomicUsize,
}

impl Rig {
    /// On this store; `ends` executions may end, all others wait for [`end`](Self::end).
    pub(crate) fn new(store: impl Store, ends: usize) -> Self {
        let (store, ends) = (Arc::new(store), Arc::new(Semaphore::new(ends)));
        Self { store, counts: Arc::default(), ends }
    }

    /// The service behind the layer, where duplicates wait.
    pub(crate) fn service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
    > + Clone
    + Send
    + 'static {
        let scope = |_: &Parts| Ok::<_, &str>(Scope::global());
        let wait = InFlight::Wait(Duration::from_secs(30));
        let layer = Idempotency::builder(self.clone(), scope).in_flight(wait).build().unwrap();
        let (counts, ends) = (self.counts.clone(), self.ends.clone());
        layer.layer(service_fn(move |_: Request<Body>| {
            let number = counts.executions.fetch_add(1, Ordering::SeqCst);
            let ends = ends.clone();
            async move {
                ends.acquire().await.unwrap().forget();
                let body = format!("{{\"charge\": \"ch_{number}\"}}");
                let answer = Response::builder().status(201).body(Body::from(body.into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        }))
    }

    /// Lets one more execution end.
    pub(crate) fn end(&self) {
        self.ends.add_permits(1);
    }

    pub(crate) fn executions(&self) -> usize {
        self.counts.executions.load(Ordering::SeqCst)
    }

    /// How often the store was asked for a change that is answered by now.
    pub(crate) fn swaps(&self) -> usize {
        self.counts.swaps.load(Ordering::SeqCst)
    }

    /// How often the store was asked to read.
    pub(crate) fn gets(&self) -> usize {
        self.counts.gets.load(Ordering::SeqCst)
    }

    /// Returns when so many requests were admitted or told to wait, and a moment after that.
    pub(crate) async fn asked(&self, requests: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.swaps() < requests {
            assert!(Instant::now() < end, "only {} of {requests} came so far", self.swaps());
            sleep(Duration::from_millis(5)).await;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

impl Store for Rig {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            let swap = self.store.swap(change).await;
            self.counts.swaps.fetch_add(1, Ordering::SeqCst);
            swap
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.counts.gets.fetch_add(1, Ordering::SeqCst);
        self.store.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.store.sweep(limit)
    }
}

/// A request with this key and a JSON body of 1 KiB of its own.
pub(crate) fn request(key: &str) -> Request<Body> {
    let mut body = Vec::with_capacity(1024);
    body.extend_from_slice(br#"{"cents": 500, "memo": ""#);
    body.resize(1022, b'm');
    body.extend_from_slice(b"\"}");
    let request = Request::post("/charges").header("content-type", "application/json");
    request.header("idempotency-key", key).body(Body::from(body)).unwrap()
}

/// Sends a request and reads the answer.
pub(crate) async fn send<S>(service: S, key: &str) -> Reply
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    read(service.oneshot(request(key)).await).await
}

/// Reads an answer to its end.
pub(crate) async fn read(answer: Result<Response<Body>, Infallible>) -> Reply {
    let Ok(answer) = answer;
    Reply::read(answer).await
}

/// So many requests with one key at the same moment, none of them known to be the first.
pub(crate) async fn stampede(rig: &Rig, key: &str, requests: usize) -> Vec<Reply> {
    let service = rig.service();
    let mut callers = JoinSet::new();
    for _ in 0..requests {
        let (service, key) = (service.clone(), key.to_owned());
        callers.spawn(async move { send(service, &key).await });
    }
    callers.join_all().await
}

/// One answer of a run, and the same bytes for everybody else, marked as a replay.
pub(crate) fn assert_one_answer(replies: &[Reply]) {
    for reply in replies {
        assert_eq!((reply.status.as_u16(), &reply.body), (201, &replies[0].body), "{reply:?}");
    }
    let first = replies.iter().filter(|reply| !reply.is_replay()).count();
    assert_eq!(first, 1, "one answer is no replay");
}

/// Lets ten thousand duplicates wait for one execution, ends it, and checks what everybody got.
pub(crate) async fn ten_thousand_wait(store: impl Store) {
    let rig = Rig::new(store, 0);
    let service = rig.service();
    let mut callers = JoinSet::new();
    for _ in 0..=Idempotency::MAX_WAITERS {
        let service = service.clone();
        callers.spawn(async move { send(service, "one").await });
    }
    rig.asked(1 + Idempotency::MAX_WAITERS).await;
    assert_eq!(callers.len(), 1 + Idempotency::MAX_WAITERS, "nobody was turned away");
    rig.end();
    let replies = callers.join_all().await;
    assert_one_answer(&replies);
    assert_eq!(replies.len(), 1 + Idempotency::MAX_WAITERS);
    assert_eq!(rig.executions(), 1);
    // Each asked once whether it may run; for the answer one task asked on behalf of all.
    assert_eq!(rig.swaps(), 1 + Idempotency::MAX_WAITERS + 1, "admissions and one settlement");
    assert!(rig.gets() < 100, "{} questions while everybody waited", rig.gets());
}
