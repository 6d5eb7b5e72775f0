//! What all processes share: the store, the time, the chance, the ledger and the oracle's book.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use fastrand::Rng;
use onceward::{
    Digest, Fingerprint, Key, OperationId, OperationName, Request, Scope, State, Store,
    clock::Clock,
    protocol::{Claim, Fence, Found, Settled, Settlement, SettlementStep, Stored, Ttl},
    store::{
        BoxFuture, Change, Inspect, Note, NoteKind, PURGE_MARGIN, Purge, Swap, memory::MemoryStore,
    },
};
use tokio::time::Instant;

use crate::{
    book::Book,
    checks::I11,
    clock::SimClock,
    sabotage::Sabotage,
    settings::{Settings, percent},
    tally::Event,
};

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) ids: Vec<Digest>,
    store: MemoryStore,
    rng: Mutex<Rng>,
    book: Mutex<Book>,
    trace: Option<Mutex<Vec<String>>>,
    downstream: Mutex<Downstream>,
    outage_until: Mutex<Instant>,
    healed: AtomicBool,
}

impl World {
    pub(crate) fn new(mut rng: Rng, sabotage: Option<Sabotage>, traced: bool) -> Self {
        let settings = Settings::draw(&mut rng, sabotage);
        let clock = Arc::new(SimClock::start());
        let ids: Vec<Digest> =
            (0..settings.keys).map(|key| operation(key, sabotage).digest()).collect();
        let world = Self {
            settings,
            sabotage,
            store: MemoryStore::not_durable_with_clock(clock.clone()),
            clock,
            rng: Mutex::new(rng),
            book: Mutex::new(Book::new(settings.nature, ids.clone(), settings.clients)),
            ids,
            trace: traced.then(Mutex::default),
            downstream: Mutex::default(),
            outage_until: Mutex::new(Instant::now()),
            healed: AtomicBool::new(false),
        };
        world.trace(|| format!("{settings:?}"));
        world
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.book)
    }

    /// Draws from the history's own chance.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut locked(&self.rng))
    }

    pub(crate) fn chance(&self, chance: u8) -> bool {
        self.draw(|rng| percent(rng, chance))
    }

    pub(crate) fn count(&self, event: Event) {
        self.book().count(event);
    }

    /// Writes a line of the history, if somebody reads it.
    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let seconds = self.clock.elapsed().as_secs_f64();
            locked(trace).push(format!("{seconds:>9.3}s  {}", line()));
        }
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| std::mem::take(&mut *locked(trace))).unwrap_or_default()
    }

    pub(crate) fn request(&self, key: u8, fingerprint: u8) -> Request {
        let operation = operation(key, self.sabotage);
        let fingerprints = Fingerprint::from_parts(1, [fingerprint; 32]).into();
        Request { operation, fingerprints, terms: self.settings.terms }
    }

    /// From now on everything works.
    pub(crate) fn heal(&self) {
        self.trace(|| "everything heals".into());
        self.healed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_outage(&self, duration: Duration) {
        *locked(&self.outage_until) = Instant::now() + duration;
    }

    pub(crate) fn is_down(&self) -> bool {
        !self.is_healed() && Instant::now() < *locked(&self.outage_until)
    }

    /// What the store shows to whoever asks.
    pub(crate) fn found(&self, id: &Digest) -> Found {
        let found = at_once(self.store.get(id)).expect("memory does not fail");
        if let Found::Record(stored) = &found {
            self.book().shown(stored);
        }
        found
    }

    /// What the store holds; nobody is shown it.
    pub(crate) fn stored(&self, id: &Digest) -> Option<Box<Stored>> {
        match at_once(self.store.get(id)).expect("memory does not fail") {
            Found::Record(stored) => Some(stored),
            _ => None,
        }
    }

    /// A change reaches the store, and the book takes note of it.
    pub(crate) fn swap(&self, change: &Change, process: usize) -> Swap {
        let ends = change.next.state != State::InProgress;
        if ends && self.sabotage == Some(Sabotage::LosesSettlements) && self.chance(20) {
            return Swap::Stored { at: self.clock.now() };
        }
        let before = self.stored(&change.id);
        // Somebody's open transaction may hold any record at any time, for a while.
        let is_expected = before.as_ref().map(|stored| stored.record.fence) == change.expected;
        if is_expected && !self.is_healed() && self.chance(3) {
            return Swap::Held;
        }
        let swap = self.swap_or_sabotage(change, before.as_deref());
        match &swap {
            Swap::Stored { at } => {
                self.book().landed(before.as_deref(), change, *at, process);
                self.trace(|| self.tell_landing(before.as_deref(), change, process));
            }
            Swap::Conflict(Found::Record(stored)) => self.book().shown(stored),
            Swap::Conflict(_) | Swap::Held => {}
        }
        swap
    }

    fn swap_or_sabotage(&self, change: &Change, before: Option<&Stored>) -> Swap {
        let raw = |change: &Change| at_once(self.store.swap(change)).expect("memory does not fail");
        let ends = change.next.state != State::InProgress;
        match (self.sabotage, before) {
            (Some(Sabotage::IgnoresFence), Some(before)) if ends => {
                let expected = Some(before.record.fence);
                raw(&Change { expected, ..change.clone() })
            }
            (Some(Sabotage::IgnoresFingerprint), _) => match raw(change) {
                Swap::Conflict(Found::Record(mut stored)) => {
                    stored.record.fingerprint = change.next.fingerprint;
                    Swap::Conflict(Found::Record(stored))
                }
                swap => swap,
            },
            _ => raw(change),
        }
    }

    /// The end of a claim and its effect in one transaction: no other task runs in between.
    pub(crate) fn commit(
        &self,
        mut settlement: Settlement,
        claim: usize,
        process: usize,
    ) -> Settled {
        let succeeds = matches!(settlement.change().next.state, State::Succeeded(_));
        loop {
            let swap = self.swap(settlement.change(), process);
            match settlement.next(swap) {
                SettlementStep::Swap(next) => settlement = next,
                SettlementStep::Done(settled) => {
                    let stored = matches!(settled, Settled::Stored { .. });
                    if stored && succeeds && self.sabotage != Some(Sabotage::EffectOutsideCommit) {
                        self.effect(claim);
                    }
                    return settled;
                }
            }
        }
    }

    /// Writes to the ledger. Nothing keeps it from holding two effects of one operation.
    pub(crate) fn effect(&self, claim: usize) {
        self.trace(|| format!("#{claim} has its effect"));
        self.book().effect(claim);
    }

    /// Asks the provider, which remembers what it answered under a key.
    pub(crate) fn ask_downstream(&self, claim: &Claim, number: usize, fingerprint: u8) -> Reply {
        let key = claim.key_for("effect").as_str().to_owned();
        let refuses = !self.is_healed() && self.chance(15);
        let now = Instant::now();
        let memory = self.downstream_memory();
        let mut downstream = locked(&self.downstream);
        let remembered = downstream.remembered.get(&key).filter(|(until, _)| now < *until).copied();
        let reply = match remembered {
            Some((_, reply)) if reply.fingerprint == fingerprint => reply,
            // Like real providers it refuses a known key with other parameters.
            Some((_, reply)) => Reply { done: false, fingerprint, ..reply },
            None => {
                downstream.results += 1;
                Reply { result: downstream.results, done: !refuses, fingerprint }
            }
        };
        if remembered.is_none() {
            downstream.remembered.insert(key, (now + memory, reply));
        }
        drop(downstream);
        self.trace(|| format!("#{number} hears {reply:?}, known: {}", remembered.is_some()));
        if remembered.is_some() {
            let mut book = self.book();
            book.count(Event::Remembered);
            let generation = book.claims[number].generation;
            book.generations[generation].remembered = true;
        } else if reply.done {
            self.effect(number);
        }
        reply
    }

    /// `within` counts from the first claim to the last one by the store's clock; the provider must
    /// remember until that last one has run, by its own.
    fn downstream_memory(&self) -> Duration {
        const LONGEST_RUN: Duration = Duration::from_secs(60);
        match self.settings.terms.effect() {
            _ if self.sabotage == Some(Sabotage::DownstreamForgets) => Duration::ZERO,
            onceward::Effect::Repeatable { within } => within + LONGEST_RUN,
            _ => LONGEST_RUN,
        }
    }

    /// Deletes what may be deleted; the book checks that it was nothing else.
    pub(crate) fn sweep(&self) {
        let before: Vec<_> = self.ids.iter().map(|id| (*id, self.stored(id))).collect();
        if self.sabotage == Some(Sabotage::SweepsInProgress) {
            self.sweep_in_progress();
        }
        let swept = at_once(self.store.sweep(100));
        self.trace(|| format!("swept: {swept:?}"));
        for (id, stored) in before {
            let (Some(stored), None) = (stored, self.stored(&id)) else { continue };
            let mut book = self.book();
            book.count(Event::Swept);
            let open = matches!(stored.record.state, State::InProgress | State::Unknown);
            if open || !stored.record.ttl.is_over() {
                book.violate(I11, format!("the sweep deleted {stored:?}"));
            }
        }
    }

    fn sweep_in_progress(&self) {
        for id in &self.ids {
            let Some(stored) = self.stored(id) else { continue };
            let record = &stored.record;
            if record.state == State::InProgress && record.ttl.is_over() {
                let fence = Fence::from_random([0; 16]);
                let next =
                    onceward::protocol::Record { fence, state: State::Released, ..record.clone() };
                let next = onceward::protocol::Record { ttl: Ttl::Never, ..next };
                let change = Change {
                    id: *id,
                    expected: Some(record.fence),
                    next,
                    note: None,
                    retain: None,
                };
                let note = Note::of_protocol(NoteKind::Purge, record.execution);
                at_once(self.store.swap(&change)).expect("memory does not fail");
                // An operator may not delete what changed just now; this is no operator.
                self.store.age(id, PURGE_MARGIN);
                let purge = at_once(self.store.purge(id, fence, &note));
                assert_eq!(purge, Ok(Purge::Purged));
            }
        }
    }

    fn tell_landing(&self, before: Option<&Stored>, change: &Change, process: usize) -> String {
        let book = self.book();
        let claim = book.claim_of(change.next.execution);
        let key = self.ids.iter().position(|id| *id == change.id);
        let before = before.map(Stored::status);
        let state = &change.next.state;
        let (key, claim) = (key.unwrap_or_default(), claim.unwrap_or_default());
        format!("store: key {key} {before:?} -> {state:?} by #{claim} of process {process}")
    }
}

/// What the provider downstream answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) result: u32,
    pub(crate) done: bool,
    fingerprint: u8,
}

#[derive(Default)]
struct Downstream {
    remembered: BTreeMap<String, (Instant, Reply)>,
    results: u32,
}

/// Two tenants that use the same key.
fn operation(key: u8, sabotage: Option<Sabotage>) -> OperationId {
    let tenant = if sabotage == Some(Sabotage::IgnoresScope) { 0 } else { key };
    let scope = Scope::of("tenant", &tenant.to_string()).expect("a scope");
    let name = OperationName::new("pay").expect("a name");
    OperationId::new(scope, name, Key::new("key").expect("a key"))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn at_once<T>(mut future: BoxFuture<'_, T>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}
