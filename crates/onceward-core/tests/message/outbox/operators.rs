//! What operators see and change.

use onceward_core::{
    StoreError, Timestamp,
    message::{
        Changed, LaneCondition, MessageFilter, MessageId, MessagePage, MessageState,
        QueueCondition, RepairKind, RepairMessage, ShownMessage, SinkCondition, SinkId,
    },
};

use super::{Entry, Mistake, Outbox, Row, Sink, lanes::own_fence};

impl Outbox {
    pub(crate) fn repair(&mut self, repair: &RepairMessage) -> Changed {
        let found = self.sinks.iter().find(|(_, sink)| sink.name == repair.sink);
        let (Some((number, sink)), Some(row)) = (found, self.row(repair.id)) else {
            return Changed::Absent;
        };
        let (sink_id, lane, seq, now) = (SinkId(*number), row.lane, row.seq, self.now);
        let (state, ..) = self.state(sink, row);
        let is_parked = sink.lanes[&lane].parked.contains_key(&seq);
        let can = match (repair.kind, state) {
            (RepairKind::Redrive, MessageState::Scheduled) => false,
            (_, MessageState::Waiting | MessageState::Scheduled) => is_parked,
            (_, MessageState::Held | MessageState::Dead) => true,
            (RepairKind::Redrive, MessageState::Discarded) => {
                self.makes(Mistake::DiscardedRedriven)
            }
            _ => false,
        };
        let is_lenient = self.makes(Mistake::EverythingDiscarded) && is_parked;
        if !can && !is_lenient {
            return Changed::Refused(state);
        }
        let (mistake, Some(of_lane)) = (self.mistake, self.lane_mut(sink_id, lane)) else {
            return Changed::Absent;
        };
        let Some(entry) = of_lane.parked.get_mut(&seq) else { return Changed::Absent };
        match repair.kind {
            RepairKind::Redrive => {
                let attempts = match mistake {
                    Some(Mistake::RedriveKeepsAttempts) => entry.attempts,
                    _ => 0,
                };
                let why = String::new();
                let state = MessageState::Waiting;
                *entry = Entry { state, attempts, due: now, why, is_skipped: false };
            }
            RepairKind::Discard => entry.state = MessageState::Discarded,
        }
        if mistake != Some(Mistake::RepairWithoutStep) {
            let (number, newest) = of_lane.newest();
            let mark = newest.mark.clone();
            of_lane.append(mark, own_fence(2, number), now);
        }
        Changed::Done
    }

    /// What a message is at a sink, its attempts, when it is due, and what was said last.
    fn state(&self, sink: &Sink, row: &Row) -> (MessageState, u32, Option<Timestamp>, String) {
        let lane = &sink.lanes[&row.lane];
        match lane.parked.get(&row.seq) {
            Some(entry) => {
                let waits = matches!(entry.state, MessageState::Waiting | MessageState::Scheduled);
                (entry.state, entry.attempts, waits.then_some(entry.due), entry.why.clone())
            }
            None if self.has_passed(&lane.newest().1.mark, row) => {
                (MessageState::Delivered, 0, None, String::new())
            }
            None => (MessageState::Waiting, 0, None, String::new()),
        }
    }

    fn shown(&self, sink: &Sink, row: &Row) -> ShownMessage {
        let (state, attempts, due, why) = self.state(sink, row);
        let (message, sink) = ((*row.message).clone(), sink.name.clone());
        ShownMessage { message, sink, state, attempts, due, why }
    }

    fn committed(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| !self.is_open(row))
    }

    pub(crate) fn show(&self, id: MessageId) -> Vec<ShownMessage> {
        let rows = self.committed().filter(|row| row.message.id == id);
        let sinks = if self.makes(Mistake::OneSinkListed) { 1 } else { self.sinks.len() };
        let of_row = |row| self.sinks.values().take(sinks).map(move |sink| self.shown(sink, row));
        rows.flat_map(of_row).collect()
    }

    pub(crate) fn list(&self, filter: &MessageFilter) -> Result<MessagePage, StoreError> {
        let after = match &filter.after {
            None => (0, 0),
            Some(text) => {
                let parts = text.split_once('/').and_then(|(seq, sink)| {
                    Some((seq.parse::<i64>().ok()?, sink.parse::<i16>().ok()?))
                });
                parts.ok_or_else(|| StoreError::Unusable("a page of no list".into()))?
            }
        };
        let limit = if filter.limit == 0 { 100 } else { filter.limit.min(MessageFilter::MAX_PAGE) };
        let mut page = MessagePage::default();
        let mut last = after;
        for row in self.committed() {
            for (number, sink) in &self.sinks {
                let shown = self.shown(sink, row);
                let place = (row.seq, *number);
                let is_before = match self.makes(Mistake::ListRepeatsALine) {
                    false => place <= after,
                    true => place < after,
                };
                if is_before || !self.fits(filter, &shown) {
                    continue;
                }
                if page.messages.len() == limit as usize {
                    page.next = Some(format!("{}/{}", last.0, last.1));
                    return Ok(page);
                }
                last = (row.seq, *number);
                page.messages.push(shown);
            }
        }
        Ok(page)
    }

    fn fits(&self, filter: &MessageFilter, shown: &ShownMessage) -> bool {
        let age = self.now.since(shown.message.at);
        filter.sink.as_ref().is_none_or(|sink| *sink == shown.sink)
            && (filter.state.is_none_or(|state| state == shown.state)
                || self.makes(Mistake::StateNotFiltered))
            && filter.topic.as_ref().is_none_or(|topic| *topic == shown.message.topic)
            && filter.aggregate.as_ref().is_none_or(|one| *one == shown.message.aggregate)
            && filter.older.is_none_or(|older| age >= older)
    }

    pub(crate) fn condition(&self) -> QueueCondition {
        let ages = self.committed().map(|row| self.now.since(row.message.at));
        QueueCondition {
            messages: self.committed().count() as u64,
            oldest: ages.max(),
            sinks: self.sinks.iter().map(|(number, sink)| self.sink(*number, sink)).collect(),
            alarm: self.alarm(),
        }
    }

    fn sink(&self, number: i16, sink: &Sink) -> SinkCondition {
        let entries = || sink.lanes.values().flat_map(|lane| lane.parked.values());
        let count = |state| entries().filter(|entry| entry.state == state).count() as u64;
        let is_missing = |row: &&Row| {
            use MessageState::{Dead, Held, Scheduled, Waiting};
            let is_parked = sink.lanes[&row.lane].parked.contains_key(&row.seq);
            matches!(self.state(sink, row).0, Waiting | Scheduled | Held | Dead)
                && !(is_parked && self.makes(Mistake::LagWithoutParked))
        };
        let missing: Vec<_> = self.committed().filter(is_missing).collect();
        let lanes = sink.lanes.iter().map(|(lane, of_lane)| {
            let relay = of_lane.owner.filter(|_| of_lane.until > self.now);
            LaneCondition { lane: *lane, relay }
        });
        SinkCondition {
            name: sink.name.clone(),
            id: SinkId(number),
            lag: missing.len() as u64,
            oldest_waiting: missing.iter().map(|row| self.now.since(row.message.at)).max(),
            waiting: count(MessageState::Waiting),
            scheduled: count(MessageState::Scheduled),
            held: count(MessageState::Held),
            dead: count(MessageState::Dead),
            lanes: lanes.collect(),
        }
    }
}
