//! The protocol of messages, checked exhaustively: every order of every step within bounds.
//!
//! Producers take their numbers before they commit, late or never. Two relays share a lane; either may stop for
//! any time and go on as a zombie. Replies are lost, settlements land late, processes crash, operators act,
//! old rows and steps are swept, and the database may be a restored copy. What a relay does with a page is
//! the shipped [`LaneWork`](onceward_core::message::LaneWork); the database is the one that passes the conformance
//! suite.
//!
//! Each mistake is a known one: the check is worth something because it finds them all.

mod ends;
mod properties;
mod relays;
mod steps;
mod world;

use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use self::{
    properties::{ABORTED, DEAD, DISCARDED, ENDS, FENCED, ONCE, ORDER, STORED},
    world::{Heard, World},
};
use crate::outbox::Mistake;

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Protocol {
    /// What each producer enqueues, in one transaction each.
    script: &'static [&'static [Planned]],
    limits: Limits,
    /// The length of a page.
    page: usize,
    mistake: Option<Mistake>,
}

/// A message that a producer will enqueue. Its number is its place in the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    aggregate: &'static str,
    is_scheduled: bool,
    expires: bool,
}

/// How often each fault may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Deliveries that a relay does not hear as accepted.
    failures: u8,
    aborts: u8,
    /// Settlements whose replies are lost, or that land late.
    lost_replies: u8,
    crashes: u8,
    /// Leases that end while their relay goes on.
    leases: u8,
    /// Days that pass: waits, leases and retentions end with them.
    days: u8,
    /// Changes by operators.
    repairs: u8,
    sweeps: u8,
    restores: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Enqueue(usize),
    Commit(usize),
    Abort(usize),
    /// With a renewal of the lease, or a take-over.
    Take(usize),
    Send(usize, Heard),
    /// The consumer commits, and the relay does not hear of it.
    SendUnheard(usize),
    Settle(usize),
    SettleUnheard(usize),
    /// The settlement is on its way, and its relay proposes it again.
    SettleLate(usize),
    Land,
    Crash(usize),
    LeaseOver,
    DayPasses,
    Redrive(usize),
    Discard(usize),
    Sweep,
    Restore,
    Rebase,
}

const A: Planned = Planned { aggregate: "order-0", is_scheduled: false, expires: false };
const B: Planned = Planned { aggregate: "order-10", ..A };
const LATER: Planned = Planned { is_scheduled: true, ..A };
const SHORT: Planned = Planned { expires: true, ..A };

/// The older transaction may enqueue its second message after the younger one has committed.
const CROSSED: &[&[Planned]] = &[&[B, A], &[A]];
const CHAIN: &[&[Planned]] = &[&[A, A], &[A]];
const TIMED: &[&[Planned]] = &[&[LATER], &[SHORT, A]];
const ONE_EACH: &[&[Planned]] = &[&[A], &[A]];

const NONE: Limits = Limits {
    failures: 0,
    aborts: 0,
    lost_replies: 0,
    crashes: 0,
    leases: 0,
    days: 0,
    repairs: 0,
    sweeps: 0,
    restores: 0,
};
const PRODUCERS: Limits = Limits { failures: 1, aborts: 1, crashes: 1, leases: 1, ..NONE };
const ZOMBIES: Limits = Limits { leases: 1, days: 1, sweeps: 1, ..NONE };
const LOST_REPLIES: Limits = Limits { failures: 1, lost_replies: 1, leases: 1, ..NONE };
const OPERATORS: Limits = Limits { failures: 2, repairs: 2, ..NONE };
const SWEEPS: Limits = Limits { failures: 1, days: 1, repairs: 1, sweeps: 1, ..NONE };
const DAYS: Limits = Limits { failures: 1, days: 1, ..NONE };
const RESTORED: Limits = Limits { failures: 1, crashes: 1, restores: 1, ..NONE };

/// Visits every state that can be reached, and reports how many there were.
fn check(script: &'static [&'static [Planned]], page: usize, limits: Limits) {
    let start = Instant::now();
    let model = Protocol { script, limits, page, mistake: None };
    let properties = model.properties();
    let checker = model.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    eprintln!("pages of {page}, {limits:?}: {states} states, depth {depth}, {:?}", start.elapsed());
    let discoveries = checker.discoveries();
    for property in properties {
        match (property.expectation, discoveries.get(property.name)) {
            (Expectation::Always, Some(path)) => {
                panic!("{} is violated by {:?}", property.name, actions(path));
            }
            (Expectation::Sometimes, None) => panic!("{} never happens", property.name),
            _ => {}
        }
    }
}

fn actions(path: &Path<World, Action>) -> Vec<Action> {
    path.clone().into_actions()
}

