//! A process: an engine, its way to the store, and its death.

use std::{
    cell::Cell,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onceward::{
    Digest, Engine, Execution, State, Store, StoreError,
    protocol::Found,
    store::{BoxFuture, Change, Swap},
};
use tokio::{
    sync::Notify,
    task_local,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    sabotage::Sabotage,
    settings::{Weather, millis, percent},
    tally::Event,
    world::{World, locked},
};

/// How long a call may hang before the engine takes it as failed.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

task_local! {
    /// The admission under way in this task.
    pub(crate) static ADMISSION: Cell<Option<Proposed>>;
}

/// What an admission proposed last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proposed {
    pub(crate) execution: Execution,
    /// The store showed it its own claim, with its lease over.
    pub(crate) found_over: bool,
}

pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) engine: Engine,
    life: Arc<Life>,
}

impl Process {
    pub(crate) fn start(world: &Arc<World>, number: usize) -> Arc<Self> {
        let life = Arc::new(Life::new());
        let way = WayToStore { world: world.clone(), life: life.clone(), number };
        let engine = Engine::new(way).call_timeout(CALL_TIMEOUT);
        Arc::new(Self { number, engine, life })
    }

    /// From now on nothing that this process had begun goes on, except what is on its way already.
    pub(crate) fn die(&self) {
        self.life.dead.store(true, Ordering::Relaxed);
        self.life.died.notify_waiters();
        // Its loops could do nothing any more; they need not turn for the rest of the history.
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.drain(Duration::ZERO).await });
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.life.dead.load(Ordering::Relaxed)
    }

    /// The operating system stops it for so long.
    pub(crate) fn freeze(&self, duration: Duration) {
        *locked(&self.life.frozen_until) = Instant::now() + duration;
    }

    /// Every step of this process begins here: it waits while frozen and for ever when dead.
    pub(crate) async fn step(&self) {
        self.life.step().await;
    }

    /// Ends when the process is dead.
    pub(crate) async fn death(&self) {
        let died = self.life.died.notified();
        if !self.is_dead() {
            died.await;
        }
    }
}

struct Life {
    dead: AtomicBool,
    died: Notify,
    frozen_until: Mutex<Instant>,
}

impl Life {
    fn new() -> Self {
        let frozen_until = Mutex::new(Instant::now());
        Self { dead: AtomicBool::new(false), died: Notify::new(), frozen_until }
    }

    async fn step(&self) {
        loop {
            if self.dead.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            let until = *locked(&self.frozen_until);
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// The store as one process sees it.
struct WayToStore {
    world: Arc<World>,
    life: Arc<Life>,
    number: usize,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
enum CallOutcome {
    Prompt,
    Slow { there: Duration, back: Duration },
    Fails,
    LosesReply { hangs: bool },
    Late { after: Duration, again: Option<Duration>, hangs: bool },
}

impl WayToStore {
    fn draw_outcome(&self) -> CallOutcome {
        if self.world.is_down() {
            return CallOutcome::Fails;
        }
        let healed = self.world.is_healed();
        let weather = if healed { Weather::CALM } else { self.world.settings.weather };
        self.world.draw(|rng| {
            let Weather { fails, loses, late, slow } = weather;
            let dice = rng.u8(0..100);
            if dice < fails {
                CallOutcome::Fails
            } else if dice < fails + loses {
                CallOutcome::LosesReply { hangs: percent(rng, 20) }
            } else if dice < fails + loses + late {
                let again = percent(rng, 30).then(|| millis(rng.u64(0..=3000)));
                CallOutcome::Late {
                    after: millis(rng.u64(1..=4000)),
                    again,
                    hangs: percent(rng, 20),
                }
            } else if dice < fails + loses + late + slow {
                CallOutcome::Slow { there: millis(rng.u64(0..=20)), back: millis(rng.u64(0..=20)) }
            } else {
                CallOutcome::Prompt
            }
        })
    }

    async fn send(&self, change: &Change) -> Result<Swap, StoreError> {
        let (world, number) = (&self.world, self.number);
        if world.sabotage == Some(Sabotage::NeverGivesBack) && self.gives_back(change) {
            return self.fail("sabotaged", false).await;
        }
        match self.draw_outcome() {
            CallOutcome::Prompt => Ok(world.swap(change, number)),
            CallOutcome::Slow { there, back } => {
                let swap = self.deliver(change, there).await;
                sleep(back).await;
                Ok(swap)
            }
            CallOutcome::Fails => self.fail("refused", false).await,
            CallOutcome::LosesReply { hangs } => {
                world.count(Event::LostReply);
                world.swap(change, number);
                self.fail("reply lost", hangs).await
            }
            CallOutcome::Late { after, again, hangs } => {
                drop(self.deliver_late(change, after));
                if let Some(again) = again {
                    drop(self.deliver_late(change, after + again));
                }
                self.fail("on its way", hangs).await
            }
        }
    }

    fn gives_back(&self, change: &Change) -> bool {
        let book = self.world.book();
        let claim = book.claim_of(change.next.execution);
        let releases = change.next.state == State::Released;
        releases && claim.is_none_or(|claim| !book.claims[claim].ran)
    }

    /// What was sent arrives, also if the caller goes away.
    async fn deliver(&self, change: &Change, after: Duration) -> Swap {
        let (world, change, number) = (self.world.clone(), change.clone(), self.number);
        let delivery = tokio::spawn(async move {
            sleep(after).await;
            world.swap(&change, number)
        });
        delivery.await.expect("the store does not panic")
    }

    fn deliver_late(&self, change: &Change, after: Duration) -> tokio::task::JoinHandle<()> {
        let (world, change, number) = (self.world.clone(), change.clone(), self.number);
        tokio::spawn(async move {
            sleep(after).await;
            if let Swap::Stored { .. } = world.swap(&change, number) {
                world.count(Event::LateLanding);
            }
        })
    }

    async fn fail<T>(&self, how: &str, hangs: bool) -> Result<T, StoreError> {
        self.world.trace(|| format!("process {}: call {how}", self.number));
        if hangs {
            pending::<()>().await;
        }
        Err(StoreError::Unavailable(how.into()))
    }
}

fn proposed(change: &Change, swap: &Result<Swap, StoreError>) -> Proposed {
    let found_over = match swap {
        Ok(Swap::Conflict(Found::Record(stored))) => {
            stored.record.fence == change.next.fence && stored.record.ttl.is_over()
        }
        _ => false,
    };
    Proposed { execution: change.next.execution, found_over }
}

impl Store for WayToStore {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async move {
            if matches!(change.next.state, State::Released | State::FailedRetryable) {
                self.world.book().given_back.push(change.next.execution);
            }
            self.life.step().await;
            let swap = self.send(change).await;
            // Background work of the engine is not part of anybody's admission.
            let _ = ADMISSION.try_with(|admission| admission.set(Some(proposed(change, &swap))));
            self.life.step().await;
            swap
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(async move {
            self.life.step().await;
            let found = match self.draw_outcome() {
                CallOutcome::Prompt => Ok(self.world.found(id)),
                CallOutcome::Slow { there, back } => {
                    sleep(there).await;
                    let found = self.world.found(id);
                    sleep(back).await;
                    Ok(found)
                }
                _ => self.fail("read fails", false).await,
            };
            self.life.step().await;
            found
        })
    }

    /// Sweeping is the world's: it is one store, whoever asks for it.
    fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}
