//! Lists records by what they mean, a bounded number of rows at a time.
//!
//! The order is that of `sweep_after`, which is the time of the claim plus the same lengths for all
//! records on the same terms. A page looks at a window of rows; what is wanted of them is chosen by the
//! server as far as columns tell, and by what the record means for the rest.

use std::time::SystemTime;

use onceward_core::{
    Cursor, Digest, Filter, Found, Listed, OperationId, Order, Page, Status, StoreError, Timestamp,
};
use tokio_postgres::types::{ToSql, Type};

use super::{
    error::store_error,
    link::Link,
    rows::{Interval, Read, micros, system_time, timestamp},
    sql::LOOKED_AT,
};
use crate::store::sql::codec::Codec;

/// How many rows one page looks at.
const WINDOW: i64 = 20_000;

/// From which size on a page is full: large answers must not fill the memory.
const MAX_PAGE_BYTES: i64 = 64 << 20;

/// A place in the order of the list.
#[derive(Clone, Copy)]
pub(super) struct ListPosition {
    pub(super) at: SystemTime,
    id: Digest,
}

impl ListPosition {
    pub(super) fn cursor(self) -> Cursor {
        Cursor(format!("{}.{}", timestamp(self.at).unix_micros(), self.id))
    }

    /// The place of a cursor.
    pub(super) fn read(text: &str) -> Result<Self, StoreError> {
        let parsed = || {
            let (micros, id) = text.split_once('.')?;
            let at = system_time(Timestamp::from_unix_micros(micros.parse().ok()?));
            Some(Self { at, id: id.parse().ok()? })
        };
        parsed().ok_or_else(|| {
            StoreError::Unusable(format!("{text:?} is not where a page of this store ended"))
        })
    }

    pub(super) fn id(self) -> Vec<u8> {
        self.id.0.to_vec()
    }
}

/// What is listed, and from where.
struct Plan<'a> {
    filter: &'a Filter,
    from: &'static str,
    /// `>` and `ASC`, or the other way round.
    behind: &'static str,
    until: &'static str,
    direction: &'static str,
}

impl<'a> Plan<'a> {
    fn of(filter: &'a Filter) -> Self {
        let is_open = matches!(
            filter.status,
            Some(
                Status::InProgress
                    | Status::Interrupted
                    | Status::Unknown
                    | Status::FailedRetryable
            )
        );
        let (behind, until, direction) = match filter.order {
            Order::OldestFirst => ("OPERATOR(pg_catalog.>)", "OPERATOR(pg_catalog.<=)", "ASC"),
            Order::NewestFirst => ("OPERATOR(pg_catalog.<)", "OPERATOR(pg_catalog.>=)", "DESC"),
        };
        Self {
            filter,
            from: match is_open {
                true => {
                    "onceward.open o JOIN onceward.record r ON r.digest OPERATOR(pg_catalog.=) o.digest"
                }
                false => "onceward.record r",
            },
            behind,
            until,
            direction,
        }
    }

    /// Where the window of this page ends; `None`: with the last row.
    async fn end(
        &self,
        link: &Link,
        after: Option<ListPosition>,
    ) -> Result<Option<ListPosition>, StoreError> {
        let Self { from, behind, direction, .. } = self;
        let text = format!(
            "SELECT r.sweep_after, r.digest FROM {from}
             WHERE $1::pg_catalog.timestamptz IS NULL OR (r.sweep_after, r.digest) {behind} ($1, $2)
             ORDER BY r.sweep_after {direction}, r.digest {direction} OFFSET {} LIMIT 1",
            WINDOW - 1
        );
        let (at, id) = (after.map(|place| place.at), after.map(ListPosition::id));
        let rows = link.ask(&text, &[(&at, Type::TIMESTAMPTZ), (&id, Type::BYTEA)]).await?;
        rows.first().map(|row| place(row, 0)).transpose()
    }

