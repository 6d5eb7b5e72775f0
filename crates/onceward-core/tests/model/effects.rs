//! Effects and their ledger: what really happened, whoever was told what.

use onceward_core::{Change, Effect, State};

use crate::{
    mutant::Mutant,
    protocol::{How, Protocol},
    world::{Memory, Phase, Run, Running, Sent, World},
};

/// The effect of an execution happens, apart from its record.
pub(crate) fn perform(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let running = unsent(world, client)?;
    let sent = match running.claim.effect() {
        Effect::External => {
            count(world, running.generation, world.run(client));
            Sent::Done
        }
        Effect::Transactional if model.mutant == Some(Mutant::EffectOutsideTransaction) => {
            count(world, running.generation, world.run(client));
            Sent::Done
        }
        Effect::Transactional => return None,
        Effect::Repeatable { .. } => match world.downstream {
            // Downstream knows the key: it does nothing and answers as it did the first time.
            Some(Memory { refused: true, .. }) => Sent::Refused,
            Some(Memory { refused: false, .. }) => {
                world.ledger[usize::from(running.generation)].remembered = true;
                Sent::Done
            }
            None => {
                world.downstream = Some(Memory { refused: false, old: false });
                count(world, running.generation, world.run(client));
                Sent::Done
            }
        },
    };
    world.slots[client].phase = Phase::Running(Running { sent, ..running });
    Some(())
}

/// Downstream refuses for good, does nothing, and remembers that under the key.
pub(crate) fn refuse(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let running = unsent(world, client)?;
    if !matches!(running.claim.effect(), Effect::Repeatable { .. }) || world.downstream.is_some() {
        return None;
    }
    if model.mutant != Some(Mutant::RefusalNotRemembered) {
        world.downstream = Some(Memory { refused: true, old: false });
    }
    world.slots[client].phase = Phase::Running(Running { sent: Sent::Refused, ..running });
    Some(())
}

fn unsent(world: &World, client: usize) -> Option<Running> {
    match &world.slots[client].phase {
        Phase::Running(running) if running.sent == Sent::No => Some(running.clone()),
        _ => None,
    }
}

/// Whether an execution can truthfully end like this.
pub(crate) fn may_end(model: &Protocol, running: &Running, how: How) -> bool {
    let sent = running.sent;
    match (running.claim.effect(), how) {
        (Effect::Transactional, How::Succeed) => {
            model.mutant != Some(Mutant::EffectOutsideTransaction) || sent == Sent::Done
        }
        (Effect::External | Effect::Repeatable { .. }, How::Succeed) => sent == Sent::Done,
        // Only downstream can refuse for good: it answers to a repetition what it answered before.
        (Effect::Repeatable { .. }, How::Refuse) => sent == Sent::Refused,
        // A repetition is harmless, so any failure after the effect may be called retryable.
        (Effect::Repeatable { .. }, How::Fail) => true,
        (Effect::Transactional | Effect::External, How::Refuse | How::Fail) | (_, How::Release) => {
            sent == Sent::No
        }
    }
}

/// Whether this change is proposed inside the transaction of its effect.
pub(crate) fn is_commit(change: &Change) -> bool {
    let succeeds = matches!(change.next.state, State::Succeeded(_));
    succeeds && change.next.effect == Effect::Transactional
}

/// The change was stored: if it was made in the effect's own transaction, the effect happened too.
pub(crate) fn commit(model: &Protocol, world: &mut World, change: &Change, generation: u8) {
    if is_commit(change) && model.mutant != Some(Mutant::EffectOutsideTransaction) {
        count(world, generation, Run::of(change.next.execution));
    }
}

fn count(world: &mut World, generation: u8, run: Run) {
    let ledger = &mut world.ledger[usize::from(generation)];
    ledger.effects += 1;
    world.broken.denial |= ledger.denied & run.bit() != 0;
}
