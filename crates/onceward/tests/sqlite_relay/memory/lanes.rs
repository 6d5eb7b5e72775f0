//! Lanes: who holds them, and the steps by which they move.

use onceward::{
    Timestamp,
    message::{
        Advance, Lane, LeaseRequest, ParkChange, Parking, Position, RelayId, Settled, Settlement,
    },
    protocol::Fence,
};

use super::{SinkState, cursor, fresh_fence, number, parking::Entry};

pub(super) struct LaneState {
    pub(super) lane: Lane,
    pub(super) cursor: i64,
    relay: Option<RelayId>,
    until: Timestamp,
    /// All steps, the newest last: their numbers, fences and times.
    steps: Vec<(u64, Fence, Timestamp)>,
}

impl LaneState {
    pub(super) fn new(lane: Lane, cursor: i64) -> Self {
        let never = Timestamp::from_unix_micros(0);
        Self { lane, cursor, relay: None, until: never, steps: vec![(0, fresh_fence(), never)] }
    }

    fn newest(&self) -> (u64, Fence) {
        let (step, fence, _) = self.steps[self.steps.len() - 1];
        (step, fence)
    }

    /// An operator's step has a fence of its own.
    pub(super) fn append(&mut self, fence: Fence, now: Timestamp) {
        self.steps.push((self.newest().0 + 1, fence, now));
    }

    pub(super) fn holder(&self, now: Timestamp) -> Option<RelayId> {
        self.relay.filter(|_| self.until > now)
    }

    pub(super) fn sweep(&mut self, before: Timestamp) -> usize {
        let (all, newest) = (self.steps.len(), self.newest().0);
        self.steps.retain(|(step, _, at)| *step == newest || *at >= before);
        all - self.steps.len()
    }
}

impl SinkState {
    pub(super) fn lane(&mut self, lane: Lane) -> &mut LaneState {
        &mut self.lanes[usize::from(lane.number())]
    }

    fn position(&self, lane: &LaneState, relay: RelayId) -> Position {
        let (step, fence) = lane.newest();
        Position { sink: self.id, lane: lane.lane, relay, step, fence, cursor: cursor(lane.cursor) }
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest, now: Timestamp) -> Vec<Position> {
        let (relay, until) = (request.relay, now.plus(request.lease));
        self.relays.retain(|_, lives| *lives > now);
        self.relays.insert(relay, until);
        let share = self.lanes.len().div_ceil(self.relays.len());
        let mut held = 0;
        for lane in self.lanes.iter_mut().filter(|lane| lane.relay == Some(relay)) {
            held += 1;
            if held > share {
                lane.relay = None;
            } else {
                lane.until = until;
            }
        }
        for lane in &mut self.lanes {
            if held < share && lane.holder(now).is_none() && lane.relay != Some(relay) {
                held += 1;
                (lane.relay, lane.until) = (Some(relay), until);
                lane.append(fresh_fence(), now);
            }
        }
        let mine = self.lanes.iter().filter(|lane| lane.relay == Some(relay));
        mine.map(|lane| self.position(lane, relay)).collect()
    }

    pub(super) fn give_back(&mut self, relay: RelayId, now: Timestamp) {
        self.relays.remove(&relay);
        for lane in self.lanes.iter_mut().filter(|lane| lane.relay == Some(relay)) {
            (lane.relay, lane.until) = (None, now);
        }
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let Settlement { from, fence, advance, changes } = settlement;
        let lane = self.lane(from.lane);
        let is_ours = lane.relay.is_none_or(|relay| relay == from.relay);
        let next = lane.steps.iter().find(|(step, ..)| *step == from.step + 1);
        let was_made = next.is_some_and(|(_, made, _)| made == fence);
        if lane.newest() != (from.step, from.fence) || !is_ours {
            let position = (lane.relay == Some(from.relay)
                && (was_made || cursor(lane.cursor) == from.cursor))
                .then_some(from.lane);
            let position = position
                .map(|lane| self.position(&self.lanes[usize::from(lane.number())], from.relay));
            return match position {
                Some(position) if was_made => Settled::Moved(position),
                position => Settled::Fenced(position),
            };
        }
        lane.append(*fence, now);
        lane.cursor = match advance {
            Advance::Stay => lane.cursor,
            Advance::Through { place, .. } => place.0,
            Advance::Past(end) => number(end),
        };
        for change in changes {
            self.change(change, now);
        }
        let lane = &self.lanes[usize::from(from.lane.number())];
        Settled::Moved(self.position(lane, from.relay))
    }

    fn change(&mut self, change: &ParkChange, now: Timestamp) {
        let place = change.place.0;
        let may_change = self.parked.get(&place).is_some_and(Entry::is_open);
        if change.was_parked && !may_change {
            return;
        }
        match Entry::of(change, now) {
            Some(entry) => drop(self.parked.insert(place, entry)),
            None => {
                self.parked.remove(&place);
            }
        }
        if change.to == Parking::Expired {
            self.ended.insert(place, onceward::message::MessageState::Expired);
        }
    }
}
