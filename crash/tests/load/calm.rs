//! The same load while nothing breaks: who waits for SQLite's one write lock, and how long?

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use fastrand::Rng;
use onceward_crash::{
    history::{Answer, History},
    load::{Addresses, Clients, Conclusion, Tally, World},
    service::{Driver, Stake},
};

use crate::round::{CLIENTS, END_MARGIN, LEASE, SERVICES, say};

/// Clients insist for so long.
pub(crate) fn run(driver: Driver, time: Duration) {
    let service = env!("CARGO_BIN_EXE_service");
    let world = World::new(service, Stake::Transactional, driver, LEASE).unwrap();
    let (addresses, stop) = (Addresses::new(SERVICES), AtomicBool::new(false));
    let services = [0; SERVICES].map(|_| world.launch().start().unwrap());
    for (slot, service) in services.iter().enumerate() {
        addresses.set(slot, service.address);
    }
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let clients = Clients { world: &world, addresses: &addresses, stop: &stop };
            scope.spawn(move || clients.run(client, Rng::new()));
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let conclusion = world.conclude(&world.launch(), END_MARGIN).unwrap();
    let waits = waits_for_ok(&conclusion.history);
    let share = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    say(&format!(
        "without faults, {driver:?}: a first ok takes {:.1?} (half), {:.1?} (99 %), {:.1?} (all); {}",
        share(50),
        share(99),
        share(100),
        Tally::of(&conclusion),
    ));
    assert_eq!(conclusion.violations, []);
    assert_no_more_than_one_in_a_hundred_is_turned_away(&conclusion);
}

/// How long those waited whose own request was run, the shortest first.
fn waits_for_ok(history: &History) -> Vec<Duration> {
    let ran = |answer: &Answer| matches!(answer, Answer::Ok(reply) if !reply.replayed);
    let attempts = history.attempts.iter().filter(|attempt| ran(&attempt.answer));
    let mut waits: Vec<_> = attempts.map(|attempt| attempt.ended - attempt.started).collect();
    waits.sort_unstable();
    waits
}

fn assert_no_more_than_one_in_a_hundred_is_turned_away(conclusion: &Conclusion) {
    let attempts = &conclusion.history.attempts;
    let is_turned_away = |answer: &Answer| {
        use Answer::{NothingHappened, NothingRan, Unclear};
        matches!(answer, NothingHappened(it) | NothingRan(it) | Unclear(it) if it.status >= 500)
    };
    let rejected = attempts.iter().filter(|attempt| is_turned_away(&attempt.answer)).count();
    assert!(rejected * 100 <= attempts.len(), "{rejected} of {}", attempts.len());
}
