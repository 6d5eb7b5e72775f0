//! `kill -9` at random moments under load: two services on one database, twelve clients that insist.
//!
//! `ONCEWARD_SEED` makes the clients and killers choose the same again; the machine does not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod calm;
mod redis;
mod round;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use onceward_crash::service::{Driver, Stake};
use round::Round;

#[test]
fn a_hundred_kills_under_load_break_no_promise() {
    let _turn = turn();
    let killed: usize = rounds(5).iter().map(Round::run).sum();
    assert!(killed >= 100);
}

#[test]
#[ignore = "long: 5,000 kills take about eight minutes"]
fn five_thousand_kills_under_load_break_no_promise() {
    let _turn = turn();
    let killed: usize = (0..17).flat_map(|_| rounds(15)).map(|round| round.run()).sum();
    assert!(killed >= 5_000);
}

/// The services' transactions and the store's writers all want the one write lock of SQLite.
#[test]
fn nobody_starves_while_nothing_breaks() {
    let _turn = turn();
    for driver in [Driver::Sqlx, Driver::Rusqlite] {
        calm::run(driver, Duration::from_secs(2));
    }
}

/// One test at a time: each fills the machine.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One round for each kind of effect, twenty times the scale in kills.
fn rounds(scale: usize) -> [Round; 4] {
    let round = |stake, driver, kills| {
        let unhurried = Duration::from_millis(60 * kills as u64);
        Round { stake, driver, kills, unhurried, seed: round::seed(), redis: None }
    };
    [
        round(Stake::Transactional, Driver::Sqlx, 8 * scale),
        round(Stake::Transactional, Driver::Rusqlite, 4 * scale),
        round(Stake::External, Driver::Sqlx, 4 * scale),
        round(Stake::Repeatable, Driver::Sqlx, 4 * scale),
    ]
}
