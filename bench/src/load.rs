//! The work that is measured: claims, completions and look-ups, so many in flight.

use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{
    Digest, Effect, Ending, Execution, Fingerprint, Key, OperationId, OperationName, Outcome,
    Request, Scope, Store, Terms, Verdict,
    protocol::{Admission, Claim, Fence, Found, Settled, Settlement, SettlementStep, Step},
    store::{Change, Swap},
};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{Failure, progress::Progress};

/// The length of the stored answer.
const ANSWER_BYTES: usize = 500;

/// How many pairs are in flight while a store is filled: enough for full batches all the time.
const FILLING_IN_FLIGHT: usize = 1024;

/// What all operations of a benchmark have in common.
pub(crate) struct Work {
    scope: Scope,
    name: OperationName,
    terms: Terms,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            scope: Scope::of("tenant", "acme").expect("a valid scope"),
            name: OperationName::new("POST /v1/charges").expect("a valid name"),
            terms: Terms::of(Effect::External).build().expect("defaults are valid"),
        }
    }
}

impl Work {
    /// The operation with this number; what is stored under it is spread like any other digest.
    fn operation(&self, number: u64) -> OperationId {
        let mut random = fastrand::Rng::with_seed(number);
        let key = format!("{:032x}", random.u128(..));
        let key = Key::new(&key).expect("hexadecimal digits are a valid key");
        OperationId::new(self.scope.clone(), self.name.clone(), key)
    }

    /// The digest of the operation with this number.
    pub(crate) fn id(&self, number: u64) -> Digest {
        self.operation(number).digest()
    }

    /// The first request for the operation with this number.
    pub(crate) fn admission(&self, number: u64) -> Admission {
        admission(self.operation(number), self.terms)
    }

    /// What is asked for the operation with this number.
    pub(crate) fn request(&self, number: u64) -> Request {
        request(self.operation(number), self.terms)
    }

    /// The same, with a fingerprint that all requests for this operation share.
    pub(crate) fn request_again(&self, number: u64) -> Request {
        let fingerprints = Fingerprint::from_parts(1, [7; 32]).into();
        Request { fingerprints, ..self.request(number) }
    }

    /// The end of a claim, with an answer.
    pub(crate) fn settlement(&self, claim: &Claim) -> Settlement {
        claim.settle(Ending::Succeeded(answer()), fence())
    }
}

/// The stored answer.
pub(crate) fn answer() -> Outcome {
    Outcome::inline(201, vec![b'x'; ANSWER_BYTES])
}

/// The first request for an operation.
fn admission(operation: OperationId, terms: Terms) -> Admission {
    Admission::new(request(operation, terms), fence(), Execution::from_bytes(random()))
}

fn request(operation: OperationId, terms: Terms) -> Request {
    let mut fingerprint = [0; 32];
    fastrand::fill(&mut fingerprint);
    let fingerprints = Fingerprint::from_parts(1, fingerprint).into();
    Request { operation, fingerprints, terms }
}

fn fence() -> Fence {
    Fence::from_random(random())
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    fastrand::fill(&mut bytes);
    bytes
}

/// How often a store said that somebody holds a record.
static HELD: AtomicU64 = AtomicU64::new(0);

/// How often a store has said so: here nobody else knows the record, so that it is wrong each time.
pub(crate) fn held() -> u64 {
    HELD.load(Ordering::Relaxed)
}

/// Notes that a store said so.
pub(crate) fn was_held() {
    HELD.fetch_add(1, Ordering::Relaxed);
}

/// Proposes a change, again if somebody is said to hold the record.
async fn swap(store: &dyn Store, change: &Change) -> Result<Swap, Failure> {
    loop {
        match store.swap(change).await? {
            Swap::Held => was_held(),
            swap => return Ok(swap),
        }
    }
}

/// Makes one durable claim.
pub(crate) async fn claim(store: &dyn Store, work: &Work, number: u64) -> Result<Claim, Failure> {
    run(store, work.admission(number)).await
}

async fn run(store: &dyn Store, admission: Admission) -> Result<Claim, Failure> {
    let swap = swap(store, admission.change()).await?;
    match admission.next(swap) {
        Step::Done(Verdict::Run(claim)) => Ok(claim),
        other => Err(format!("a fresh key was not given a claim: {other:?}").into()),
    }
}

/// Makes one durable claim and one durable completion.
async fn pair(store: &dyn Store, work: &Work, number: u64) -> Result<(), Failure> {
    let claim = claim(store, work, number).await?;
    settle(store, work.settlement(&claim)).await
}

pub(crate) async fn settle(store: &dyn Store, settlement: Settlement) -> Result<(), Failure> {
    let swap = swap(store, settlement.change()).await?;
    match settlement.next(swap) {
        SettlementStep::Done(Settled::Stored { .. }) => Ok(()),
        other => Err(format!("a claim could not be completed: {other:?}").into()),
    }
}

