//! Lanes: who holds them, what is taken, how they move.

use std::time::Duration;

use onceward_core::{
    Fence, Timestamp,
    message::{
        Advance, Due, Fresh, Lane, LeaseRequest, MessageState, Page, ParkChange, Parking, Place,
        Position, RelayId, Settled, Settlement, SinkId,
    },
};

use super::{Entry, LaneState, Mark, Mistake, Outbox, Row, Sink, Snapshot, Step};

impl LaneState {
    pub(crate) fn newest(&self) -> (u64, &Step) {
        let (number, step) = self.steps.last_key_value().expect("the newest step is kept");
        (*number, step)
    }

    pub(super) fn append(&mut self, mark: Mark, fence: Fence, at: Timestamp) {
        let number = self.newest().0 + 1;
        self.steps.insert(number, Step { fence, mark, at });
    }

    fn is_free(&self, now: Timestamp) -> bool {
        self.owner.is_none() || self.until <= now
    }
}

/// A fence that nothing else in this lane has, because the number of a step is given once.
pub(super) fn own_fence(kind: u8, step: u64) -> Fence {
    let mut bytes = [kind; 16];
    bytes[8..].copy_from_slice(&step.to_be_bytes());
    Fence::from_random(bytes)
}

impl Outbox {
    pub(crate) fn lease(&mut self, request: &LeaseRequest) -> Vec<Position> {
        let LeaseRequest { sink, relay, lease } = *request;
        let (now, mistake) = (self.now, self.mistake);
        let Some(of_sink) = self.sinks.get_mut(&sink.0) else { return Vec::new() };
        of_sink.relays.insert(relay, now.plus(lease));
        of_sink.relays.retain(|_, until| *until > now);
        let relays = if mistake == Some(Mistake::GreedyRelays) { 1 } else { of_sink.relays.len() };
        let share = of_sink.lanes.len().div_ceil(relays);
        let mut own = 0;
        for lane in of_sink.lanes.values_mut().filter(|lane| lane.owner == Some(relay)) {
            if own < share {
                own += 1;
                lane.until = now.plus(lease);
                if mistake == Some(Mistake::RenewalAppendsStep) {
                    let number = lane.newest().0;
                    lane.append(lane.newest().1.mark.clone(), own_fence(3, number), now);
                }
            } else {
                lane.owner = None;
            }
        }
        let all: Vec<_> = of_sink.lanes.keys().copied().collect();
        for lane in all {
            let is_free = of_sink.lanes[&lane].is_free(now) || mistake == Some(Mistake::NoLease);
            if own < share && is_free && of_sink.lanes[&lane].owner != Some(relay) {
                own += 1;
                take_over(of_sink, lane, relay, now, lease, mistake);
            }
        }
        let held = |lane: &&Lane| of_sink.lanes[lane].owner == Some(relay);
        let lanes: Vec<_> = of_sink.lanes.keys().filter(held).copied().collect();
        lanes.into_iter().map(|lane| self.position(sink, lane, relay)).collect()
    }

    /// Leases one lane, if it is free.
    pub(crate) fn acquire(&mut self, sink: SinkId, lane: Lane, relay: RelayId) -> Option<Position> {
        let (now, mistake) = (self.now, self.mistake);
        let of_sink = self.sinks.get_mut(&sink.0)?;
        if !of_sink.lanes[&lane].is_free(now) {
            return None;
        }
        take_over(of_sink, lane, relay, now, Duration::from_secs(12 * 3600), mistake);
        Some(self.position(sink, lane, relay))
    }

    pub(crate) fn give_back(&mut self, sink: SinkId, relay: RelayId) {
        let Some(of_sink) = self.sinks.get_mut(&sink.0) else { return };
        of_sink.relays.remove(&relay);
        let is_own = |lane: &&mut LaneState| lane.owner == Some(relay);
        if self.mistake == Some(Mistake::LanesNotGivenBack) {
            return;
        }
        of_sink.lanes.values_mut().filter(is_own).for_each(|lane| lane.owner = None);
    }

