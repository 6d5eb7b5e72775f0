//! The steps of everything but relays, and the list of all that there are.

use onceward_core::message::{
    Changed, MessageId, NewMessage, RepairKind, RepairMessage, SinkName, StartFrom,
};
use stateright::{Model, Property};

use super::{
    Action, DAY, Planned, Protocol, properties, relays,
    world::{
        Broken, Heard, MESSAGES, Messages, Phase, Producer, RELAYS, Relay, SINK, Spent, World,
        lane, number,
    },
};
use crate::outbox::{LaneState, Mistake, Outbox, Row};

impl Protocol {
    /// The number of the next message of a producer.
    fn number(&self, producer: usize, written: usize) -> usize {
        self.script[..producer].iter().map(|planned| planned.len()).sum::<usize>() + written
    }

    /// Who enqueues a message.
    pub(crate) fn producer(&self, message: usize) -> usize {
        let is_later = |producer: &usize| self.number(*producer, 0) <= message;
        (0..self.script.len()).rev().find(is_later).expect("the first begins with the first")
    }

    pub(crate) fn messages(&self) -> usize {
        self.script.iter().map(|planned| planned.len()).sum()
    }

    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn enqueue(&self, world: &mut World, producer: usize) -> Option<()> {
        let (xid, written) = match world.producers[producer] {
            Producer::Before => (world.outbox.begin(), 0),
            Producer::Open { xid, written } => (xid, written),
            Producer::Committed | Producer::Aborted => return None,
        };
        let planned = self.script[producer].get(written)?;
        let this = self.number(producer, written);
        let message = NewMessage::new("order.placed", "").expect("a valid topic");
        let message = message.aggregate(planned.aggregate).expect("a valid aggregate");
        let tomorrow = world.outbox.now.plus(DAY);
        let message = NewMessage {
            id: Some(id(this)),
            not_before: planned.is_scheduled.then_some(tomorrow),
            expires_at: planned.expires.then_some(tomorrow),
            ..message
        };
        // A scheduled message has no order until it is due, and one that expires may be left out.
        let has_order = |mate: &usize| {
            let planned = self.planned(*mate);
            !planned.is_scheduled && !planned.expires
        };
        let is_earlier = |row: &&Row| {
            row.message.aggregate.as_str() == planned.aggregate
                && (row.xid == xid || !world.outbox.is_open(row))
        };
        let mut earlier = Messages::default();
        let mates = world.outbox.rows.values().filter(is_earlier).map(number);
        mates.filter(has_order).for_each(|mate| earlier.add(mate));
        world.earlier[this] = earlier;
        world.outbox.enqueue(xid, &message, id(this)).expect("a valid message");
        world.producers[producer] = Producer::Open { xid, written: written + 1 };
        Some(())
    }

    fn planned(&self, number: usize) -> &Planned {
        self.script.iter().flat_map(|planned| planned.iter()).nth(number).expect("in the script")
    }

    /// Whether a message may end without being sent, because its time is over.
    pub(crate) fn may_expire(&self, number: usize) -> bool {
        self.planned(number).expires
    }

    fn commit(&self, world: &mut World, producer: usize) -> Option<()> {
        let Producer::Open { xid, written } = world.producers[producer] else { return None };
        (written == self.script[producer].len()).then_some(())?;
        world.outbox.commit(xid);
        world.producers[producer] = Producer::Committed;
        Some(())
    }

    fn abort(&self, world: &mut World, producer: usize) -> Option<()> {
        spend(&mut world.spent.aborts, self.limits.aborts)?;
        self.lose(world, producer)
    }

    /// An open transaction is rolled back.
    fn lose(&self, world: &mut World, producer: usize) -> Option<()> {
        let Producer::Open { xid, written } = world.producers[producer] else { return None };
        world.outbox.roll_back(xid);
        (0..written).for_each(|one| world.aborted.add(self.number(producer, one)));
        world.producers[producer] = Producer::Aborted;
        Some(())
    }

    fn repair(&self, world: &mut World, number: usize, kind: RepairKind) -> Option<()> {
        spend(&mut world.spent.repairs, self.limits.repairs)?;
        let sink = SinkName::new("sink").expect("a valid name");
        let repair =
            RepairMessage { id: id(number), sink, kind, actor: None, reason: String::new() };
        (world.outbox.repair(&repair) == Changed::Done).then_some(())?;
        if kind == RepairKind::Discard {
            world.discarded.add(number);
        }
        Some(())
    }

    fn lease_over(&self, world: &mut World) -> Option<()> {
        spend(&mut world.spent.leases, self.limits.leases)?;
        let now = world.outbox.now;
        let lane = lane_mut(&mut world.outbox);
        (lane.owner.is_some() && lane.until > now).then_some(())?;
        lane.until = now;
        Some(())
    }

