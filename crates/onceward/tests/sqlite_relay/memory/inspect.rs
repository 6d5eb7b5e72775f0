//! What operators see and change.

use onceward::{
    StoreError,
    message::{
        Changed, InspectQueue, LaneCondition, MessageFilter, MessageId, MessagePage, MessageState,
        QueueCondition, RepairKind, RepairMessage, ShownMessage, SinkCondition, SinkName,
    },
    store::StoreFuture,
};

use super::{MemoryQueue, Message, SinkState, Tables, fresh_fence};

impl SinkState {
    fn show(&self, number: i64, message: &Message) -> ShownMessage {
        let lane = &self.lanes[usize::from(message.lane().number())];
        let entry = self.parked.get(&number);
        let state = match (entry, self.ended.get(&number)) {
            (Some(entry), _) => entry.state,
            (None, Some(ended)) => *ended,
            (None, None) if lane.cursor >= number => MessageState::Delivered,
            (None, None) => MessageState::Waiting,
        };
        let is_timed = matches!(state, MessageState::Waiting | MessageState::Scheduled);
        ShownMessage {
            message: message.clone(),
            sink: self.name.clone(),
            state,
            attempts: entry.map_or(0, |entry| entry.attempts),
            due: entry.filter(|_| is_timed).map(|entry| message.not_before.unwrap_or(entry.due)),
            why: entry.map_or_else(String::new, |entry| entry.why.clone()),
        }
    }
}

impl Tables {
    fn shown(&self) -> impl Iterator<Item = ShownMessage> {
        let each =
            |(number, message)| self.sinks.iter().map(move |sink| sink.show(number, message));
        self.messages.iter().flat_map(move |(number, message)| each((*number, message)))
    }
}

impl InspectQueue for MemoryQueue {
    /// In one page: no test has more.
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage> {
        Box::pin(async move {
            let tables = self.tables();
            let is_it = |shown: &ShownMessage| {
                filter.sink.as_ref().is_none_or(|sink| shown.sink == *sink)
                    && filter.state.is_none_or(|state| shown.state == state)
                    && filter.topic.as_ref().is_none_or(|topic| shown.message.topic == *topic)
            };
            Ok(MessagePage { messages: tables.shown().filter(is_it).collect(), next: None })
        })
    }

    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>> {
        Box::pin(async move {
            Ok(self.tables().shown().filter(|shown| shown.message.id == id).collect())
        })
    }

    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            let mut tables = self.tables();
            let now = self.now(&tables);
            let Tables { messages, sinks, .. } = &mut *tables;
            let found = messages.iter().find(|(_, message)| message.id == repair.id);
            let sink = sinks.iter_mut().find(|sink| sink.name == repair.sink);
            let (Some((number, message)), Some(sink)) = (found, sink) else {
                return Ok(Changed::Absent);
            };
            let state = sink.show(*number, message).state;
            let Some(entry) = sink.parked.get_mut(number) else {
                return Ok(Changed::Refused(state));
            };
            match repair.kind {
                RepairKind::Redrive if state == MessageState::Scheduled => {
                    return Ok(Changed::Refused(state));
                }
                RepairKind::Redrive => {
                    (entry.state, entry.attempts, entry.due) = (MessageState::Waiting, 0, now);
                    entry.why = String::new();
                }
                RepairKind::Discard => {
                    sink.parked.remove(number);
                    sink.ended.insert(*number, MessageState::Discarded);
                }
            }
            sink.lane(message.lane()).append(fresh_fence(), now);
            Ok(Changed::Done)
        })
    }

    fn remove_sink<'a>(&'a self, name: &'a SinkName) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let sinks = &mut self.tables().sinks;
            let before = sinks.len();
            sinks.retain(|sink| sink.name != *name);
            Ok(sinks.len() < before)
        })
    }

    fn condition(&self) -> StoreFuture<'_, QueueCondition> {
        Box::pin(async move { self.condition_now() })
    }
}

impl MemoryQueue {
    fn condition_now(&self) -> Result<QueueCondition, StoreError> {
        let tables = self.tables();
        let now = self.now(&tables);
        let of_sink = |sink: &SinkState| {
            let all: Vec<_> = tables
                .messages
                .iter()
                .map(|(number, message)| sink.show(*number, message))
                .collect();
            let parked = |state| {
                let entries = sink.parked.values();
                entries.filter(|entry| entry.state == state).count() as u64
            };
            let is_over = |state| {
                use MessageState::{Delivered, Discarded, Expired};
                matches!(state, Delivered | Discarded | Expired)
            };
            let open: Vec<_> = all.iter().filter(|shown| !is_over(shown.state)).collect();
            let lane = |lane: &super::lanes::LaneState| {
                let relay = lane.holder(now);
                relay.map(|relay| LaneCondition { lane: lane.lane, relay: Some(relay) })
            };
            SinkCondition {
                name: sink.name.clone(),
                id: sink.id,
                lag: open.len() as u64,
                oldest_waiting: open.iter().map(|shown| now.since(shown.message.at)).max(),
                waiting: parked(MessageState::Waiting),
                scheduled: parked(MessageState::Scheduled),
                held: parked(MessageState::Held),
                dead: parked(MessageState::Dead),
                lanes: sink.lanes.iter().filter_map(lane).collect(),
            }
        };
        Ok(QueueCondition {
            messages: tables.messages.len() as u64,
            oldest: tables.messages.values().map(|message| now.since(message.at)).max(),
            sinks: tables.sinks.iter().map(of_sink).collect(),
            alarm: tables.alarm.clone(),
        })
    }
}
