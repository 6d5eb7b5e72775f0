//! What the drivers do in situations that no store's bench can bring about.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    AdmitError, Digest, Effect, Ending, Engine, Resolution, Status, Store, StoreError, Verdict,
    engine::{RepairFailure, RepairRequest, Unsettled},
    protocol::{
        Force, Found, RepairError, Settled, Stored,
        conformance::{Sample, answer},
    },
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
};

/// Makes every change, but answers with the errors of a script before it tells the truth.
#[derive(Clone)]
struct Scripted {
    inner: Arc<MemoryStore>,
    errors: Arc<Mutex<Vec<StoreError>>>,
}

impl Scripted {
    fn new(errors: impl IntoIterator<Item = StoreError>) -> Self {
        let errors = Arc::new(Mutex::new(errors.into_iter().collect()));
        Self { inner: Arc::new(MemoryStore::not_durable()), errors }
    }

    async fn status(&self, sample: &Sample) -> Option<Status> {
        match self.inner.get(&sample.id()).await.unwrap() {
            Found::Record(stored) => Some(stored.status()),
            _ => None,
        }
    }
}

impl Store for Scripted {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            let swap = self.inner.swap(change).await;
            let mut errors = self.errors.lock().unwrap();
            if errors.is_empty() { swap } else { Err(errors.remove(0)) }
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        self.inner.get(id)
    }

    fn sweep(&self, limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        self.inner.sweep(limit)
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("the reply was lost".into())
}

/// The last error alone would say that nothing was written; the first try says that nobody knows.
#[tokio::test(start_paused = true)]
async fn a_definite_error_after_a_doubtful_one_leaves_the_doubt() {
    for doubtful in [1, 2] {
        let full = StoreError::Full("no room".into());
        let store = Scripted::new((0..doubtful).map(|_| unavailable()).chain([full]));
        let engine = Engine::new(store.clone());
        let sample = Sample::new(Effect::External);
        let verdict = engine.admit(sample.request(b'a')).await;
        assert_eq!(verdict, Err(AdmitError::Store(unavailable())));
        assert_eq!(store.status(&sample).await, Some(Status::InProgress), "it was claimed");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.status(&sample).await, Some(Status::Released), "and is given back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definite_error_at_once_leaves_no_work_behind() {
    let store = Scripted::new([StoreError::Full("no room".into())]);
    let engine = Engine::new(store);
    let verdict = engine.admit(Sample::new(Effect::External).request(b'a')).await;
    assert!(matches!(verdict, Err(AdmitError::Store(StoreError::Full(_)))), "{verdict:?}");
    assert_eq!(engine.unsettled(), 0);
}

#[tokio::test]
async fn too_many_unsettled_executions_refuse_new_ones() {
    let engine = Engine::new(MemoryStore::not_durable());
    let mut tracked: Vec<_> = (1..Engine::MAX_UNSETTLED).map(|_| engine.track()).collect();
    let request = || Sample::new(Effect::External).request(b'a');
    assert!(matches!(engine.admit(request()).await, Ok(Verdict::Run(_))), "one below the limit");
    tracked.push(engine.track());
    assert_eq!(engine.admit(request()).await, Err(AdmitError::Overloaded));
    tracked.pop();
    assert!(matches!(engine.admit(request()).await, Ok(Verdict::Run(_))), "room again");
}

/// An execution that ends after shutdown gave up still gets its one chance to be settled.
#[tokio::test(start_paused = true)]
async fn a_settlement_after_drain_is_tried_once() {
    let store = Scripted::new([]);
    let engine = Engine::new(store.clone());
    let [stored, failed] = [(); 2].map(|()| Sample::new(Effect::External));
    let mut claims = Vec::new();
    for sample in [&stored, &failed] {
        let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else {
            panic!("the key is free");
        };
        claims.push(claim);
    }
    let _running = engine.track();
    assert_eq!(engine.drain(Duration::from_secs(1)).await.abandoned, 1);

    let [first, second] = claims.try_into().unwrap();
    let settled = engine.settle(first, Ending::Succeeded(answer(201))).await;
    assert!(matches!(settled, Ok(Settled::Stored { .. })), "{settled:?}");
    store.errors.lock().unwrap().push(unavailable());
    let settled = engine.settle(second, Ending::Succeeded(answer(201))).await;
    assert_eq!(settled, Err(Unsettled), "the store failed and nobody tries again");
}

/// A store whose replies to the next two changes get lost, with one operation in it.
async fn with_lost_replies(ending: Ending) -> (Scripted, Engine, Sample, Box<Stored>) {
    let (store, sample) = (Scripted::new([]), Sample::new(Effect::External));
    let engine = Engine::new(store.clone());
    let Ok(Verdict::Run(claim)) = engine.admit(sample.request(b'a')).await else {
        panic!("the key is free");
    };
    engine.settle(claim, ending).await.unwrap();
    let Ok(Found::Record(stored)) = store.get(&sample.id()).await else { panic!("it is stored") };
    store.errors.lock().unwrap().extend([unavailable(), unavailable()]);
    (store, engine, sample, stored)
}

#[tokio::test(start_paused = true)]
async fn a_repair_whose_reply_was_lost_is_recognised() {
    let (store, engine, sample, unknown) = with_lost_replies(Ending::Unknown).await;
    let resolution = Resolution::Applied(answer(201));
    let (actor, reason, force) = (Some("ada"), Some("seen"), Force::No);
    let why = RepairRequest { terms: &sample.terms, actor, reason, force };
    let swap = engine.resolve(sample.id(), &unknown, resolution, why).await.unwrap();
    assert!(matches!(swap, Swap::Stored { .. }), "{swap:?}");
    assert_eq!(store.status(&sample).await, Some(Status::Succeeded));

    let (store, engine, sample, failed) = with_lost_replies(Ending::FailedRetryable).await;
    let why = RepairRequest { terms: &sample.terms, actor, reason, force };
    let swap = engine.release(sample.id(), &failed, why.clone()).await.unwrap();
    assert!(matches!(swap, Swap::Stored { .. }), "{swap:?}");
    assert_eq!(store.status(&sample).await, Some(Status::Released));
    let late = engine.release(sample.id(), &failed, why).await.unwrap();
    assert!(
        matches!(late, Swap::Conflict(Found::Record(_))),
        "what was read is outdated: {late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_asks_the_store_nothing() {
    let (store, engine, sample, unknown) = with_lost_replies(Ending::Unknown).await;
    let (actor, reason, force) = (Some("ada"), None, Force::Yes);
    let why = RepairRequest { terms: &sample.terms, actor, reason, force };
    let refused = engine.release(sample.id(), &unknown, why).await;
    assert_eq!(refused, Err(RepairFailure::Refused(RepairError::Unknown)));
    assert_eq!(store.errors.lock().unwrap().len(), 2, "not asked");
}
