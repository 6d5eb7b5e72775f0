//! The protocol, checked exhaustively: every order of every step within bounds.
//!
//! The transition function *is* the shipped [`Admission`](onceward_core::Admission) and
//! [`Claim`](onceward_core::Claim); around them is the smallest world in which they can go wrong: one
//! operation, two workers, three requests of two fingerprints, a store of one row, messages that
//! land late, crashes, leases that are over at any moment, retention, purge, and a ledger of effects.
//!
//! Each mutant is a known mistake: the check is worth something because it finds them all.

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

use mutant::Mutant;
use onceward_core::Effect;
use properties::{I1, I2, I4, I5, I7, I8, I9, I11, RELEASED};
use protocol::{Action, Limits, Protocol};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use world::World;

const TRANSACTIONAL: [Effect; 3] = [Effect::Transactional; 3];
const EXTERNAL: [Effect; 3] = [Effect::External; 3];
const REPEATABLE: [Effect; 3] = [Effect::Repeatable { within: store::WITHIN }; 3];
// The configuration changes while requests are under way.
const TRANSACTIONAL_BECOMES_EXTERNAL: [Effect; 3] =
    [Effect::Transactional, Effect::External, Effect::External];
const REPEATABLE_BECOMES_OTHER: [Effect; 3] =
    [REPEATABLE[0], Effect::External, Effect::Transactional];
const TRANSACTIONAL_BECOMES_REPEATABLE: [Effect; 3] =
    [Effect::Transactional, REPEATABLE[0], REPEATABLE[0]];

/// One of each fault. The second request of the same meaning stands for a client that asks again.
const FAULTS: Limits =
    Limits { timeouts: 1, crashes: 1, retries: 0, forgotten: 1, unknown_ends: false };
/// A fourth request instead of a late message.
const RETRY: Limits = Limits { timeouts: 0, retries: 1, ..FAULTS };
/// Three requests of one meaning, and nothing but time against them.
const TIME: Limits = Limits { timeouts: 0, crashes: 0, retries: 1, forgotten: 0, ..FAULTS };
const UNKNOWN_ENDS: Limits = Limits { unknown_ends: true, ..FAULTS };
const MANY_FAULTS: Limits = Limits { crashes: 2, retries: 1, forgotten: 2, ..FAULTS };
const LATE_MESSAGES: Limits = Limits { timeouts: 2, ..FAULTS };

#[test]
fn a_transactional_effect_keeps_all_invariants() {
    check(TRANSACTIONAL, FAULTS);
    check(TRANSACTIONAL, RETRY);
}

#[test]
fn an_external_effect_keeps_all_invariants() {
    check(EXTERNAL, FAULTS);
    check(EXTERNAL, RETRY);
    check(EXTERNAL, UNKNOWN_ENDS);
}

#[test]
fn a_repeatable_effect_keeps_all_invariants() {
    check(REPEATABLE, FAULTS);
    check(REPEATABLE, TIME);
}

#[test]
fn a_change_of_the_effect_keeps_all_invariants() {
    check(TRANSACTIONAL_BECOMES_EXTERNAL, FAULTS);
    check(REPEATABLE_BECOMES_OTHER, FAULTS);
}

#[test]
#[ignore = "long: all effects with more faults take many minutes and gigabytes"]
fn more_faults_keep_all_invariants() {
    for effects in [
        TRANSACTIONAL,
        EXTERNAL,
        TRANSACTIONAL_BECOMES_EXTERNAL,
        REPEATABLE_BECOMES_OTHER,
        TRANSACTIONAL_BECOMES_REPEATABLE,
    ] {
        check(effects, LATE_MESSAGES);
        check(effects, MANY_FAULTS);
    }
    check(REPEATABLE, RETRY);
    check(REPEATABLE, UNKNOWN_ENDS);
    check(REPEATABLE, LATE_MESSAGES);
}

