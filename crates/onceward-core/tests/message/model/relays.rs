//! What relays and the consumer do.

use onceward_core::{
    Fence,
    message::{Advance, MessageId, MessageState, Position, Settled, Settlement},
};

use super::{
    DAY, Protocol,
    steps::{lane_mut, lane_of, spend},
    world::{self, Heard, Kept, Phase, SINK, World, begin, lane, numbered, work},
};
use crate::outbox::Mistake;

/// Renews the lease or takes a free lane over, and reads a page. No relay does while the database alarms.
pub(crate) fn take(model: &Protocol, world: &mut World, number: usize) -> Option<()> {
    world.outbox.alarm().is_none().then_some(())?;
    let id = world.relays[number].id(number);
    let position = if lane_of(&world.outbox).owner == Some(id) {
        lane_mut(&mut world.outbox).until = world.outbox.now.plus(DAY / 2);
        world.outbox.position(SINK, lane(), id)
    } else {
        world.outbox.acquire(SINK, lane(), id)?
    };
    let page = world.outbox.take(&position, model.page);
    let taken = (position, page);
    let work = begin(&taken);
    let settlement = work.clone().settlement(fence(world, number, &taken.0));
    let is_idle = work.is_over() && settlement.is_none();
    if model.makes(Mistake::CursorBeforeAcknowledgement) {
        let (from, advance) = (taken.0.clone(), Advance::Past(taken.1.end.clone()));
        let fence = fence(world, number, &taken.0);
        world.outbox.settle(&Settlement { from, fence, advance, changes: Vec::new() });
    }
    if !is_idle {
        let taken = Kept::new(taken);
        world.relays[number].phase = Phase::Working { taken, heard: Vec::new() };
    }
    Some(())
}

/// A fence of the step after this one: a relay makes at most one settlement from a step, unless it crashed.
fn fence(world: &World, number: usize, from: &Position) -> Fence {
    let mut bytes = [9; 16];
    bytes[0] = u8::try_from(number).expect("two relays");
    bytes[1] = world.relays[number].start;
    bytes[8..].copy_from_slice(&from.step.to_be_bytes());
    Fence::from_random(bytes)
}

/// The sink gets the next message of the page and answers.
pub(crate) fn send(model: &Protocol, world: &mut World, number: usize, heard: Heard) -> Option<()> {
    if heard != Heard::Accepted {
        spend(&mut world.spent.failures, model.limits.failures)?;
    }
    let id = next_message(world, number)?;
    let mut heard = heard;
    if heard == Heard::Accepted {
        consume(model, world, id, true);
    } else if heard == (Heard::Failed { at_once: true }) {
        // The consumer's transaction is rolled back.
        consume(model, world, id, false);
        if model.makes(Mistake::AcknowledgedBeforeCommit) {
            heard = Heard::Accepted;
        }
    }
    hear(world, number, heard);
    Some(())
}

/// The sink has the message, and the relay hears nothing.
pub(crate) fn send_unheard(model: &Protocol, world: &mut World, number: usize) -> Option<()> {
    spend(&mut world.spent.failures, model.limits.failures)?;
    let id = next_message(world, number)?;
    consume(model, world, id, true);
    hear(world, number, Heard::Failed { at_once: true });
    Some(())
}

fn next_message(world: &World, number: usize) -> Option<MessageId> {
    let Phase::Working { taken, heard } = &world.relays[number].phase else { return None };
    let (work, token) = work(taken, heard);
    Some(work.message(token?).id)
}

fn hear(world: &mut World, number: usize, answer: Heard) {
    if let Phase::Working { heard, .. } = &mut world.relays[number].phase {
        heard.push(answer);
    }
}

/// The consumer asks its inbox and applies the message, in one transaction.
fn consume(model: &Protocol, world: &mut World, id: MessageId, commits: bool) {
    let message = numbered(id);
    watch(world, message);
    let is_new = !world.inbox.has(message) || model.makes(Mistake::NoInbox);
    if commits || model.makes(Mistake::InboxOutsideTransaction) {
        world.inbox.add(message);
    }
    if commits && is_new {
        world.applied[message] += 1;
    }
}

