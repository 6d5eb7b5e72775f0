//! Where the rows of a list are: which index a list reads, and in which steps.
//!
//! A place is found in an index alone; the list reads the row then and looks whether it is what
//! is wanted. A row that changes or vanishes in between is shown as it is, or not at all.

use onceward_core::{Digest, Filter, OperationId, Order, Status, Timestamp};
use rusqlite::{Connection, Params, params};

use super::{
    groups::{self, Group, Span},
    rows::state,
    sql::places as sql,
};

/// A place in the order of an index: by its time, then by the number of the row. Where the order is
/// that of the rows, the time is the number too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexPosition {
    pub(super) time: i64,
    pub(super) seq: i64,
}

impl IndexPosition {
    const FIRST: Self = Self { time: i64::MIN, seq: i64::MIN };
    const LAST: Self = Self { time: i64::MAX, seq: i64::MAX };

    pub(super) fn of_row(seq: i64) -> Self {
        Self { time: seq, seq }
    }

    /// Before everything in this order.
    pub(super) fn start(order: Order) -> Self {
        match order {
            Order::OldestFirst => Self::FIRST,
            Order::NewestFirst => Self::LAST,
        }
    }

    /// Whether it comes behind the other one in this order.
    pub(super) fn is_behind(self, other: Self, order: Order) -> bool {
        match order {
            Order::OldestFirst => self > other,
            Order::NewestFirst => self < other,
        }
    }
}

/// Some places in order, and how far the index was gone through for them.
pub(super) struct Batch {
    pub(super) places: Vec<IndexPosition>,
    pub(super) reached: Reached,
}

/// How far an index was gone through.
pub(super) enum Reached {
    /// Nothing is behind it.
    End,
    /// The next batch begins behind this place.
    IndexPosition(IndexPosition),
}

/// The index that knows best what a filter asks for.
pub(super) enum Plan {
    /// All parts of its identity are known.
    Operation(Digest),
    /// Its key is known: the scopes and operations that may have used it are looked up.
    Key,
    /// Rare states, each in the order of the rows.
    States(&'static [i64]),
    /// What is over, by the time at which it was.
    Expired,
    /// Of an operation name or of a scope.
    Group,
    /// What is old enough, by the time of the first claim.
    Older(Timestamp),
    /// All rows.
    All,
}

impl Plan {
    pub(super) fn of(filter: &Filter, now: Timestamp) -> Self {
        let Filter { status, scope, operation, key, older, .. } = filter;
        match (key, scope, operation) {
            (Some(key), Some(scope), Some(operation)) => {
                let id = OperationId::new(scope.clone(), operation.clone(), key.clone());
                return Self::Operation(id.digest());
            }
            (Some(_), ..) => return Self::Key,
            _ => {}
        }
        match status {
            Some(Status::InProgress | Status::Interrupted) => Self::States(&[state::IN_PROGRESS]),
            Some(Status::FailedRetryable) => Self::States(&[state::FAILED_RETRYABLE]),
            // Also a claim past its lease, and a failure that is too old to be repeated.
            Some(Status::Unknown) => {
                Self::States(&[state::IN_PROGRESS, state::UNKNOWN, state::FAILED_RETRYABLE])
            }
            Some(Status::FailedFinal) => Self::States(&[state::FAILED_FINAL]),
            Some(Status::Released) => Self::States(&[state::RELEASED]),
            Some(Status::Expired | Status::ClockSuspect) => Self::Expired,
            Some(Status::Succeeded) | None if scope.is_some() || operation.is_some() => Self::Group,
            Some(Status::Succeeded) | None => match older {
                Some(older) if !older.is_zero() => Self::Older(now.minus(*older)),
                _ => Self::All,
            },
        }
    }
}

/// Finds places for one page.
pub(super) struct Finder<'a> {
    pub(super) connection: &'a Connection,
    pub(super) filter: &'a Filter,
    pub(super) now: Timestamp,
    /// How many places are worth looking for at once.
    pub(super) count: u32,
}

impl Finder<'_> {
    /// The places behind this one, in the order that was asked for.
    pub(super) fn behind(&self, plan: &Plan, last: IndexPosition) -> rusqlite::Result<Batch> {
        let order = self.filter.order;
        let pick = |oldest, newest| match order {
            Order::OldestFirst => oldest,
            Order::NewestFirst => newest,
        };
        match plan {
            Plan::Operation(id) => self.one(id, last),
            Plan::Key => groups::places_of_key(self, last),
            Plan::Group => groups::places(self, &Group::of(self.filter), last),
            Plan::States(states) => {
                let statement = pick(sql::OF_STATE, sql::OF_STATE_NEWEST);
                let mut places = Vec::new();
                for state in *states {
                    places.extend(self.ask(statement, params![last.seq, self.count, state])?);
                }
                Ok(self.merged(places))
            }
            Plan::Expired => self.by_time(sql::EXPIRED, sql::EXPIRED_NEWEST, last, self.now),
            Plan::Older(latest) => self.by_time(sql::OLDER, sql::OLDER_NEWEST, last, *latest),
            Plan::All => {
                let statement = pick(sql::ALL, sql::ALL_NEWEST);
                Ok(self.merged(self.ask(statement, params![last.seq, self.count])?))
            }
        }
    }

    fn one(&self, id: &Digest, last: IndexPosition) -> rusqlite::Result<Batch> {
        let mut places = Vec::new();
        if let Some(seq) = groups::row_of(self.connection, id)? {
            places.push(IndexPosition::of_row(seq));
        }
        places.retain(|place| place.is_behind(last, self.filter.order));
        Ok(Batch { places, reached: Reached::End })
    }

    fn by_time(
        &self,
        oldest: &str,
        newest: &str,
        last: IndexPosition,
        latest: Timestamp,
    ) -> rusqlite::Result<Batch> {
        let latest = latest.unix_micros();
        let places = match self.filter.order {
            Order::OldestFirst => {
                self.ask(oldest, params![last.time, last.seq, self.count, latest])?
            }
            Order::NewestFirst => {
                let IndexPosition { time, seq } =
                    last.min(IndexPosition { time: latest, seq: i64::MAX });
                self.ask(newest, params![time, seq, self.count])?
            }
        };
        Ok(self.merged(places))
    }

    /// The first places of several lists, each of which has as many as are looked for, or all.
    fn merged(&self, mut places: Vec<IndexPosition>) -> Batch {
        let found = places.len();
        sort(&mut places, self.filter.order);
        places.truncate(self.count as usize);
        let reached = match places.last() {
            Some(last) if found >= self.count as usize => Reached::IndexPosition(*last),
            _ => Reached::End,
        };
        Batch { places, reached }
    }

    fn ask(
        &self,
        statement: &str,
        parameters: impl Params,
    ) -> rusqlite::Result<Vec<IndexPosition>> {
        let mut statement = self.connection.prepare_cached(statement)?;
        let found = statement.query_map(parameters, |row| {
            Ok(IndexPosition { time: row.get(0)?, seq: row.get(1)? })
        })?;
        found.collect()
    }

    /// The rows that a walk in this order has gone through.
    pub(super) fn span(&self, last: IndexPosition) -> Span {
        Span::behind(last.seq, self.filter.order)
    }
}

pub(super) fn sort(places: &mut [IndexPosition], order: Order) {
    match order {
        Order::OldestFirst => places.sort_unstable(),
        Order::NewestFirst => places.sort_unstable_by(|one, other| other.cmp(one)),
    }
}