/// Makes one mistake, which must break what it is expected to break, if not more.
fn caught(
    mistake: Mistake,
    script: &'static [&'static [Planned]],
    limits: Limits,
    expected: &[&'static str],
) {
    let model = Protocol { script, limits, page: 10, mistake: Some(mistake) };
    let found = HasDiscoveries::AllOf(expected.iter().copied().collect());
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    let discoveries = checker.discoveries();
    for name in expected {
        let Some(path) = discoveries.get(name) else { panic!("{mistake:?} does not break {name}") };
        eprintln!("{mistake:?} breaks {name}: {:?}", actions(path));
    }
}

#[test]
fn late_and_crossed_commits_keep_all_invariants() {
    check(CROSSED, 10, PRODUCERS);
    check(CROSSED, 1, PRODUCERS);
}

#[test]
fn zombies_keep_all_invariants() {
    check(ONE_EACH, 10, ZOMBIES);
}

#[test]
fn lost_replies_keep_all_invariants() {
    check(ONE_EACH, 10, LOST_REPLIES);
}

#[test]
fn operators_keep_all_invariants() {
    check(ONE_EACH, 10, OPERATORS);
}

#[test]
fn a_sweep_keeps_all_invariants() {
    check(ONE_EACH, 10, SWEEPS);
}

#[test]
fn scheduled_and_expiring_messages_keep_all_invariants() {
    check(TIMED, 10, DAYS);
}

#[test]
fn a_restored_copy_keeps_all_invariants() {
    check(ONE_EACH, 10, RESTORED);
}

#[test]
#[ignore = "long: all faults at once take many minutes and gigabytes"]
fn more_faults_keep_all_invariants() {
    check(CHAIN, 10, ZOMBIES);
    check(CHAIN, 1, LOST_REPLIES);
    check(CROSSED, 10, OPERATORS);
    check(CHAIN, 10, SWEEPS);
    check(TIMED, 10, SWEEPS);
    check(CROSSED, 10, RESTORED);
    check(ONE_EACH, 10, Limits { failures: 2, ..LOST_REPLIES });
}

#[test]
fn a_cursor_by_number_alone_is_caught() {
    caught(Mistake::SequenceCursor, CROSSED, PRODUCERS, &[STORED, ENDS]);
}

#[test]
fn an_order_by_transaction_is_caught() {
    caught(Mistake::OrderByTransaction, CROSSED, PRODUCERS, &[ORDER]);
}

#[test]
fn a_cursor_that_moves_before_the_acknowledgement_is_caught() {
    caught(Mistake::CursorBeforeAcknowledgement, ONE_EACH, PRODUCERS, &[STORED, ENDS]);
}

#[test]
fn two_owners_of_a_lane_are_caught() {
    caught(Mistake::NoStepCheck, ONE_EACH, ZOMBIES, &[FENCED]);
    caught(Mistake::TakeOverWithoutStep, ONE_EACH, ZOMBIES, &[FENCED]);
}

#[test]
fn a_step_that_is_cleaned_up_under_a_zombie_is_caught() {
    caught(Mistake::CleanedStepNotNoticed, ONE_EACH, ZOMBIES, &[FENCED]);
}

#[test]
fn a_dead_letter_that_is_passed_is_caught() {
    caught(Mistake::DeadLetterPassed, ONE_EACH, OPERATORS, &[DEAD, ORDER]);
}

#[test]
fn a_failure_that_blocks_nothing_is_caught() {
    caught(Mistake::NothingBlocks, ONE_EACH, OPERATORS, &[ORDER]);
}

#[test]
fn a_parked_message_that_is_swept_is_caught() {
    caught(Mistake::ParkedSwept, ONE_EACH, SWEEPS, &[STORED, ENDS]);
}

#[test]
fn a_held_message_that_is_dropped_is_caught() {
    caught(Mistake::HeldDropped, ONE_EACH, OPERATORS, &[STORED, ENDS]);
}

#[test]
fn cursors_above_the_numbers_of_the_cluster_are_caught() {
    caught(Mistake::NoAlarm, ONE_EACH, RESTORED, &[STORED, ENDS]);
    // The numbers of the new cluster reach the cursors one day, and what was skipped stays skipped.
    caught(Mistake::AlarmByNumbersOnly, ONE_EACH, RESTORED, &[STORED, ENDS]);
}

#[test]
fn a_dirty_read_is_caught() {
    caught(Mistake::DirtyRead, ONE_EACH, PRODUCERS, &[ABORTED]);
}

#[test]
fn an_operators_word_that_is_overwritten_is_caught() {
    caught(Mistake::OperatorOverwritten, ONE_EACH, OPERATORS, &[DISCARDED]);
}

#[test]
fn a_consumer_that_acknowledges_too_early_is_caught() {
    caught(Mistake::AcknowledgedBeforeCommit, ONE_EACH, OPERATORS, &[STORED]);
    caught(Mistake::InboxOutsideTransaction, ONE_EACH, OPERATORS, &[STORED]);
}

#[test]
fn a_consumer_without_an_inbox_is_caught() {
    caught(Mistake::NoInbox, ONE_EACH, OPERATORS, &[ONCE]);
}
