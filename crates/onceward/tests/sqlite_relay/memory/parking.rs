//! What is parked, what of it is due, and what it blocks.

use std::collections::BTreeSet;

use onceward::{
    Timestamp,
    message::{
        Aggregate, Due, Fresh, Lane, MessageState, Page, ParkChange, Parking, Place, Position,
    },
};

use super::{Messages, SinkState, cursor, number};

pub(super) struct Entry {
    pub(super) aggregate: Aggregate,
    lane: u8,
    pub(super) state: MessageState,
    pub(super) attempts: u32,
    /// For scheduled ones it is in the message.
    pub(super) due: Timestamp,
    pub(super) why: String,
    pub(super) is_skipped: bool,
}

impl Entry {
    /// `None`: it is not parked any more.
    pub(super) fn of(change: &ParkChange, now: Timestamp) -> Option<Self> {
        let (state, attempts, due, why, is_skipped) = match change.to.clone() {
            Parking::Delivered | Parking::Expired => return None,
            Parking::Waiting { attempts, wait, why } => {
                (MessageState::Waiting, attempts, now.plus(wait), why, false)
            }
            Parking::Scheduled => (MessageState::Scheduled, 0, now, String::new(), false),
            Parking::Held { attempts, why } => (MessageState::Held, attempts, now, why, false),
            Parking::Dead { attempts, why, is_skipped } => {
                (MessageState::Dead, attempts, now, why, is_skipped)
            }
        };
        let aggregate = change.aggregate.clone();
        let lane = Lane::of(aggregate.as_str().as_bytes()).number();
        Some(Self { aggregate, lane, state, attempts, due, why, is_skipped })
    }

    /// Whether a relay may still change it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, MessageState::Waiting | MessageState::Scheduled)
    }

    fn blocks(&self) -> bool {
        match self.state {
            MessageState::Waiting | MessageState::Held => true,
            MessageState::Dead => !self.is_skipped,
            _ => false,
        }
    }
}

impl SinkState {
    /// The places that are due, in their order.
    fn due(&self, messages: &Messages<'_>, lane: u8, now: Timestamp) -> Vec<i64> {
        let entries = || self.parked.iter().filter(|(_, entry)| entry.lane == lane);
        let mut stuck: BTreeSet<&Aggregate> = BTreeSet::new();
        let mut due = BTreeSet::new();
        for (place, entry) in entries().filter(|(_, entry)| entry.blocks()) {
            let is_due = entry.state == MessageState::Waiting && entry.due <= now;
            if is_due && !stuck.contains(&entry.aggregate) {
                due.insert(*place);
            } else {
                stuck.insert(&entry.aggregate);
            }
        }
        for (place, entry) in entries() {
            let is_time = messages.all[place].not_before.is_none_or(|from| from <= now);
            let is_free = !stuck.contains(&entry.aggregate);
            if entry.state == MessageState::Scheduled && is_time && is_free {
                due.insert(*place);
            }
        }
        due.into_iter().collect()
    }

    /// Whether there is something to take.
    pub(super) fn has_some(
        &self,
        messages: &Messages<'_>,
        position: &Position,
        now: Timestamp,
    ) -> bool {
        let (lane, after) = (position.lane.number(), number(&position.cursor));
        let mut fresh = messages.index.range((lane, after + 1)..=(lane, i64::MAX));
        fresh.next().is_some() || !self.due(messages, lane, now).is_empty()
    }

    pub(super) fn take(
        &mut self,
        messages: &Messages<'_>,
        position: &Position,
        limit: u32,
        now: Timestamp,
    ) -> Page {
        let lane = position.lane.number();
        let mut places = self.due(messages, lane, now);
        let after = number(&position.cursor);
        let fresh = messages.index.range((lane, after + 1)..=(lane, i64::MAX));
        let mut fresh: Vec<_> = fresh.map(|(_, place)| (place, &messages.all[place])).collect();
        let is_full = places.len() + fresh.len() > limit as usize;
        places.truncate(limit as usize);
        fresh.truncate(limit as usize - places.len());
        let end = fresh.last().map_or(after, |(place, _)| **place);
        let is_blocked = |aggregate: &Aggregate| {
            let mut entries = self.parked.iter();
            entries.any(|(place, entry)| {
                entry.aggregate == *aggregate && entry.blocks() && !places.contains(place)
            })
        };
        let fresh = fresh.into_iter().map(|(place, message)| Fresh {
            place: Place(*place),
            message: message.clone(),
            is_blocked: is_blocked(&message.aggregate),
        });
        let fresh = fresh.collect();
        let due = places.iter().map(|place| Due {
            place: Place(*place),
            message: messages.all[place].clone(),
            attempts: self.parked[place].attempts,
        });
        let due = due.collect();
        Page { read_at: now, fresh, due, opened: cursor(after), end: cursor(end), is_full }
    }
}
