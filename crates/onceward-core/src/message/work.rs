//! What a relay does with one page of a lane.
//!
//! Messages of one aggregate are a chain: one at a time, in their order. Chains go side by side. A message that
//! fails parks itself and the rest of its chain. The lane's cursor passes a message only when it was delivered
//! or parked.

use alloc::{
    collections::{BTreeMap, BinaryHeap, VecDeque},
    string::String,
    sync::Arc,
    vec::Vec,
};
use core::{cmp::Reverse, time::Duration};

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

/// What dead letters mean for later messages of their aggregates.
///
/// ```
/// use onceward_core::message::DeadLetters;
///
/// assert_eq!(DeadLetters::default(), DeadLetters::Block);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadLetters {
    /// Later ones wait until an operator sends the dead one again or discards it.
    #[default]
    Block,
    /// Later ones go on: their order has a gap.
    Skip,
}

/// Why a message is dead whose topic no sink takes.
///
/// ```
/// assert_eq!(onceward_core::message::NO_SINK, "no sink takes this topic");
/// ```
pub const NO_SINK: &str = "no sink takes this topic";

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
/// use core::time::Duration;
/// use onceward_core::{Fence, message::*};
///
/// /// Delivers a whole page to a sink that takes everything.
/// fn deliver(position: Position, page: Page, fence: Fence) -> Option<Settlement> {
///     let mut work = LaneWork::new(position, page, DeadLetters::Block, |_| TopicRule::Send);
///     while let Some(token) = work.next(Duration::ZERO) {
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
    dead_letters: DeadLetters,
    items: Vec<Item>,
    /// Messages of one aggregate that may be sent, in their order.
    chains: Vec<VecDeque<usize>>,
    /// The next message of each chain that may be sent now, and the chain: the earliest one goes first.
    ready: BinaryHeap<Reverse<(usize, usize)>>,
    in_flight: usize,
    paused: Option<Option<Duration>>,
    is_closed: bool,
}

#[derive(Clone, Debug)]
struct Item {
    place: Place,
    message: Arc<Message>,
    attempts: u32,
    was_parked: bool,
    chain: usize,
    /// No sink takes its topic.
    is_refused: bool,
    /// The sink, or the rules of its retries, spoke about this very message.
    was_tried: bool,
    progress: Progress,
}

/// How far a message of the page has come.
#[derive(Clone, Debug, PartialEq)]
enum Progress {
    /// Nothing was done with it.
    Open,
    /// It is being sent.
    InFlight,
    /// It is delivered, or for other sinks.
    Delivered,
    /// It is parked, or its entry becomes this.
    Parked(Parking),
}

impl LaneWork {
    /// Begins a page.
    pub fn new(
        position: Position,
        page: Page,
        dead_letters: DeadLetters,
        rule: impl Fn(&Topic) -> TopicRule,
    ) -> Self {
        let Page { read_at, fresh, due, opened, end, is_full } = page;
        let due = due.into_iter().map(|due| (due.place, due.message, Some(due.attempts), false));
        let fresh = fresh.into_iter().map(|one| (one.place, one.message, None, one.is_blocked));
        let mut items = Vec::with_capacity(due.len() + fresh.len());
        let mut chains: Vec<VecDeque<usize>> = Vec::new();
        let mut chain_of: BTreeMap<Aggregate, usize> = BTreeMap::new();
        for (place, message, attempts, is_blocked) in due.chain(fresh) {
            let chain = *chain_of.entry(message.aggregate.clone()).or_insert(chains.len());
            if chain == chains.len() {
                chains.push(VecDeque::new());
            }
            let rule = rule(&message.topic);
            let was_parked = attempts.is_some();
            let progress = before_sending(&message, rule, was_parked, is_blocked, read_at);
            if progress == Progress::Open {
                chains[chain].push_back(items.len());
            }
            items.push(Item {
                place,
                message: Arc::new(message),
                attempts: attempts.unwrap_or(0),
                was_parked,
                chain,
                is_refused: rule == TopicRule::Refuse,
                was_tried: false,
                progress,
            });
        }
        let fronts = chains.iter().enumerate();
        let ready = fronts
            .filter_map(|(chain, waiting)| waiting.front().map(|first| Reverse((*first, chain))))
            .collect();
        Self {
            position,
            opened,
            end,
            read_at,
            is_full,
            dead_letters,
            items,
            chains,
            ready,
            in_flight: 0,
            paused: None,
            is_closed: false,
        }
    }

