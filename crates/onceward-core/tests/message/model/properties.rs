//! What must be true of every state, and proof that the model is not empty.

use onceward_core::message::MessageState;
use stateright::Property;

use super::{
    Protocol, ends,
    steps::lane_of,
    world::{Phase, Producer, World, number},
};
use crate::outbox::Entry;

pub(crate) const STORED: &str = "what is committed and not applied can still be sent";
pub(crate) const ENDS: &str = "with every fault over, all that is committed is applied";
pub(crate) const ABORTED: &str = "nothing of an aborted transaction is sent";
pub(crate) const ORDER: &str = "first deliveries are in order per aggregate";
pub(crate) const DEAD: &str = "no message passes a dead one of its aggregate";
pub(crate) const ONCE: &str = "each message is applied once at most";
pub(crate) const FENCED: &str = "a step is made by the lane's owner, after the newest one";
pub(crate) const DISCARDED: &str = "what an operator discarded stays so";
pub(crate) const EARLY: &str = "no message is sent before its time";

pub(crate) fn all(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::always(STORED, |model: &Protocol, world: &World| {
            (0..model.messages()).all(|message| can_be_sent(model, world, message))
        }),
        Property::always(ENDS, |model: &Protocol, world: &World| ends::well(model, world)),
        Property::always(ABORTED, |_, world: &World| !world.broken.aborted),
        Property::always(ORDER, |_, world: &World| !world.broken.order),
        Property::always(DEAD, |_, world: &World| !world.broken.dead),
        Property::always(ONCE, |_, world: &World| world.applied.iter().all(|times| *times <= 1)),
        Property::always(FENCED, |_, world: &World| !world.broken.fence),
        Property::always(DISCARDED, |_, world: &World| discarded_ones_stay_so(world)),
        Property::always(EARLY, |_, world: &World| !world.broken.early),
    ];
    if model.mistake.is_none() {
        all.extend(reached(model));
    }
    all
}

/// A message must be delivered, unless an operator or its own time ended it.
pub(crate) fn is_owed(model: &Protocol, world: &World, message: usize) -> bool {
    let producer = model.producer(message);
    let is_committed = world.producers[producer] == Producer::Committed;
    is_committed && !world.discarded.has(message) && !model.may_expire(message)
}

fn can_be_sent(model: &Protocol, world: &World, message: usize) -> bool {
    let is_done = !is_owed(model, world, message) || world.applied[message] > 0;
    // Relays that must not go on skip nothing.
    if is_done || world.outbox.alarm().is_some() {
        return true;
    }
    let row = world.outbox.rows.values().find(|row| number(row) == message);
    let lane = lane_of(&world.outbox);
    row.is_some_and(|row| {
        let entry = lane.parked.get(&row.seq);
        let is_ahead = !world.outbox.has_passed(&lane.newest().1.mark, row);
        is_ahead || entry.is_some_and(Entry::is_open)
    })
}

fn discarded_ones_stay_so(world: &World) -> bool {
    let parked = &lane_of(&world.outbox).parked;
    let mut discarded = world.outbox.rows.values().filter(|row| world.discarded.has(number(row)));
    discarded
        .all(|row| parked.get(&row.seq).is_some_and(|entry| entry.state == MessageState::Discarded))
}

/// What must happen somewhere, so that the invariants are not true of an idle world.
fn reached(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut reached =
        vec![Property::sometimes("everything is applied", |model: &Protocol, world| {
            (0..model.messages()).all(|message| world.applied[message] == 1)
        })];
    let sometimes = Property::sometimes;
    if model.limits.leases > 0 {
        reached.push(sometimes("two relays are at a page of one lane", |_, world: &World| {
            world.relays.iter().all(|relay| matches!(relay.phase, Phase::Working { .. }))
        }));
    }
    if model.script.iter().any(|planned| planned.len() > 1) {
        reached.push(sometimes("a lane moves while a transaction is open", |_, world: &World| {
            !lane_of(&world.outbox).newest().1.mark.base.open.is_empty()
        }));
    }
    if model.limits.failures > 0 {
        reached.push(sometimes("a message is parked behind a dead one", |_, world: &World| {
            let states: Vec<_> =
                lane_of(&world.outbox).parked.values().map(|entry| entry.state).collect();
            states.contains(&MessageState::Dead) && states.contains(&MessageState::Waiting)
        }));
    }
    if model.limits.lost_replies > 0 {
        reached.push(sometimes("a settlement lands behind another one", |_, world: &World| {
            let newest = lane_of(&world.outbox).newest().0;
            world.in_flight.as_ref().is_some_and(|settlement| settlement.from.step < newest)
        }));
    }
    if model.limits.restores > 0 {
        reached.push(sometimes("a restored copy is mended", |_, world: &World| {
            world.spent.restores > 0 && world.outbox.alarm().is_none() && world.applied.contains(&1)
        }));
    }
    reached
}