/// Visits every state that can be reached, and reports how many there were.
fn check(effects: [Effect; 3], limits: Limits) {
    let start = Instant::now();
    let model = Protocol::new(effects, limits);
    let properties = model.properties();
    // No target, depth or time-out is set: the checker ends when nothing is left to visit, or when
    // every property has a discovery, which the assertions below exclude.
    let checker = model.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    eprintln!("{effects:?}, {limits:?}: {states} states, depth {depth}, {:?}", start.elapsed());
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
fn caught(mutant: Mutant, effects: [Effect; 3], expected: &[&'static str]) {
    caught_with(mutant, effects, FAULTS, expected);
}

fn caught_with(mutant: Mutant, effects: [Effect; 3], limits: Limits, expected: &[&'static str]) {
    let model = Protocol::new(effects, limits).with(mutant);
    let found = HasDiscoveries::AllOf(expected.iter().copied().collect());
    let checker = model.checker().threads(2).finish_when(found).spawn_bfs().join();
    let discoveries = checker.discoveries();
    for name in expected {
        let Some(path) = discoveries.get(name) else { panic!("{mutant:?} does not break {name}") };
        eprintln!("{mutant:?} breaks {name}: {:?}", actions(path));
    }
}

#[test]
fn a_store_without_fences_is_caught() {
    caught(Mutant::NoFence, TRANSACTIONAL, &[I5, I1]);
}

#[test]
fn fences_counted_by_row_are_caught() {
    caught(Mutant::PerRowFenceCounter, TRANSACTIONAL, &[I5, I1]);
}

#[test]
fn a_renewal_without_fence_is_caught() {
    caught(Mutant::RenewAfterTakeOver, TRANSACTIONAL_BECOMES_EXTERNAL, &[I5, I1]);
}

#[test]
fn deleting_what_is_in_progress_is_caught() {
    caught(Mutant::SweepOfInProgress, EXTERNAL, &[I11, I1]);
}

#[test]
fn deleting_an_unknown_outcome_is_caught() {
    caught(Mutant::SweepOfUnknown, EXTERNAL, &[I11, I1]);
}

#[test]
fn deleting_while_a_claim_is_in_flight_is_caught() {
    caught(Mutant::MessageOutlivesDeletion, TRANSACTIONAL, &[I8]);
}

#[test]
fn taking_over_an_external_effect_is_caught() {
    caught(Mutant::TakeOverOfExternal, EXTERNAL, &[I7, I1]);
}

#[test]
fn judging_by_the_runners_configuration_is_caught() {
    caught(Mutant::RunnerConfigInsteadOfStored, TRANSACTIONAL_BECOMES_EXTERNAL, &[I7, I1]);
}

#[test]
fn a_take_over_that_keeps_the_execution_is_caught() {
    caught(Mutant::TakeOverKeepsExecution, TRANSACTIONAL, &[I5]);
    caught(Mutant::TakeOverKeepsExecution, TRANSACTIONAL_BECOMES_EXTERNAL, &[I5, I1]);
}

#[test]
fn a_late_truth_of_another_execution_is_caught() {
    caught(Mutant::LateTruthWithoutExecutionCheck, TRANSACTIONAL_BECOMES_EXTERNAL, &[I5, I1]);
}

#[test]
fn a_second_word_over_the_own_outcome_is_caught() {
    caught(Mutant::LateWordOverOwnOutcome, TRANSACTIONAL, &[I4, I8]);
}

#[test]
fn a_mismatch_checked_after_in_flight_is_caught() {
    for effects in [TRANSACTIONAL, EXTERNAL, REPEATABLE] {
        caught(Mutant::MismatchAfterInFlight, effects, &[I9]);
    }
}

#[test]
fn a_release_that_keeps_the_fingerprint_is_caught() {
    for effects in [TRANSACTIONAL, EXTERNAL, REPEATABLE] {
        caught(Mutant::ReleaseKeepsFingerprint, effects, &[RELEASED]);
    }
}

#[test]
fn a_release_that_forgets_the_age_is_caught() {
    caught(Mutant::ReleaseOfRerunForgetsAge, REPEATABLE, &[I1]);
}

#[test]
fn a_take_over_that_restarts_the_age_is_caught() {
    // The effect, the take-over and the run too many are three requests of one meaning.
    caught_with(Mutant::TakeOverRestartsAge, REPEATABLE, TIME, &[I1]);
}

#[test]
fn repeating_an_old_effect_is_caught() {
    caught(Mutant::RerunOfOldRepeatable, REPEATABLE, &[I7, I1]);
}

#[test]
fn sending_after_the_promise_is_caught() {
    caught(Mutant::SendAfterMaxRun, REPEATABLE, &[I1]);
}

#[test]
fn a_downstream_that_forgets_refusals_is_caught() {
    caught(Mutant::RefusalNotRemembered, REPEATABLE, &[I8]);
}

#[test]
fn an_effect_outside_its_transaction_is_caught() {
    caught(Mutant::EffectOutsideTransaction, TRANSACTIONAL, &[I4, I1]);
}

#[test]
fn a_doubtful_commit_called_failure_is_caught() {
    caught(Mutant::DoubtfulCommitCalledFailure, TRANSACTIONAL, &[I8]);
}

#[test]
fn an_unknown_outcome_called_failure_is_caught() {
    caught(Mutant::UnknownCalledFailure, EXTERNAL, &[I8]);
}

#[test]
fn an_answer_before_it_is_durable_is_caught() {
    caught(Mutant::AnswerBeforeDurable, TRANSACTIONAL, &[I2]);
}