    /// The next message to send, so long after the page was read; until all are sent, the lane is paused or the
    /// page is closed. The earliest goes first, so that a page that stops half-way leaves few before the last one.
    ///
    /// Nothing is given while the message before it in its aggregate is in flight: `None` may mean
    /// "not now". See [`is_over`](Self::is_over).
    pub fn next(&mut self, elapsed: Duration) -> Option<Token> {
        let now = self.read_at.plus(elapsed);
        while self.paused.is_none() && !self.is_closed {
            let Reverse((index, chain)) = self.ready.pop()?;
            self.chains[chain].pop_front();
            let item = &mut self.items[index];
            if is_expired(&item.message, now) {
                item.progress = Progress::Parked(Parking::Expired);
            } else if item.is_refused {
                let attempts = item.attempts;
                self.park(index, self.dead(attempts, NO_SINK.into()));
            } else {
                item.progress = Progress::InFlight;
                self.in_flight += 1;
                return Some(Token(index));
            }
            self.make_ready(chain);
        }
        None
    }

    fn make_ready(&mut self, chain: usize) {
        self.ready.extend(self.chains[chain].front().map(|next| Reverse((*next, chain))));
    }

    /// Ends the page early: no more messages are given, and what is left of it belongs to the next page.
    ///
    /// A page that takes long is to be settled before it is over: else a relay that dies again and again before
    /// the end of a page would send the same messages for ever.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.is_full = true;
    }

    /// Whether nothing is in flight and nothing more will be given.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_stopped = self.paused.is_some() || self.is_closed;
        self.in_flight == 0 && (is_stopped || self.ready.is_empty())
    }

    /// The message of a token.
    #[must_use]
    pub fn message(&self, token: Token) -> &Message {
        &self.items[token.0].message
    }

    /// The same for an attempt that outlives this borrow: no copy is made.
    #[must_use]
    pub fn shared_message(&self, token: Token) -> Arc<Message> {
        self.items[token.0].message.clone()
    }

    /// How many attempts of it have failed before.
    #[must_use]
    pub fn attempts(&self, token: Token) -> u32 {
        self.items[token.0].attempts
    }

    /// How long the lane is to rest, if the sink is down; `Some(None)`: the sink did not say.
    #[must_use]
    pub fn pause(&self) -> Option<Option<Duration>> {
        self.paused
    }

    /// Whether the queue had more than this page, or the page was [closed](Self::close) early.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes what became of a message that [`next`](Self::next) gave.
    pub fn sent(&mut self, token: Token, next: Next) {
        let Token(index) = token;
        self.in_flight = self.in_flight.saturating_sub(1);
        let failed = self.items[index].attempts;
        let attempts = failed.saturating_add(1);
        self.items[index].was_tried = true;
        match next {
            Next::Delivered => self.items[index].progress = Progress::Delivered,
            Next::Park { wait, why } => {
                self.park(index, Parking::Waiting { attempts, wait, why });
            }
            Next::Postpone { wait, why } => {
                self.park(index, Parking::Waiting { attempts: failed, wait, why });
            }
            Next::Hold { why } => self.park(index, Parking::Held { attempts, why }),
            Next::Die { why } => self.park(index, self.dead(attempts, why)),
            Next::GiveWay { attempts, wait, why } => {
                self.park(index, Parking::Waiting { attempts, wait, why });
                self.paused = Some(self.paused.flatten());
            }
            Next::Pause { wait } => {
                self.paused = Some(self.paused.flatten().max(wait));
                self.items[index].was_tried = false;
                self.items[index].progress = Progress::Open;
            }
        }
        self.make_ready(self.items[index].chain);
    }

    fn dead(&self, attempts: u32, why: String) -> Parking {
        let is_skipped = self.dead_letters == DeadLetters::Skip;
        Parking::Dead { attempts, why, is_skipped }
    }

    /// Parks a message, and behind it the rest of its chain. Entries of parked ones stay as they are.
    fn park(&mut self, index: usize, parking: Parking) {
        let item = &mut self.items[index];
        if parking.blocks_its_aggregate() {
            for later in core::mem::take(&mut self.chains[item.chain]) {
                if !self.items[later].was_parked {
                    self.items[later].progress = Progress::Parked(behind());
                }
            }
        }
        self.items[index].progress = Progress::Parked(parking);
    }

    /// The step that says what was done; `None`: nothing changes.
    ///
    /// To be asked when [`is_over`](Self::is_over). After a pause or an early end the lane moves up to the last message that was
    /// tried, and what is open before that one is parked, to be tried at once. What comes after it stays
    /// where it is, so that a lane whose sink is down parks no more and more.
    #[must_use]
    pub fn settlement(self, fence: Fence) -> Option<Settlement> {
        let is_open = |item: &Item| matches!(item.progress, Progress::Open | Progress::InFlight);
        let fresh = || self.items.iter().filter(|item| !item.was_parked);
        let last_tried = fresh().filter(|item| item.was_tried).map(|item| item.place).max();
        let is_whole = !fresh().any(is_open);
        let advance = match last_tried {
            _ if is_whole => Advance::Past(self.end),
            Some(place) => Advance::Through { opened: self.opened, place },
            None => Advance::Stay,
        };
        let is_passed = |place: Place| is_whole || Some(place) <= last_tried;
        let change = |item: Item| {
            let to = match item.progress {
                _ if !item.was_parked && !is_passed(item.place) => return None,
                Progress::Parked(to) => to,
                Progress::Delivered if item.was_parked => Parking::Delivered,
                Progress::Open | Progress::InFlight if !item.was_parked => behind(),
                Progress::Delivered | Progress::Open | Progress::InFlight => return None,
            };
            let Item { place, message, was_parked, .. } = item;
            let (id, aggregate) = (message.id, message.aggregate.clone());
            Some(ParkChange { place, id, aggregate, was_parked, to })
        };
        let changes: Vec<_> = self.items.into_iter().filter_map(change).collect();
        let is_moved = match &advance {
            Advance::Past(cursor) => *cursor != self.position.cursor,
            Advance::Through { .. } => true,
            Advance::Stay => false,
        };
        let settlement = Settlement { from: self.position, fence, advance, changes };
        (is_moved || !settlement.changes.is_empty()).then_some(settlement)
    }
}

/// What is known of a message before it is its turn.
fn before_sending(
    message: &Message,
    rule: TopicRule,
    was_parked: bool,
    is_blocked: bool,
    now: Timestamp,
) -> Progress {
    match rule {
        TopicRule::Pass if was_parked => Progress::Parked(Parking::Delivered),
        TopicRule::Pass => Progress::Delivered,
        _ if is_expired(message, now) => Progress::Parked(Parking::Expired),
        _ if message.not_before.is_some_and(|from| from > now) => {
            Progress::Parked(Parking::Scheduled)
        }
        _ if is_blocked => Progress::Parked(behind()),
        _ => Progress::Open,
    }
}

fn is_expired(message: &Message, now: Timestamp) -> bool {
    message.expires_at.is_some_and(|until| until <= now)
}

/// It waits behind another one, or for a sink that is down, and may be tried at once.
fn behind() -> Parking {
    Parking::Waiting { attempts: 0, wait: Duration::ZERO, why: String::new() }
}
