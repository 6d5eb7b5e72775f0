//! What clients hear, and what the world must be like for it to be true.

use onceward_core::{Outcome, StoredBody};

use crate::{
    effects,
    world::{Answer, Phase, Run, World},
};

/// The client hears something that is no outcome.
pub(crate) fn answer(world: &mut World, client: usize, generation: u8, answer: Answer) {
    if answer == Answer::Nothing {
        deny(world, generation);
    }
    world.slots[client].phase = Phase::Answered(answer);
}

/// A client hears an outcome: a success, or a definite failure for good.
pub(crate) fn tell_outcome(world: &mut World, generation: u8, outcome: &Outcome) {
    let StoredBody::Inline(bytes) = &outcome.body else { unreachable!("all outcomes are inline") };
    let bit = Run { client: bytes[0], attempt: bytes[1] }.bit();
    let ledger = &mut world.ledger[usize::from(generation)];
    match outcome.status {
        201 => ledger.successes |= bit,
        _ => {
            ledger.refusals |= bit;
            deny(world, generation);
        }
    }
}

/// A client is told that nothing happened: then nothing did, and nothing that was begun before may
/// happen later. Whoever claims the operation afterwards may have its effect.
fn deny(world: &mut World, generation: u8) {
    let running = world.slots.iter().enumerate().filter_map(|(client, slot)| match &slot.phase {
        Phase::Running(running) | Phase::Settling { running, .. }
            if running.generation == generation =>
        {
            Some(world.run(client).bit())
        }
        _ => None,
    });
    let committing = world.in_flight.iter().filter(|message| effects::is_commit(&message.change));
    let committing = committing.map(|message| Run::of(message.change.next.execution).bit());
    let open = running.chain(committing).fold(0, |bits, bit| bits | bit);
    let ledger = &mut world.ledger[usize::from(generation)];
    ledger.denied |= open;
    world.broken.denial |= ledger.effects > 0;
}
