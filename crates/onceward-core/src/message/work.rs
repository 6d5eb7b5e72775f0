//! What a relay does with one page of a lane.
//!
//! Messages of one aggregate are a chain: one at a time, in their order. Chains go side by side. A message that
//! fails parks itself and the rest of its chain. The lane's cursor passes a message only when it was delivered
//! or parked.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    vec::Vec,
};
use core::time::Duration;

use super::{
    Advance, Aggregate, Cursor, Message, Next, Page, ParkChange, Parking, Place, Position,
    Settlement, Topic,
};
use crate::{Fence, Timestamp};

/// What a sink does with messages of one topic.
///
/// ```
/// use onceward_core::message::TopicRule;
///
/// assert_ne!(TopicRule::Send, TopicRule::Pass);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRule {
    /// They are sent to this sink.
    Send,
    /// They are for other sinks.
    Pass,
    /// No sink takes them, and this sink is the one that says so: they become dead letters.
    Refuse,
}

/// Why a message is dead whose topic no sink takes.
const NO_SINK: &str = "no sink takes this topic";

/// Names one message of a page while it is sent.
///
/// ```
/// use onceward_core::message::{LaneWork, Token};
///
/// fn text(work: &LaneWork, token: Token) -> &str {
///     work.message(token).topic.as_str()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(usize);

/// One page of a lane, from its reading to its settlement.
///
/// ```
/// use onceward_core::{Fence, message::*};
///
/// /// Delivers a whole page to a sink that takes everything.
/// fn deliver(position: Position, page: Page, fence: Fence) -> Option<Settlement> {
///     let mut work = LaneWork::new(position, page, false, |_| TopicRule::Send);
///     while let Some(token) = work.next() {
///         work.sent(token, Next::Delivered);
///     }
///     work.settlement(fence)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LaneWork {
    position: Position,
    opened: Cursor,
    end: Cursor,
    read_at: Timestamp,
    is_full: bool,
    skips_dead: bool,
    items: Vec<Item>,
    /// The chains whose next message may be sent.
    ready: VecDeque<usize>,
    chains: Vec<VecDeque<usize>>,
    in_flight: usize,
    paused: Option<Option<Duration>>,
}

#[derive(Clone, Debug)]
struct Item {
    place: Place,
    message: Message,
    attempts: u32,
    was_parked: bool,
    chain: usize,
    fate: Fate,
}

/// What became of a message of the page.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    /// It was not tried.
    Open,
    /// It is being sent.
    InFlight,
    /// It is delivered, or for other sinks.
    Delivered,
    /// It is parked.
    Parked(Parking),
}

impl LaneWork {
    /// Begins a page. Dead letters block their aggregates unless they are skipped.
    pub fn new(
        position: Position,
        page: Page,
        skips_dead: bool,
        rule: impl Fn(&Topic) -> TopicRule,
    ) -> Self {
        let Page { read_at, fresh, due, opened, end, is_full } = page;
        let mut work = Self {
            position,
            opened,
            end,
            read_at,
            is_full,
            skips_dead,
            items: Vec::with_capacity(due.len() + fresh.len()),
            ready: VecDeque::new(),
            chains: Vec::new(),
            in_flight: 0,
            paused: None,
        };
        let mut chain_of: BTreeMap<Aggregate, usize> = BTreeMap::new();
        let mut blocked: BTreeSet<usize> = BTreeSet::new();
        let mut add = |work: &mut Self, place, message: Message, attempts, is_fresh, is_blocked| {
            let next = work.chains.len();
            let chain = *chain_of.entry(message.aggregate.clone()).or_insert(next);
            if chain == next {
                work.chains.push(VecDeque::new());
            }
            let is_blocked = is_blocked || blocked.contains(&chain);
            let fate = work.first_fate(&message, rule(&message.topic), is_fresh, is_blocked);
            match &fate {
                Fate::Open => work.chains[chain].push_back(work.items.len()),
                Fate::Parked(parking) if parking.blocks_its_aggregate() => {
                    blocked.insert(chain);
                }
                _ => {}
            }
            work.items.push(Item { place, message, attempts, was_parked: !is_fresh, chain, fate });
        };
        for parked in due {
            add(&mut work, parked.place, parked.message, parked.attempts, false, false);
        }
        for one in fresh {
            add(&mut work, one.place, one.message, 0, true, one.is_blocked);
        }
        work.ready =
            (0..work.chains.len()).filter(|chain| !work.chains[*chain].is_empty()).collect();
        work
    }

    /// What is known of a message before any attempt.
    fn first_fate(
        &self,
        message: &Message,
        rule: TopicRule,
        is_fresh: bool,
        is_blocked: bool,
    ) -> Fate {
        if rule == TopicRule::Pass {
            return if is_fresh { Fate::Delivered } else { Fate::Parked(Parking::Delivered) };
        }
        if message.expires_at.is_some_and(|until| until <= self.read_at) {
            return Fate::Parked(Parking::Expired);
        }
        if message.not_before.is_some_and(|from| from > self.read_at) {
            return Fate::Parked(Parking::Scheduled);
        }
        if is_blocked {
            return Fate::Parked(behind(0));
        }
        if rule == TopicRule::Refuse {
            let why = NO_SINK.into();
            let is_skipped = self.skips_dead;
            return Fate::Parked(Parking::Dead { attempts: 0, why, is_skipped });
        }
        Fate::Open
    }