/// What must be true of every message that is sent, judged by what is really stored.
fn watch(world: &mut World, message: usize) {
    let rows = world.outbox.rows.values();
    let row = rows.clone().find(|row| world::number(row) == message);
    world.broken.aborted |=
        world.aborted.has(message) || row.is_some_and(|row| world.outbox.is_open(row));
    if world.applied[message] > 0 {
        return;
    }
    let parked = &lane_of(&world.outbox).parked;
    for row in rows {
        let mate = world::number(row);
        let is_missing = world.applied[mate] == 0 && !world.discarded.has(mate);
        if world.earlier[message].has(mate) && is_missing {
            let entry = parked.get(&row.seq);
            let is_dead = entry.is_some_and(|entry| entry.state == MessageState::Dead);
            world.broken.order = true;
            world.broken.dead |= is_dead;
        }
    }
    let scheduled = row.and_then(|row| row.message.not_before);
    world.broken.early |= scheduled.is_some_and(|from| from > world.outbox.now);
}

/// The relay proposes what its page came to, and hears the answer.
pub(crate) fn settle(world: &mut World, number: usize) -> Option<()> {
    let settlement = proposal(world, number)?;
    let settled = settlement.map(|settlement| (make(world, &settlement), settlement));
    world.relays[number].phase = match settled {
        Some((Settled::Fenced(Some(position)), settlement)) => {
            let fence = fence(world, number, &position);
            let again = Settlement { from: position, fence, ..(*settlement).clone() };
            Phase::Settling(Kept::new(again))
        }
        Some((Settled::Moved(_) | Settled::Fenced(None), _)) | None => Phase::Idle,
    };
    Some(())
}

/// The step is made, and its relay will propose it again.
pub(crate) fn settle_unheard(model: &Protocol, world: &mut World, number: usize) -> Option<()> {
    spend(&mut world.spent.lost_replies, model.limits.lost_replies)?;
    let settlement = proposal(world, number)??;
    make(world, &settlement);
    world.relays[number].phase = Phase::Settling(settlement);
    Some(())
}

/// The step is not made yet, and its relay will propose it again.
pub(crate) fn settle_late(model: &Protocol, world: &mut World, number: usize) -> Option<()> {
    spend(&mut world.spent.lost_replies, model.limits.lost_replies)?;
    let settlement = proposal(world, number)??;
    world.in_flight.is_none().then_some(())?;
    world.in_flight = Some(settlement.clone());
    world.relays[number].phase = Phase::Settling(settlement);
    Some(())
}

/// What a relay settles now; inside, `None`: its page came to nothing.
fn proposal(world: &World, number: usize) -> Option<Option<Kept<Settlement>>> {
    match &world.relays[number].phase {
        Phase::Settling(settlement) => Some(Some(settlement.clone())),
        Phase::Working { taken, heard } => {
            let (work, _) = work(taken, heard);
            work.is_over().then_some(())?;
            let settlement = work.settlement(fence(world, number, &taken.0));
            Some(settlement.map(Kept::new))
        }
        Phase::Idle => None,
    }
}

pub(crate) fn land(world: &mut World) -> Option<()> {
    let settlement = world.in_flight.take()?;
    make(world, &settlement);
    Some(())
}

pub(crate) fn crash(model: &Protocol, world: &mut World, number: usize) -> Option<()> {
    spend(&mut world.spent.crashes, model.limits.crashes)?;
    let relay = &mut world.relays[number];
    relay.start += 1;
    relay.phase = Phase::Idle;
    Some(())
}

/// The database makes the step or not. It is judged by the step and the owner that there were before.
fn make(world: &mut World, settlement: &Settlement) -> Settled {
    let lane = lane_of(&world.outbox);
    let (before, owner) = (lane.newest().0, lane.owner);
    let fence = lane.newest().1.fence;
    let settled = world.outbox.settle(settlement);
    let was_made = lane_of(&world.outbox).newest().0 != before
        || lane_of(&world.outbox).newest().1.fence != fence;
    let was_expected = (settlement.from.step, settlement.from.fence) == (before, fence);
    let was_anothers = owner.is_some_and(|owner| owner != settlement.from.relay);
    world.broken.fence |= was_made && (!was_expected || was_anothers);
    settled
}