    fn sweep(&self, world: &mut World) -> Option<()> {
        spend(&mut world.spent.sweeps, self.limits.sweeps)?;
        let swept = world.outbox.sweep(DAY, 100);
        (swept.messages > 0 || swept.steps > 0).then_some(())
    }

    fn restore(&self, world: &mut World) -> Option<()> {
        spend(&mut world.spent.restores, self.limits.restores)?;
        for producer in 0..self.script.len() {
            self.lose(world, producer);
        }
        world.outbox.restore();
        world.in_flight = None;
        Some(())
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut outbox = Outbox::new(self.mistake);
        let sink = SinkName::new("sink").expect("a valid name");
        assert_eq!(outbox.open_sink(&sink, StartFrom::Oldest, [lane()]), SINK);
        let relays = [(); RELAYS].map(|()| Relay { start: 0, phase: Phase::Idle });
        // Which of them begins makes no difference.
        outbox.acquire(SINK, lane(), relays[0].id(0));
        vec![World {
            outbox,
            producers: vec![Producer::Before; self.script.len()],
            relays,
            in_flight: None,
            inbox: Messages::default(),
            applied: [0; MESSAGES],
            aborted: Messages::default(),
            discarded: Messages::default(),
            earlier: [Messages::default(); MESSAGES],
            spent: Spent::default(),
            broken: Broken::default(),
        }]
    }

    /// Lists more than is possible: what is not makes no next state.
    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        use Action::*;
        for producer in 0..self.script.len() {
            actions.extend([Enqueue(producer), Commit(producer), Abort(producer)]);
        }
        for relay in 0..RELAYS {
            match &world.relays[relay].phase {
                Phase::Idle => actions.push(Take(relay)),
                Phase::Working { .. } => {
                    let heard = [
                        Heard::Accepted,
                        Heard::Failed { at_once: true },
                        Heard::Failed { at_once: false },
                        Heard::Refused,
                        Heard::Gone,
                        Heard::SinkDown,
                    ];
                    actions.extend(heard.map(|heard| Send(relay, heard)));
                    actions.push(SendUnheard(relay));
                }
                Phase::Settling(_) => {}
            }
            if world.relays[relay].phase != Phase::Idle {
                actions.extend([
                    Settle(relay),
                    SettleUnheard(relay),
                    SettleLate(relay),
                    Crash(relay),
                ]);
            }
        }
        for message in 0..self.messages() {
            actions.extend([Redrive(message), Discard(message)]);
        }
        actions.extend([Land, LeaseOver, DayPasses, Sweep, Restore, Rebase]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        match action {
            Action::Enqueue(producer) => self.enqueue(&mut world, producer)?,
            Action::Commit(producer) => self.commit(&mut world, producer)?,
            Action::Abort(producer) => self.abort(&mut world, producer)?,
            Action::Take(relay) => relays::take(self, &mut world, relay)?,
            Action::Send(relay, heard) => relays::send(self, &mut world, relay, heard)?,
            Action::SendUnheard(relay) => relays::send_unheard(self, &mut world, relay)?,
            Action::Settle(relay) => relays::settle(&mut world, relay)?,
            Action::SettleUnheard(relay) => relays::settle_unheard(self, &mut world, relay)?,
            Action::SettleLate(relay) => relays::settle_late(self, &mut world, relay)?,
            Action::Land => relays::land(&mut world)?,
            Action::Crash(relay) => relays::crash(self, &mut world, relay)?,
            Action::LeaseOver => self.lease_over(&mut world)?,
            Action::DayPasses => {
                spend(&mut world.spent.days, self.limits.days)?;
                world.outbox.now = world.outbox.now.plus(DAY);
            }
            Action::Redrive(message) => self.repair(&mut world, message, RepairKind::Redrive)?,
            Action::Discard(message) => self.repair(&mut world, message, RepairKind::Discard)?,
            Action::Sweep => self.sweep(&mut world)?,
            Action::Restore => self.restore(&mut world)?,
            Action::Rebase => {
                let is_quiet = world.outbox.open.is_empty();
                (is_quiet && world.outbox.alarm().is_some()).then(|| world.outbox.rebase())?;
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

/// One more fault of a kind, if there may be.
pub(crate) fn spend(spent: &mut u8, limit: u8) -> Option<()> {
    (*spent < limit).then(|| *spent += 1)
}

pub(crate) fn id(number: usize) -> MessageId {
    MessageId::from_bytes([u8::try_from(number).expect("few messages"); 16])
}

pub(crate) fn lane_of(outbox: &Outbox) -> &LaneState {
    &outbox.sinks[&SINK.0].lanes[&lane()]
}

pub(crate) fn lane_mut(outbox: &mut Outbox) -> &mut LaneState {
    let sink = outbox.sinks.get_mut(&SINK.0).expect("the sink is there");
    sink.lanes.get_mut(&lane()).expect("the lane is there")
}
