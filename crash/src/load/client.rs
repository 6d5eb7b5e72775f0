//! Clients that insist: the same key on every attempt, to whichever service is there.

use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::history::{Answer, Operation};

use super::{World, world::order};

/// How long a client insists on one operation before it leaves it open.
const TIME_FOR_ONE: Duration = Duration::from_secs(3);

/// Less than a lease: whoever asks a service that is frozen meets the take-over elsewhere.
const TIME_FOR_AN_ANSWER: Duration = Duration::from_millis(300);

const TENANTS: [&str; 3] = ["alice", "bob", "carol"];

/// Where services listen; a client may still hold the address of one that was killed.
#[derive(Debug, Default)]
pub struct Addresses {
    slots: Mutex<Vec<Option<SocketAddr>>>,
}

impl Addresses {
    /// A place for so many services.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots: Mutex::new(vec![None; slots]) }
    }

    /// The service in this place listens here now.
    pub fn set(&self, slot: usize, address: SocketAddr) {
        self.lock()[slot] = Some(address);
    }

    /// The service in this place is dead.
    pub fn clear(&self, slot: usize) {
        self.lock()[slot] = None;
    }

    /// Any of them.
    pub fn any(&self, random: &mut Rng) -> Option<SocketAddr> {
        let listening: Vec<_> = self.lock().iter().copied().flatten().collect();
        random.choice(listening)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<SocketAddr>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks until the operation has ended, or nobody wants to know any more. `None`: nobody to ask.
pub fn insist(
    mut ask: impl FnMut() -> Option<Answer>,
    is_over: impl Fn() -> bool,
    random: &mut Rng,
) {
    let mut ceiling_ms = 8;
    loop {
        if ask().is_some_and(|answer| has_ended(&answer)) || is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(random.u64(1..=ceiling_ms)));
        ceiling_ms = (ceiling_ms * 2).min(64);
    }
}

/// Whether it makes no sense to ask again.
fn has_ended(answer: &Answer) -> bool {
    matches!(answer, Answer::Ok(_) | Answer::BoundFailure(_) | Answer::OutcomeUnknown(_))
}

/// Many clients at once, until they are told to stop.
pub struct Clients<'a> {
    /// What they ask in.
    pub world: &'a World,
    /// Whom they ask.
    pub addresses: &'a Addresses,
    /// Whether they shall stop.
    pub stop: &'a AtomicBool,
}

impl Clients<'_> {
    /// One client: one operation after the other.
    pub fn run(&self, number: usize, mut random: Rng) {
        for count in 0.. {
            if self.shall_stop() {
                return;
            }
            self.charge(&some_order(number, count, &mut random), &mut random);
            thread::sleep(Duration::from_millis(random.u64(0..30)));
        }
    }

    /// Now and then a finger taps twice.
    fn charge(&self, operation: &Operation, random: &mut Rng) {
        let mut second_finger = random.fork();
        thread::scope(|scope| {
            if random.u8(..6) == 0 {
                scope.spawn(|| self.insist(operation, &mut second_finger));
            }
            self.insist(operation, random);
        });
    }

    fn insist(&self, operation: &Operation, random: &mut Rng) {
        let mut way = random.fork();
        let until = Instant::now() + TIME_FOR_ONE;
        let is_over = || self.shall_stop() || Instant::now() >= until;
        let ask = || {
            let service = self.addresses.any(&mut way)?;
            Some(self.world.ask_for(service, operation, TIME_FOR_AN_ANSWER))
        };
        insist(ask, is_over, random);
    }

    fn shall_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Every key is used by all tenants, each for something else. Some answers are too large for a record.
fn some_order(client: usize, count: usize, random: &mut Rng) -> Operation {
    let tenant = TENANTS[client % TENANTS.len()];
    let key = format!("order-{}-{count}", client / TENANTS.len());
    let details = match random.u8(..16) {
        0 => "x".repeat(100_000),
        1..4 => "x".repeat(random.usize(..4_000)),
        _ => String::new(),
    };
    order(tenant, &key, format!("{tenant}:{}:{details}", random.u32(1..10_000)))
}
