//! The end of every history in which faults are over: one healthy relay, a sink that takes everything, operators
//! who send dead and held messages again, and time that passes.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use onceward_core::{
    Fence,
    message::{MessageState, Next, RelayId, RepairKind, RepairMessage, Settled, SinkName},
};

use super::{
    DAY, Protocol,
    properties::is_owed,
    steps::{lane_mut, lane_of},
    world::{MESSAGES, SINK, World, begin, lane, numbered},
};
use crate::outbox::Outbox;

/// Databases that end well. Most states share theirs with others.
static WELL: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Whether everything that is owed is applied in the end.
pub(crate) fn well(model: &Protocol, world: &World) -> bool {
    let owed = |message: &usize| is_owed(model, world, *message) && world.applied[*message] == 0;
    let owed: Vec<usize> = (0..model.messages()).filter(owed).collect();
    let mut hasher = DefaultHasher::new();
    (&world.outbox, &owed).hash(&mut hasher);
    let hash = hasher.finish();
    if owed.is_empty() || WELL.lock().expect("no check panics").contains(&hash) {
        return true;
    }
    let sent = rest(world.outbox.clone());
    let is_well = owed.iter().all(|message| sent[*message]);
    if is_well {
        WELL.lock().expect("no check panics").insert(hash);
    }
    is_well
}

/// What is sent from now on.
fn rest(mut outbox: Outbox) -> [bool; MESSAGES] {
    let mut sent = [false; MESSAGES];
    for xid in outbox.open.keys().copied().collect::<Vec<_>>() {
        outbox.roll_back(xid);
    }
    if outbox.alarm().is_some() {
        outbox.rebase();
    }
    let relay = RelayId::from_random([0xFF; 16]);
    for _ in 0..4 {
        outbox.now = outbox.now.plus(DAY);
        lane_mut(&mut outbox).until = outbox.now;
        redrive_all(&mut outbox);
        let Some(mut position) = outbox.acquire(SINK, lane(), relay) else { continue };
        for step in 0..=u8::MAX {
            let page = outbox.take(&position, 10);
            let mut work = begin(&(position, page));
            while let Some(token) = work.next(Duration::ZERO) {
                sent[numbered(work.message(token).id)] = true;
                work.sent(token, Next::Delivered);
            }
            let settlement = work.settlement(Fence::from_random([step; 16]));
            let settled = settlement.map(|settlement| outbox.settle(&settlement));
            let Some(Settled::Moved(next)) = settled else { break };
            position = next;
        }
    }
    sent
}

fn redrive_all(outbox: &mut Outbox) {
    let is_stuck = |state| matches!(state, MessageState::Dead | MessageState::Held);
    let parked = lane_of(outbox).parked.iter();
    let stuck: Vec<_> =
        parked.filter(|(_, entry)| is_stuck(entry.state)).map(|(seq, _)| *seq).collect();
    for seq in stuck {
        let Some(row) = outbox.rows.get(&seq) else { continue };
        outbox.repair(&RepairMessage {
            id: row.message.id,
            sink: SinkName::new("sink").expect("a valid name"),
            kind: RepairKind::Redrive,
            actor: None,
            reason: String::new(),
        });
    }
}
