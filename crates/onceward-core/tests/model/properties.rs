//! The invariants I1–I9 and I11 of the protocol, and proof that the model is not empty.

use onceward_core::{Effect, State};
use stateright::Property;

use crate::{
    protocol::Protocol,
    world::{Answer, Phase, World},
};

pub(crate) const I1: &str = "I1 at most one effect";
pub(crate) const I2: &str = "I2 an acknowledged success has exactly one effect";
pub(crate) const I3: &str = "I3 all final answers are equal";
pub(crate) const I4: &str = "I4 record and transactional effect live and die together";
pub(crate) const I5: &str = "I5 a write under an old fence changes nothing";
pub(crate) const I7: &str = "I7 only the stored effect allows a re-run";
pub(crate) const I8: &str = "I8 unknown is never reported as failure";
pub(crate) const I9: &str = "I9 a mismatch leaks and changes nothing";
pub(crate) const I11: &str = "I11 only what may be deleted is deleted";
pub(crate) const RELEASED: &str = "a released key is free for every fingerprint";

/// I6 has no line of its own: every other one holds although any lease may be over at any moment.
pub(crate) fn all(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::always(I1, |_, world: &World| {
            world.ledger.iter().all(|ledger| ledger.effects <= 1)
        }),
        Property::always(I2, |_, world: &World| acknowledged_successes_have_their_effect(world)),
        Property::always(I3, |_, world: &World| final_answers_are_equal(world)),
        Property::always(I5, |_, world: &World| !world.broken.fence),
        Property::always(I7, |_, world: &World| !world.broken.rerun),
        Property::always(I8, |_, world: &World| !world.broken.denial),
        Property::always(I9, |_, world: &World| !world.broken.mismatch),
        Property::always(I11, |_, world: &World| !world.broken.deletion),
        Property::always(RELEASED, |_, world: &World| !world.broken.release),
    ];
    if model.effects == [Effect::Transactional; 3] {
        all.push(Property::always(I4, |_, world: &World| record_and_effect_are_one(world)));
    }
    if model.mutant.is_none() {
        all.extend(reached(model));
    }
    all
}

fn acknowledged_successes_have_their_effect(world: &World) -> bool {
    world.ledger.iter().all(|ledger| {
        let one = ledger.effects == 1 || (ledger.remembered && ledger.effects == 0);
        ledger.successes == 0 || one
    })
}

fn final_answers_are_equal(world: &World) -> bool {
    let answers = world.ledger.iter().map(|ledger| (ledger.successes, ledger.refusals));
    answers.map(|(good, bad)| good.count_ones() + bad.count_ones()).all(|count| count <= 1)
}

fn record_and_effect_are_one(world: &World) -> bool {
    let succeeded =
        world.row.as_ref().is_some_and(|row| matches!(row.record.state, State::Succeeded(_)));
    succeeded == (world.ledger[usize::from(world.generation)].effects > 0)
}

/// What must happen somewhere, so that the invariants are not true of an idle world.
fn reached(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut reached = vec![
        Property::sometimes("a duplicate is replayed", |_, world: &World| {
            heard(world, Answer::Replayed)
        }),
        Property::sometimes("a duplicate is busy", |_, world: &World| heard(world, Answer::Busy)),
        Property::sometimes("another request is refused", |_, world: &World| {
            heard(world, Answer::Mismatch)
        }),
        Property::sometimes("the late truth wins over unknown", |_, world: &World| {
            let succeeded = |state: &State| matches!(state, State::Succeeded(_));
            let stored = world.row.as_ref().is_some_and(|row| succeeded(&row.record.state));
            stored && heard(world, Answer::LateTruth)
        }),
        Property::sometimes("a released key is claimed for another request", |_, world: &World| {
            is_running(world)
                && world.row.as_ref().is_some_and(|row| row.owner.client == 2)
                && heard(world, Answer::Nothing)
                && world.generation == 0
        }),
    ];
    if model.limits.forgotten > 0 {
        reached
            .push(Property::sometimes("a key is claimed again after its retention", |_, world| {
                is_running(world) && world.generation > 0
            }));
    }
    if model.limits.timeouts > 0 {
        reached.push(Property::sometimes("a claim whose reply was lost is run", |_, world| {
            has_recognised_its_claim(world)
        }));
    }
    if model.takes_over() {
        reached.push(Property::sometimes(
            "a claim is taken over from a zombie",
            |_, world: &World| {
                let owners =
                    world.slots.iter().filter(|slot| matches!(slot.phase, Phase::Running(_)));
                is_running(world) && owners.count() > 1
            },
        ));
        reached.push(Property::sometimes("a zombie is told so", |_, world: &World| {
            heard(world, Answer::LeaseLost)
        }));
    }
    if model.effects != [Effect::Transactional; 3] {
        reached.push(Property::sometimes("an unknown outcome is told", |_, world: &World| {
            heard(world, Answer::Unknown)
        }));
    }
    reached
}

impl Protocol {
    /// Whether one of the two requests that mean the same can take over from the other.
    fn takes_over(&self) -> bool {
        let repeats = |effect: &Effect| matches!(effect, Effect::Repeatable { .. });
        let twins = &self.effects[..2];
        twins.contains(&Effect::Transactional) || twins.iter().all(repeats)
    }
}

fn heard(world: &World, answer: Answer) -> bool {
    world.slots.iter().any(|slot| slot.phase == Phase::Answered(answer))
}

fn is_running(world: &World) -> bool {
    world.row.as_ref().is_some_and(|row| row.record.state == State::InProgress && !row.over)
}

/// Only one request ever began, its one claim landed without a reply, and it runs.
fn has_recognised_its_claim(world: &World) -> bool {
    let [first, others @ ..] = &world.slots;
    let alone = others.iter().all(|slot| slot.phase == Phase::Idle) && first.attempt == 0;
    let landed = world.spent.timeouts > 0 && world.in_flight.is_empty();
    let once = world.row.as_ref().is_some_and(|row| row.record.attempts == 1);
    let undisturbed = is_running(world) && world.generation == 0;
    let runs = matches!(&first.phase, Phase::Running(running) if !running.detached);
    alone && landed && once && undisturbed && runs
}
