//! Lists records by what they mean, a bounded number of rows at a time.

use onceward_core::{Cursor, Digest, Filter, Found, Listed, Page, Status, StoreError, Timestamp};
use rusqlite::{Connection, params, types::ValueRef};

use super::{
    reader::flat,
    rows::{Row, state},
    sealing::Sealing,
    sql,
};

/// How many rows one page looks at, so that a rare status does not hold up other reads.
const MAX_EXAMINED: u32 = 5_000;

/// From which size on a page is full: large answers must not fill the memory.
const MAX_PAGE_BYTES: usize = 64 << 20;

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    now: Timestamp,
    sealing: &Sealing,
) -> Result<Page, StoreError> {
    let mut last = match &filter.after {
        Some(Cursor(text)) => text.parse().map_err(|_| bad_cursor(text))?,
        None => i64::MIN,
    };
    let wanted = Wanted::of(filter);
    let limit = filter.limit.min(Filter::MAX_PAGE) as usize;
    let mut page = Page { listed: Vec::new(), next: None };
    let (mut examined, mut bytes) = (0, 0);
    let mut statement = flat(connection.prepare(wanted.statement()))?;
    let mut rows = flat(statement.query(params![last]))?;
    while let Some(row) = flat(rows.next())? {
        if examined == MAX_EXAMINED || page.listed.len() >= limit || bytes >= MAX_PAGE_BYTES {
            page.next = Some(Cursor(last.to_string()));
            break;
        }
        examined += 1;
        last = flat(row.get(0))?;
        if flat(wanted.may_be(row))? {
            let id = Digest(flat(row.get(1))?);
            let stored = flat(Row::read(row, FIRST_COLUMN_OF_RECORD, now))?;
            let found = stored.decode(&id, sealing)?;
            if wanted.is(&found) {
                bytes += stored.bytes();
                page.listed.push(Listed { id, found });
            }
        }
    }
    Ok(page)
}

const STATE: usize = 2;
const SCOPE: usize = 3;
const OPERATION: usize = 4;
const FIRST_COLUMN_OF_RECORD: usize = 5;

/// A filter in the terms of the columns, and of what they mean.
struct Wanted<'a> {
    filter: &'a Filter,
    scope: Option<String>,
}

impl<'a> Wanted<'a> {
    fn of(filter: &'a Filter) -> Self {
        Self { filter, scope: filter.scope.as_ref().map(ToString::to_string) }
    }

    fn statement(&self) -> &'static str {
        match self.filter.status {
            Some(
                Status::InProgress
                | Status::FailedRetryable
                | Status::Unknown
                | Status::Interrupted,
            ) => sql::LIST_OPEN,
            _ => sql::LIST,
        }
    }

    /// Whether the columns allow it, before the record itself is looked at.
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