    pub(crate) fn position(&self, sink: SinkId, lane: Lane, relay: RelayId) -> Position {
        let (step, newest) = self.sinks[&sink.0].lanes[&lane].newest();
        let cursor = newest.mark.cursor();
        Position { sink, lane, relay, step, fence: newest.fence, cursor }
    }

    pub(super) fn place(&self, row: &Row) -> Place {
        match self.makes(Mistake::OrderByTransaction) {
            false => Place(row.seq),
            true => Place(i64::try_from(row.xid).expect("few transactions") * 1_000 + row.seq),
        }
    }

    pub(crate) fn has_passed(&self, mark: &Mark, row: &Row) -> bool {
        match self.makes(Mistake::SequenceCursor) {
            false => mark.has_passed(row, self.place(row)),
            true => row.seq <= mark.done,
        }
    }

    pub(crate) fn take(&self, position: &Position, limit: usize) -> Page {
        let Position { sink, lane, cursor, .. } = position;
        let mark = Mark::of(cursor);
        let target = mark.target.clone().unwrap_or_else(|| self.snapshot());
        let of_lane = self.sinks.get(&sink.0).map(|sink| &sink.lanes[lane]);
        let all_due = of_lane.map(|of_lane| self.due(of_lane)).unwrap_or_default();
        let fresh: Vec<&Row> = self.fresh(*lane, &mark, &target);
        let (due, room) = match self.mistake {
            Some(Mistake::PagesWithoutLimit) => (all_due.len(), fresh.len()),
            Some(Mistake::FreshOnesFirst) => {
                (limit.saturating_sub(fresh.len()).min(all_due.len()), limit)
            }
            _ => (limit.min(all_due.len()), limit - limit.min(all_due.len())),
        };
        let due: Vec<_> = all_due.iter().copied().take(due).collect();
        let is_full = all_due.len() > due.len() || fresh.len() > room;
        let opened =
            Mark { base: mark.base.clone(), target: Some(target.clone()), done: mark.done };
        let end = match fresh.get(room..).is_some_and(|rest| !rest.is_empty()) {
            true if room == 0 => mark.clone(),
            true => Mark { done: self.place(fresh[room - 1]).0, ..opened.clone() },
            false if self.makes(Mistake::SequenceCursor) => {
                let last = fresh.last().map_or(mark.done, |row| row.seq);
                Mark { done: last, ..mark.clone() }
            }
            false
                if fresh.is_empty()
                    && mark.target.is_none()
                    && !self.makes(Mistake::IdleLaneMoves) =>
            {
                mark.clone()
            }
            false => Mark::at(target),
        };
        let fresh = fresh.into_iter().take(room).map(|row| Fresh {
            place: self.place(row),
            message: (*row.message).clone(),
            is_blocked: of_lane.is_some_and(|of_lane| self.is_blocked(of_lane, row, &due)),
        });
        let due = due.iter().map(|seq| Due {
            place: self.place(&self.rows[seq]),
            message: (*self.rows[seq].message).clone(),
            attempts: of_lane.map_or(0, |of_lane| of_lane.parked[seq].attempts),
        });
        let (opened, end) = (opened.cursor(), end.cursor());
        Page { read_at: self.now, fresh: fresh.collect(), due: due.collect(), opened, end, is_full }
    }

    fn fresh(&self, lane: Lane, mark: &Mark, target: &Snapshot) -> Vec<&Row> {
        let is_next =
            |row: &&Row| row.lane == lane && target.sees(row.xid) && !self.has_passed(mark, row);
        let mut fresh: Vec<_> = self.rows.values().filter(is_next).collect();
        fresh.sort_by_key(|row| self.place(row));
        fresh
    }

