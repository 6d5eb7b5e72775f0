//! A shop, a relay and a consumer on PostgreSQL, of which one dies: as `messages` on SQLite.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "messages/bench.rs"]
mod bench;
#[path = "steps/lanes.rs"]
mod lanes;
#[path = "messages/matrix.rs"]
mod matrix;
#[path = "messages/points.rs"]
mod points;
#[path = "steps/sources.rs"]
mod sources;
#[path = "messages/storm.rs"]
mod storm;
#[path = "messages/zombie.rs"]
mod zombie;

use bench::Engine;

#[test]
fn a_death_at_every_point_loses_and_repeats_nothing() {
    let passed = matrix::survive_everything(Engine::Postgres);
    points::are_all_passed(&passed);
}

#[test]
fn of_5000_messages_each_is_applied_once_whoever_is_killed() {
    storm::survive(Engine::Postgres, 5_000);
}

#[test]
fn a_relay_that_was_stopped_past_its_lease_changes_nothing() {
    zombie::changes_nothing(Engine::Postgres);
}

#[test]
fn what_a_stopped_relay_repeats_is_applied_twice_without_an_inbox() {
    zombie::is_seen_without_an_inbox(Engine::Postgres);
}
