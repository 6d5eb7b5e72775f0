//! Lists records by what they mean, a bounded number of rows at a time.

use onceward_core::{Cursor, Digest, Filter, Found, Listed, Page, Status, StoreError, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, types::ValueRef};

use super::{
    places::{Finder, IndexPosition, Plan, Reached},
    reader::flat,
    rows::{Row, state},
    sql,
};
use crate::store::sql::codec::Codec;

/// How many rows one page looks at, so that a rare status does not hold up other reads.
const MAX_EXAMINED: u32 = 5_000;

/// From which size on a page is full: large answers must not fill the memory.
const MAX_PAGE_BYTES: usize = 64 << 20;

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    now: Timestamp,
    codec: &Codec,
) -> Result<Page, StoreError> {
    let mut last = match &filter.after {
        Some(Cursor(text)) => place_of(text).ok_or_else(|| bad_cursor(text))?,
        None => IndexPosition::start(filter.order),
    };
    let limit = filter.limit.clamp(1, Filter::MAX_PAGE);
    let plan = Plan::of(filter, now);
    let finder = Finder { connection, filter, now, count: limit + 1 };
    let mut examiner = Examiner::new(connection, filter, now, codec)?;
    let mut page = Page { listed: Vec::new(), next: None };
    loop {
        let batch = flat(finder.behind(&plan, last))?;
        let is_short = batch.places.len() < finder.count as usize;
        for place in batch.places {
            if page.listed.len() >= limit as usize || examiner.is_tired() {
                page.next = Some(cursor(last));
                return Ok(page);
            }
            last = place;
            page.listed.extend(examiner.examine(place.seq)?);
        }
        match batch.reached {
            Reached::End => return Ok(page),
            Reached::IndexPosition(place) => last = place,
        }
        // The index was asked for as long as one page may take.
        if is_short {
            page.next = Some(cursor(last));
            return Ok(page);
        }
    }
}

fn cursor(place: IndexPosition) -> Cursor {
    Cursor(format!("{}.{}", place.time, place.seq))
}

fn place_of(text: &str) -> Option<IndexPosition> {
    let (time, seq) = text.split_once('.')?;
    Some(IndexPosition { time: time.parse().ok()?, seq: seq.parse().ok()? })
}

/// Reads rows and keeps those that are wanted.
struct Examiner<'a> {
    row: CachedStatement<'a>,
    wanted: ListFilter<'a>,
    now: Timestamp,
    codec: &'a Codec,
    examined: u32,
    bytes: usize,
}

impl<'a> Examiner<'a> {
    fn new(
        connection: &'a Connection,
        filter: &'a Filter,
        now: Timestamp,
        codec: &'a Codec,
    ) -> Result<Self, StoreError> {
        let row = flat(connection.prepare_cached(sql::LIST_ROW))?;
        Ok(Self { row, wanted: ListFilter::of(filter), now, codec, examined: 0, bytes: 0 })
    }

    /// Whether it has seen enough for one page.
    fn is_tired(&self) -> bool {
        self.examined >= MAX_EXAMINED || self.bytes >= MAX_PAGE_BYTES
    }

    fn examine(&mut self, seq: i64) -> Result<Option<Listed>, StoreError> {
        self.examined += 1;
        let wanted = &self.wanted;
        let read = self.row.query_row([seq], |row| {
            if !wanted.may_be(row)? {
                return Ok(None);
            }
            Ok(Some((Digest(row.get(0)?), Row::read(row, FIRST_COLUMN_OF_RECORD, self.now)?)))
        });
        // A row that is gone by now is not listed.
        let Some((id, row)) = flat(read.optional())?.flatten() else { return Ok(None) };
        let found = row.look(&id, self.codec)?;
        if !wanted.is(&found) {
            return Ok(None);
        }
        self.bytes += row.bytes();
        Ok(Some(Listed { id, found }))
    }
}

const STATE: usize = 1;
const SCOPE: usize = 2;
const OPERATION: usize = 3;
const FIRST_COLUMN_OF_RECORD: usize = 4;

/// A filter in the terms of the columns, and of what they mean.
struct ListFilter<'a> {
    filter: &'a Filter,
    scope: Option<String>,
}

impl<'a> ListFilter<'a> {
    fn of(filter: &'a Filter) -> Self {
        Self { filter, scope: filter.scope.as_ref().map(ToString::to_string) }
    }

    /// Whether the columns allow it, before the record itself is decoded.
    fn may_be(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
        let is = |column, wanted: Option<&str>| -> rusqlite::Result<bool> {
            let text = row.get_ref(column)?;
            Ok(wanted.is_none_or(|wanted| text == ValueRef::Text(wanted.as_bytes())))
        };
        let operation = self.filter.operation.as_ref().map(onceward_core::OperationName::as_str);
        let may_mean = match self.filter.status {
            Some(Status::Succeeded) => Some(state::SUCCEEDED),
            Some(Status::FailedFinal) => Some(state::FAILED_FINAL),
            Some(Status::Released) => Some(state::RELEASED),
            _ => None,
        };
        let state = row.get_ref(STATE)?;
        Ok(may_mean.is_none_or(|number| state == ValueRef::Integer(number))
            && is(SCOPE, self.scope.as_deref())?
            && is(OPERATION, operation)?)
    }

    /// Whether it means what is wanted. What cannot be read counts as unknown, however old.
    fn is(&self, found: &Found) -> bool {
        let Filter { status, older, .. } = self.filter;
        match found {
            Found::Record(stored) => {
                status.is_none_or(|status| stored.status() == status)
                    && older.is_none_or(|older| stored.age() >= older)
            }
            Found::Unreadable { .. } => status.is_none_or(|status| status == Status::Unknown),
            Found::Nothing => false,
        }
    }
}

fn bad_cursor(text: &str) -> StoreError {
    StoreError::Unusable(format!(
        "{text:?} is not a place in this store's list; nothing is wrong with the data: list again \
         from the beginning"
    ))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