    fn is_blocked(&self, of_lane: &LaneState, row: &Row, due: &[i64]) -> bool {
        of_lane.parked.iter().any(|(seq, entry)| {
            let is_mate = self.are_mates(*seq, row.seq);
            let is_in_page = due.contains(seq) && !self.makes(Mistake::DueOnesBlock);
            is_mate && self.blocks(entry) && !is_in_page
        })
    }

    /// Whether two messages are there and of one aggregate.
    fn are_mates(&self, one: i64, other: i64) -> bool {
        let aggregate = |seq| self.rows.get(&seq).map(|row| &row.message.aggregate);
        aggregate(one).is_some_and(|of_one| Some(of_one) == aggregate(other))
    }

    fn blocks(&self, entry: &Entry) -> bool {
        let is_dead = entry.state == MessageState::Dead;
        match self.mistake {
            Some(Mistake::DeadLetterPassed) => entry.blocks() && !is_dead,
            Some(Mistake::SkippedOneBlocks) => entry.blocks() || is_dead,
            Some(Mistake::ScheduledOneBlocks) => {
                entry.blocks() || entry.state == MessageState::Scheduled
            }
            Some(Mistake::ExpiredOneBlocks) => {
                entry.blocks() || entry.state == MessageState::Expired
            }
            Some(Mistake::NothingBlocks) => false,
            _ => entry.blocks(),
        }
    }

    /// The parked messages that may be tried now, in their order.
    fn due(&self, of_lane: &LaneState) -> Vec<i64> {
        let can_go = |entry: &Entry| {
            let waits = matches!(entry.state, MessageState::Waiting | MessageState::Scheduled);
            waits && (entry.due <= self.now || self.makes(Mistake::DueTooEarly))
        };
        let is_in_the_way = |entry: &Entry| self.blocks(entry) && !can_go(entry);
        let is_free = |seq: &i64, entry: &Entry| {
            let is_scheduled = entry.state == MessageState::Scheduled;
            let comes_first = self.makes(Mistake::ScheduledOnePasses) && is_scheduled;
            !of_lane.parked.iter().any(|(other, in_the_way)| {
                is_in_the_way(in_the_way)
                    && (other < seq || is_scheduled)
                    && !comes_first
                    && self.are_mates(*other, *seq)
            })
        };
        let parked = of_lane.parked.iter();
        let is_there = |seq: &i64| self.rows.contains_key(seq);
        let due =
            parked.filter(|(seq, entry)| is_there(seq) && can_go(entry) && is_free(seq, entry));
        let mut due: Vec<_> = due.map(|(seq, _)| *seq).collect();
        if self.makes(Mistake::DueOutOfOrder) {
            due.reverse();
        }
        due
    }

    pub(crate) fn waiting(&self, positions: &[Position]) -> Vec<Lane> {
        let has_some = |position: &&Position| {
            let page = self.take(position, 1);
            let is_due = !page.due.is_empty() && !self.makes(Mistake::DueOnesNotNamed);
            is_due || !page.fresh.is_empty()
        };
        positions.iter().filter(has_some).map(|position| position.lane).collect()
    }

    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Settled {
        let Settlement { from, fence, advance, changes } = settlement;
        let Some(lane) = self.sinks.get(&from.sink.0).and_then(|sink| sink.lanes.get(&from.lane))
        else {
            return Settled::Fenced(None);
        };
        let is_next = match self.mistake {
            Some(Mistake::NoStepCheck) => lane.newest().1.fence != *fence,
            Some(Mistake::CleanedStepNotNoticed) => !lane.steps.contains_key(&(from.step + 1)),
            _ => lane.newest().0 == from.step,
        };
        if !is_next {
            return self.not_next(settlement, lane);
        }
        let mark = match advance {
            Advance::Stay => Mark::of(&from.cursor),
            Advance::Through { opened, place } => Mark { done: place.0, ..Mark::of(opened) },
            Advance::Past(end) => Mark::of(end),
        };
        let (sink, now) = (from.sink, self.now);
        for change in changes {
            self.park(sink, from.lane, change);
        }
        if let Some(lane) = self.lane_mut(sink, from.lane) {
            lane.append(mark, *fence, now);
        }
        Settled::Moved(self.position(sink, from.lane, from.relay))
    }