    /// The next message to send, until all are sent or the lane is paused.
    ///
    /// Nothing is given while the message before it in its aggregate is in flight: `None` may mean
    /// "not now". See [`is_over`](Self::is_over).
    #[expect(
        clippy::should_implement_trait,
        reason = "it is no iterator: answers decide what is next"
    )]
    pub fn next(&mut self) -> Option<Token> {
        if self.paused.is_some() {
            return None;
        }
        let chain = self.ready.pop_front()?;
        let index = self.chains[chain].pop_front()?;
        self.items[index].fate = Fate::InFlight;
        self.in_flight += 1;
        Some(Token(index))
    }

    /// Whether nothing is in flight and nothing more will be given.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.in_flight == 0 && (self.paused.is_some() || self.ready.is_empty())
    }

    /// The message of a token.
    #[must_use]
    pub fn message(&self, token: Token) -> &Message {
        &self.items[token.0].message
    }

    /// How many attempts of it have failed before.
    #[must_use]
    pub fn attempts(&self, token: Token) -> u32 {
        self.items[token.0].attempts
    }

    /// How old it is, by the queue's clock at the time of the reading.
    #[must_use]
    pub fn age(&self, token: Token) -> Duration {
        let message = self.message(token);
        let since = message.not_before.map_or(message.at, |from| from.max(message.at));
        self.read_at.since(since)
    }

    /// How long the lane is to rest, if the sink is down; `Some(None)`: the sink did not say.
    #[must_use]
    pub fn pause(&self) -> Option<Option<Duration>> {
        self.paused
    }

    /// Whether the queue had more than this page.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes what became of a message that [`next`](Self::next) gave.
    pub fn sent(&mut self, token: Token, next: Next) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let chain = self.items[token.0].chain;
        let attempts = self.items[token.0].attempts.saturating_add(1);
        let fate = match next {
            Next::Delivered => Fate::Delivered,
            Next::Park { wait, why } => Fate::Parked(Parking::Waiting { attempts, wait, why }),
            Next::Hold { why } => Fate::Parked(Parking::Held { attempts, why }),
            Next::Die { why } => {
                Fate::Parked(Parking::Dead { attempts, why, is_skipped: self.skips_dead })
            }
            Next::Pause { wait } => {
                self.paused = Some(self.paused.flatten().max(wait));
                self.items[token.0].fate = Fate::Open;
                return;
            }
        };
        let blocks = matches!(&fate, Fate::Parked(parking) if parking.blocks_its_aggregate());
        self.items[token.0].fate = fate;
        if blocks {
            for index in core::mem::take(&mut self.chains[chain]) {
                let attempts = self.items[index].attempts;
                self.items[index].fate = Fate::Parked(behind(attempts));
            }
        } else if !self.chains[chain].is_empty() {
            self.ready.push_back(chain);
        }
    }

    /// The step that says what was done; `None`: nothing changes.
    ///
    /// To be asked when [`is_over`](Self::is_over). After a pause the lane moves up to the last message that was
    /// dealt with; what was not tried before that one is parked, to be tried at once.
    #[must_use]
    pub fn settlement(self, fence: Fence) -> Option<Settlement> {
        let fresh = |item: &&Item| !item.was_parked;
        let is_open = |item: &Item| matches!(item.fate, Fate::Open | Fate::InFlight);
        let last_dealt = self
            .items
            .iter()
            .filter(fresh)
            .filter(|item| !is_open(item))
            .map(|item| item.place)
            .max();
        let is_whole = self.items.iter().filter(fresh).all(|item| !is_open(item));
        let advance = match last_dealt {
            _ if is_whole => Advance::Past(self.end),
            Some(place) => Advance::Through { opened: self.opened, place },
            None => Advance::Stay,
        };
        let changes: Vec<_> = self
            .items
            .into_iter()
            .filter_map(|item| {
                let to = match item.fate {
                    Fate::Parked(to) => to,
                    Fate::Delivered if item.was_parked => Parking::Delivered,
                    Fate::Open | Fate::InFlight
                        if !item.was_parked && Some(item.place) < last_dealt =>
                    {
                        behind(item.attempts)
                    }
                    Fate::Delivered | Fate::Open | Fate::InFlight => return None,
                };
                let (id, aggregate) = (item.message.id, item.message.aggregate);
                Some(ParkChange {
                    place: item.place,
                    id,
                    aggregate,
                    was_parked: item.was_parked,
                    to,
                })
            })
            .collect();
        let stays = match &advance {
            Advance::Past(cursor) => *cursor == self.position.cursor,
            Advance::Stay => true,
            Advance::Through { .. } => false,
        };
        (!stays || !changes.is_empty()).then_some(Settlement {
            from: self.position,
            fence,
            advance,
            changes,
        })
    }
}

/// It waits behind another one, or for a sink that is down, and may be tried at once.
fn behind(attempts: u32) -> Parking {
    Parking::Waiting { attempts, wait: Duration::ZERO, why: String::new() }
}
