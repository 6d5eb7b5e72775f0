//! The protocol, checked exhaustively: every order of every step within bounds.
//!
//! The transition function *is* the shipped [`Admission`](onceward_core::Admission) and
//! [`Claim`](onceward_core::Claim); around them is the smallest world in which they can go wrong: one
//! operation, two workers, three requests of two fingerprints, a store of one row, messages that
//! land late, crashes, leases that are over at any moment, retention, purge, and a ledger of effects.

#[path = "model/answers.rs"]
mod answers;
#[path = "model/effects.rs"]
mod effects;
#[path = "model/mutant.rs"]
mod mutant;
#[path = "model/properties.rs"]
mod properties;
#[path = "model/protocol.rs"]
mod protocol;
#[path = "model/requests.rs"]
mod requests;
#[path = "model/store.rs"]
mod store;
#[path = "model/world.rs"]
mod world;

use std::time::Instant;

use onceward_core::Effect;
use protocol::{Limits, Protocol};
use stateright::{Checker, Expectation, Model};
use mutant::Mutant;

const REPEATABLE: Effect = Effect::Repeatable { within: store::WITHIN };

fn limits() -> Limits {
    let v: Vec<u8> = std::env::var("LIM").unwrap_or("1,1,0,1,0".into()).split(',').map(|x| x.parse().unwrap()).collect();
    Limits { timeouts: v[0], crashes: v[1], retries: v[2], forgotten: v[3], unknown_ends: v[4] == 1 }
}

#[test]
fn transactional() {
    check("transactional", Protocol::new([Effect::Transactional; 3], limits()));
}
#[test]
fn external() {
    check("external", Protocol::new([Effect::External; 3], limits()));
}
#[test]
fn repeatable() {
    check("repeatable", Protocol::new([REPEATABLE; 3], limits()));
}
#[test]
fn mixed_te() {
    check("mixed_te", Protocol::new([Effect::Transactional, Effect::External, Effect::External], limits()));
}
#[test]
fn mixed_ret() {
    check("mixed_ret", Protocol::new([REPEATABLE, Effect::External, Effect::Transactional], limits()));
}
#[test]
fn mixed_trr() {
    check("mixed_trr", Protocol::new([Effect::Transactional, REPEATABLE, REPEATABLE], limits()));
}
#[test]
fn outlive() {
    for e in [Effect::External, Effect::Transactional] {
    check("outlive", Protocol::new([e; 3], limits()).with(Mutant::MessageOutlivesDeletion));
    }
}

fn check(name: &str, model: Protocol) {
    let start = Instant::now();
    let properties = model.properties();
    let checker = model.checker().threads(2).spawn_bfs().join();
    eprintln!("{name}: {} unique states, {} generated, depth {}, {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), start.elapsed());
    let d = checker.discoveries();
    for p in properties {
        match (p.expectation, d.get(p.name)) {
            (Expectation::Always, Some(path)) => eprintln!("VIOLATED {}: {:?}", p.name, path.clone().into_actions()),
            (Expectation::Sometimes, None) => eprintln!("NEVER {}", p.name),
            _ => {}
        }
    }
    assert!(checker.is_done());
}