    fn not_next(&self, settlement: &Settlement, lane: &LaneState) -> Settled {
        let Settlement { from, fence, .. } = settlement;
        let made = match self.mistake {
            Some(Mistake::LostReplyNotRecognised) => false,
            Some(Mistake::LostReplyRecognisedIfNewest) => lane.newest().1.fence == *fence,
            _ => lane.steps.get(&(from.step + 1)).is_some_and(|step| step.fence == *fence),
        };
        let is_held = lane.owner == Some(from.relay) && lane.until > self.now;
        let is_here = lane.newest().1.mark.cursor() == from.cursor;
        let position = || self.position(from.sink, from.lane, from.relay);
        match (made, is_held) {
            (true, true) => Settled::Moved(position()),
            (false, true) if is_here => Settled::Fenced(Some(position())),
            (false, _) if self.makes(Mistake::FencedOneKeepsTheLane) => {
                Settled::Fenced(Some(position()))
            }
            _ => Settled::Fenced(None),
        }
    }

    pub(super) fn lane_mut(&mut self, sink: SinkId, lane: Lane) -> Option<&mut LaneState> {
        self.sinks.get_mut(&sink.0)?.lanes.get_mut(&lane)
    }

    fn park(&mut self, sink: SinkId, lane: Lane, change: &ParkChange) {
        let (now, mistake) = (self.now, self.mistake);
        let Some((seq, from)) =
            self.row(change.id).map(|row| (row.seq, row.message.not_before.unwrap_or(now)))
        else {
            return;
        };
        let Some(of_lane) = self.lane_mut(sink, lane) else { return };
        let is_waiting = of_lane.parked.get(&seq).is_some_and(|entry| {
            matches!(entry.state, MessageState::Waiting | MessageState::Scheduled)
        });
        let overwrites = mistake == Some(Mistake::OperatorOverwritten);
        if change.was_parked && !is_waiting && !overwrites {
            return;
        }
        let entry = |state, attempts, due, why: &str| Entry {
            state,
            attempts,
            due,
            why: why.to_owned(),
            is_skipped: false,
        };
        let entry = match &change.to {
            Parking::Delivered => {
                of_lane.parked.remove(&seq);
                return;
            }
            Parking::Waiting { attempts, wait, why } => {
                entry(MessageState::Waiting, *attempts, now.plus(*wait), why)
            }
            Parking::Scheduled => entry(MessageState::Scheduled, 0, from, ""),
            Parking::Held { .. } if mistake == Some(Mistake::HeldDropped) => return,
            Parking::Held { attempts, why } => entry(MessageState::Held, *attempts, now, why),
            Parking::Dead { attempts, why, is_skipped } => {
                let dead = entry(MessageState::Dead, *attempts, now, why);
                Entry { is_skipped: *is_skipped, ..dead }
            }
            Parking::Expired => entry(MessageState::Expired, 0, now, ""),
        };
        of_lane.parked.insert(seq, entry);
    }
}

/// A new owner appends a step, so that whatever the one before still settles misses.
fn take_over(
    of_sink: &mut Sink,
    lane: Lane,
    relay: RelayId,
    now: Timestamp,
    lease: Duration,
    mistake: Option<Mistake>,
) {
    let Some(of_lane) = of_sink.lanes.get_mut(&lane) else { return };
    of_lane.owner = Some(relay);
    of_lane.until = now.plus(lease);
    if mistake != Some(Mistake::TakeOverWithoutStep) {
        let (number, newest) = of_lane.newest();
        let mark = newest.mark.clone();
        of_lane.append(mark, own_fence(1, number), now);
    }
}
