//! Stories in which a mistake shows: what breaks, where, and who asks again.
//!
//! Each ends with a healthy service that is asked about everything: see `World::conclude`.

use std::{
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use onceward_crash::{
    load::{insist, order},
    running::Launch,
    service::Stake,
};

use crate::trial::{Seed, Trial};

/// The only thread of the first owner sleeps at this step until a second one has ended the operation.
pub(crate) fn woken_after_a_take_over_at(step: &'static str) -> impl Fn(&Trial) {
    move |trial| {
        let (world, order) = (&trial.world, trial.order());
        let plan = format!("{step}#1=stall:2000");
        let first = Launch { single_thread: true, ..trial.launch(Some(&plan)) }.start().unwrap();
        let second = trial.start(None);
        thread::scope(|scope| {
            scope.spawn(|| world.ask(first.address, &order));
            trial.wait_for_a_claim();
            let until = Instant::now() + Duration::from_secs(5);
            let ask = || Some(world.ask(second.address, &order));
            insist(ask, || Instant::now() >= until, &mut Rng::new());
        });
    }
}

/// The owner dies just before it reaches this step for the first time.
pub(crate) fn aborted_at(step: &'static str) -> impl Fn(&Trial) {
    move |trial| aborted(&format!("{step}#1=abort"))(trial)
}

/// The owner dies by this plan.
pub(crate) fn aborted(plan: &str) -> impl Fn(&Trial) {
    move |trial| {
        let owner = trial.start(Some(plan));
        trial.world.ask(owner.address, &trial.order());
        let ended = owner.wait_for_end(testbed::TEST_TIMEOUT);
        assert!(ended.is_some(), "it never came to {plan}");
    }
}

/// The owner of an external effect dies; the next service would be allowed to repeat its own.
pub(crate) fn abandoned_for_a_reader_who_would_repeat(trial: &Trial) {
    aborted("store.swap#2=abort")(trial);
    trial.last_stake.set(Stake::Repeatable);
}

/// Another finger taps while the first request is with the provider.
pub(crate) fn tapped_twice(trial: &Trial) {
    let (world, order) = (&trial.world, trial.order());
    let first = trial.start(Some("effect#1=stall:1000"));
    let second = trial.start(None);
    thread::scope(|scope| {
        scope.spawn(|| world.ask(first.address, &order));
        trial.wait_for_a_claim();
        world.ask(second.address, &order);
    });
}

/// The service is killed as soon as its answer is there.
pub(crate) fn killed_after_the_answer(trial: &Trial) {
    let service = trial.start(None);
    trial.world.ask(service.address, &trial.order());
    service.kill().unwrap();
}

/// Two tenants use the same key, once for different things and once for the same.
pub(crate) fn same_key_of_two_tenants(trial: &Trial) {
    let service = trial.start(None);
    for (key, payloads) in [("order-1", ["500", "700"]), ("order-2", ["900", "900"])] {
        for (tenant, payload) in ["alice", "bob"].into_iter().zip(payloads) {
            trial.world.ask(service.address, &order(tenant, key, payload.into()));
        }
    }
}

/// The provider does its work, and its answer is lost.
pub(crate) fn answered_late(trial: &Trial) {
    let service = trial.start(Some("effect#1=late"));
    trial.world.ask(service.address, &trial.order());
}

/// A client comes back after a little more than a second.
pub(crate) fn asked_again_after_a_while(trial: &Trial) {
    let service = trial.start(None);
    trial.world.ask(service.address, &trial.order());
    thread::sleep(Duration::from_millis(1200));
}

/// Nothing breaks at all.
pub(crate) fn one_after_the_other(trial: &Trial) {
    let service = trial.start(None);
    trial.world.ask(service.address, &trial.order());
    trial.world.ask(service.address, &order("bob", "order-2", "700".into()));
}

/// The answer is lost, and the client asks again, perhaps with a new key.
pub(crate) fn retried_with_a_new_key(trial: &Trial) {
    aborted("reply#1=abort")(trial);
    let (service, order) = (trial.start(None), trial.order());
    match trial.seed {
        Some(Seed::NewKey) => trial.world.ask_with_key(service.address, &order, "order-1~again"),
        _ => trial.world.ask(service.address, &order),
    };
}