/// Makes one durable claim of this operation, and ends it like this; `None`: it stays open.
pub(crate) async fn run_once(
    store: &dyn Store,
    operation: OperationId,
    terms: Terms,
    ending: Option<Ending>,
) -> Result<(), Failure> {
    let claim = run(store, admission(operation, terms)).await?;
    let Some(ending) = ending else { return Ok(()) };
    settle(store, claim.settle(ending, fence())).await
}

/// What the tasks of a load do again and again.
#[derive(Clone, Copy)]
pub(crate) enum Deed {
    /// A claim that stays open.
    Claim,
    /// A claim and its completion.
    Pair,
}

/// Tasks that repeat one deed until they are stopped, so many at the same time.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<Vec<Lap>, Failure>>,
}

struct Shared {
    work: Work,
    done: AtomicU64,
    stopped: AtomicBool,
}

/// One deed: when it ended and how long it took.
#[derive(Clone, Copy)]
pub(crate) struct Lap {
    pub(crate) ended: Instant,
    pub(crate) took: Duration,
}

impl Load {
    /// Starts the tasks. Each takes its operations' numbers from `numbers`.
    pub(crate) fn start(
        runtime: &Runtime,
        store: &Arc<dyn Store>,
        numbers: &Arc<AtomicU64>,
        in_flight: usize,
        deed: Deed,
    ) -> Self {
        let work = Work::default();
        let shared =
            Arc::new(Shared { work, done: AtomicU64::new(0), stopped: AtomicBool::new(false) });
        let mut tasks = JoinSet::new();
        for _ in 0..in_flight {
            let (shared, store, numbers) =
                (Arc::clone(&shared), Arc::clone(store), Arc::clone(numbers));
            tasks.spawn_on(repeat(shared, store, numbers, deed), runtime.handle());
        }
        Self { shared, tasks }
    }

    /// How many deeds are done so far.
    pub(crate) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Lets every task end what it has begun, and returns all laps, in no order.
    pub(crate) fn stop(self, runtime: &Runtime) -> Result<Vec<Lap>, Failure> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let mut laps = Vec::new();
        for of_task in runtime.block_on(self.tasks.join_all()) {
            laps.append(&mut of_task?);
        }
        Ok(laps)
    }
}

async fn repeat(
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    numbers: Arc<AtomicU64>,
    deed: Deed,
) -> Result<Vec<Lap>, Failure> {
    let mut laps = Vec::new();
    while !shared.stopped.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        match deed {
            Deed::Claim => claim(&*store, &shared.work, number).await.map(drop)?,
            Deed::Pair => pair(&*store, &shared.work, number).await?,
        }
        let ended = Instant::now();
        laps.push(Lap { ended, took: ended - started });
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(laps)
}

/// Fills a store with the ended operations of these numbers, by pairs like those that are measured.
pub(crate) fn fill(
    runtime: &Runtime,
    store: &Arc<dyn Store>,
    numbers: Range<u64>,
    what: &str,
) -> Result<(), Failure> {
    let work = Arc::new(Work::default());
    let deed = move |store: Arc<dyn Store>, number| {
        let work = Arc::clone(&work);
        async move { pair(&*store, &work, number).await }
    };
    fill_with(runtime, store, numbers, what, deed)
}

/// Does something for each of these numbers, many at the same time.
pub(crate) fn fill_with<D, F>(
    runtime: &Runtime,
    store: &Arc<dyn Store>,
    numbers: Range<u64>,
    what: &str,
    deed: D,
) -> Result<(), Failure>
where
    D: Fn(Arc<dyn Store>, u64) -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let next = Arc::new(AtomicU64::new(numbers.start));
    let mut tasks = JoinSet::new();
    for _ in 0..FILLING_IN_FLIGHT {
        let (store, next, deed) = (Arc::clone(store), Arc::clone(&next), deed.clone());
        let task = async move {
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    number if number < numbers.end => deed(Arc::clone(&store), number).await?,
                    _ => return Ok::<_, Failure>(()),
                }
            }
        };
        tasks.spawn_on(task, runtime.handle());
    }
    let mut progress = Progress::new(format!("filling {what}"), numbers.end - numbers.start);
    while !tasks.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
        progress.at(next.load(Ordering::Relaxed).min(numbers.end) - numbers.start);
        while let Some(ended) = tasks.try_join_next() {
            ended??;
        }
    }
    progress.end();
    Ok(())
}

/// Looks up random operations among the first `records` until the time is over; returns how many.
pub(crate) async fn look_up(
    store: &Arc<dyn Store>,
    records: u64,
    in_flight: usize,
    duration: Duration,
) -> Result<u64, Failure> {
    let deadline = Instant::now() + duration;
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let work = Work::default();
            let mut count = 0;
            while Instant::now() < deadline {
                let id = work.id(fastrand::u64(..records));
                match store.get(&id).await? {
                    Found::Record(_) => count += 1,
                    other => return Err(format!("a stored record was not found: {other:?}").into()),
                }
            }
            Ok::<u64, Failure>(count)
        });
    }
    tasks.join_all().await.into_iter().sum()
}