    /// The rows of the window that are wanted as far as the server can tell, one more than the page
    /// takes.
    async fn rows(
        &self,
        link: &Link,
        (after, end): (Option<ListPosition>, Option<ListPosition>),
        limit: i64,
    ) -> Result<Vec<(Read, ListPosition)>, StoreError> {
        let Self { filter, from, behind, until, direction } = self;
        let text = format!(
            "SELECT * FROM (
                SELECT {LOOKED_AT}, r.sweep_after,
                    pg_catalog.sum(pg_catalog.length(r.body))
                        OVER (ORDER BY r.sweep_after {direction}, r.digest {direction})
                        OPERATOR(pg_catalog.-) pg_catalog.length(r.body) AS bytes_before
                FROM {from}
                WHERE ($1::pg_catalog.timestamptz IS NULL
                        OR (r.sweep_after, r.digest) {behind} ($1, $2))
                    AND ($3::pg_catalog.timestamptz IS NULL
                        OR (r.sweep_after, r.digest) {until} ($3, $4))
                    AND ($5::pg_catalog.text IS NULL OR r.scope OPERATOR(pg_catalog.=) $5)
                    AND ($6::pg_catalog.text IS NULL OR r.operation OPERATOR(pg_catalog.=) $6)
                    AND ($7::pg_catalog.bytea IS NULL
                        OR position($7 IN r.body) OPERATOR(pg_catalog.>) 0)
                    AND ($8::pg_catalog.interval IS NULL OR r.started_at OPERATOR(pg_catalog.<=)
                        (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) $8))
                    AND ($9::pg_catalog.bytea IS NULL OR r.digest OPERATOR(pg_catalog.=) $9)
                ORDER BY r.sweep_after {direction}, r.digest {direction} LIMIT $10
             ) page WHERE bytes_before OPERATOR(pg_catalog.<) {MAX_PAGE_BYTES}"
        );
        let (after_at, after_id) = (after.map(|place| place.at), after.map(ListPosition::id));
        let (end_at, end_id) = (end.map(|place| place.at), end.map(ListPosition::id));
        let scope = filter.scope.as_ref().map(ToString::to_string);
        let operation = filter.operation.as_ref().map(|name| name.as_str().to_owned());
        let key = filter.key.as_ref().map(|key| key.digest().0.to_vec());
        let older = filter.older.map(|older| Interval(micros(older)));
        let exactly = exactly(filter).map(|id| id.0.to_vec());
        let parameters: [(&(dyn ToSql + Sync), Type); 10] = [
            (&after_at, Type::TIMESTAMPTZ),
            (&after_id, Type::BYTEA),
            (&end_at, Type::TIMESTAMPTZ),
            (&end_id, Type::BYTEA),
            (&scope, Type::TEXT),
            (&operation, Type::TEXT),
            (&key, Type::BYTEA),
            (&older, Type::INTERVAL),
            (&exactly, Type::BYTEA),
            (&limit, Type::INT8),
        ];
        let rows = link.ask(&text, &parameters).await?;
        rows.iter()
            .map(|row| {
                let read = Read::of(row)?;
                let at = row.try_get(10).map_err(|error| store_error(&error))?;
                let place = ListPosition { at, id: read.id };
                Ok((read, place))
            })
            .collect()
    }
}

/// Where a page ends that looks at all records, oldest first; `None`: with the last row.
pub(super) async fn window_end(
    link: &Link,
    after: Option<ListPosition>,
) -> Result<Option<ListPosition>, StoreError> {
    Plan::of(&Filter::default()).end(link, after).await
}

fn place(row: &tokio_postgres::Row, first: usize) -> Result<ListPosition, StoreError> {
    let taken = row.try_get(first).and_then(|at| Ok((at, row.try_get::<_, Vec<u8>>(first + 1)?)));
    let (at, id) = taken.map_err(|error| store_error(&error))?;
    Ok(ListPosition { at, id: Digest(id.try_into().unwrap_or_default()) })
}

/// The digest, where scope, operation and key are given.
fn exactly(filter: &Filter) -> Option<Digest> {
    let (scope, operation, key) =
        (filter.scope.clone()?, filter.operation.clone()?, filter.key.clone()?);
    Some(OperationId::new(scope, operation, key).digest())
}

pub(super) async fn list(link: &Link, filter: &Filter, codec: &Codec) -> Result<Page, StoreError> {
    let after = filter.after.as_ref().map(|Cursor(text)| ListPosition::read(text)).transpose()?;
    let plan = Plan::of(filter);
    let limit = filter.limit.clamp(1, Filter::MAX_PAGE);
    // One record needs no window.
    let end = match exactly(filter) {
        Some(_) => None,
        None => plan.end(link, after).await?,
    };
    let rows = plan.rows(link, (after, end), i64::from(limit) + 1).await?;
    let is_full = rows.len() > limit as usize;
    let mut page = Page { listed: Vec::new(), next: end.map(ListPosition::cursor) };
    let mut last = after;
    for (read, place) in rows.into_iter().take(limit as usize) {
        last = Some(place);
        let found = read.row.look(&read.id, codec)?;
        if is_wanted(filter, &found) {
            page.listed.push(Listed { id: read.id, found });
        }
    }
    if is_full {
        page.next = last.map(ListPosition::cursor);
    }
    Ok(page)
}

/// A list without a status shows what cannot be read; so does a list of unknown outcomes.
fn is_wanted(filter: &Filter, found: &Found) -> bool {
    match found {
        Found::Record(stored) => filter.matches(stored),
        Found::Unreadable { .. } => {
            filter.key.is_none() && filter.status.is_none_or(|status| status == Status::Unknown)
        }
        Found::Nothing => false,
    }
}
