//! A shop, a relay and a consumer, of which one dies: at every point, and at random under load. On SQLite;
//! `postgres_crash` has the same on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bench;
#[path = "../steps/lanes.rs"]
mod lanes;
mod matrix;
mod mistakes;
mod points;
#[path = "../steps/sources.rs"]
mod sources;
mod storm;
mod zombie;

use bench::Engine;

#[test]
fn a_death_at_every_point_loses_and_repeats_nothing() {
    let passed = matrix::survive_everything(Engine::Sqlite);
    points::are_all_passed(&passed);
}

#[test]
fn of_1000_messages_each_is_applied_once_whoever_is_killed() {
    storm::survive(Engine::Sqlite, 1_000);
}

#[test]
fn a_relay_that_was_stopped_past_its_lease_changes_nothing() {
    zombie::changes_nothing(Engine::Sqlite);
}

#[test]
fn what_a_stopped_relay_repeats_is_applied_twice_without_an_inbox() {
    zombie::is_seen_without_an_inbox(Engine::Sqlite);
}
