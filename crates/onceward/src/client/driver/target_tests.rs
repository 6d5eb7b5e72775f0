//! Not in `target.rs`, which tests of interleavings include with another lock.

use std::{sync::Arc, time::Duration};

use onceward_core::retry::{Call, Context, Method, Rules};

use super::target::{TargetHandle, Targets};

#[test]
fn the_number_of_targets_is_bounded_and_those_in_use_are_forgotten_last() {
    let (rules, targets) = (Rules::standard(), Targets::new(3));
    let at = Duration::from_secs;
    let in_use = targets.get(&0, &rules, at(0));
    for name in 1..10 {
        targets.get(&name, &rules, at(name));
    }
    assert_eq!(targets.all().len(), 3);
    assert!(Arc::ptr_eq(&in_use, &targets.find(&0).unwrap()), "the test holds it");
    assert!(targets.find(&8).is_some() && targets.find(&9).is_some());
}

#[test]
fn a_flight_lands_when_it_is_dropped() {
    let rules = Rules::standard();
    let target = TargetHandle::new(&rules);
    let mut call = Call::new(&rules, Method::Safe, Duration::ZERO);
    let permit = target
        .with(|target| Context { rules: &rules, call: &mut call, target }.begin(Duration::ZERO, 7));
    let permit_in_flight = permit.map(|_| target.permit()).unwrap();
    assert_eq!(target.with(|target| target.in_flight()), 1);
    drop(permit_in_flight);
    assert_eq!(target.with(|target| target.in_flight()), 0);
}
