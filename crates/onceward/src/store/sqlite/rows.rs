//! What the driver of SQLite gives and takes.

use onceward_core::{
    Digest, Fence, Note, NoteKind, Record, Started, StoreError, Timestamp, TrailEntry, Ttl,
    wire::{self, WireError},
};
use rusqlite::{Error, types::ValueRef};

use super::sql;
use crate::store::sql::rows::Times;
pub(super) use crate::store::sql::rows::{Expected, Proposal, Row, raise_unreadable, state};

impl Proposal {
    /// The statement that makes this change.
    pub(super) fn statement(&self) -> &'static str {
        match (&self.expected, self.started) {
            (Expected::Nothing { .. }, _) => sql::INSERT,
            (Expected::Fence(_), Started::Now) => sql::CLAIM_AFRESH,
            (Expected::Fence(_), Started::At(_)) => sql::UPDATE,
        }
    }

    pub(super) fn started_at(&self, now: Timestamp) -> i64 {
        match self.started {
            Started::Now => now.unix_micros(),
            Started::At(time) => time.unix_micros(),
        }
    }

    pub(super) fn expires_at(&self, now: Timestamp) -> Option<i64> {
        self.ttl.ends_at(now).map(Timestamp::unix_micros)
    }
}

/// The columns of a row, as a driver gives them that checks their types by itself.
#[cfg(feature = "sqlx")]
pub(super) struct Columns {
    pub(super) fence: Vec<u8>,
    pub(super) started_at: i64,
    pub(super) updated_at: i64,
    pub(super) expires_at: Option<i64>,
    pub(super) body: Vec<u8>,
}

impl Row {
    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    #[cfg(feature = "sqlx")]
    pub(super) fn new(columns: Columns, read_at: Timestamp) -> Self {
        // A fence of another length was not written by this software: it equals no other.
        let fence = Fence::from_random(columns.fence.try_into().unwrap_or_default());
        let times = Times {
            started_at: Timestamp::from_unix_micros(columns.started_at),
            updated_at: Timestamp::from_unix_micros(columns.updated_at),
            expires_at: columns.expires_at.map(Timestamp::from_unix_micros),
        };
        Self { fence, times: Some(times), body: columns.body, read_at }
    }

    /// Takes the columns `fence, started_at, updated_at, expires_at, body`, which begin at `first`.
    pub(super) fn read(
        row: &rusqlite::Row<'_>,
        first: usize,
        read_at: Timestamp,
    ) -> Result<Self, Error> {
        let fence = Fence::from_random(row.get(first)?);
        let body = match row.get_ref(first + 4)? {
            ValueRef::Blob(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        Ok(Self { fence, times: times(row, first + 1)?, body, read_at })
    }
}

/// `None` if the columns hold something else than times.
fn times(row: &rusqlite::Row<'_>, first: usize) -> Result<Option<Times>, Error> {
    let time = |index| row.get_ref(index).map(|value| value.as_i64().ok());
    let expires_at = match row.get_ref(first + 2)? {
        ValueRef::Null => Some(None),
        value => value.as_i64().ok().map(Some),
    };
    let (started_at, updated_at) = (time(first)?, time(first + 1)?);
    let (Some(started_at), Some(updated_at), Some(expires_at)) =
        (started_at, updated_at, expires_at)
    else {
        return Ok(None);
    };
    Ok(Some(Times {
        started_at: Timestamp::from_unix_micros(started_at),
        updated_at: Timestamp::from_unix_micros(updated_at),
        expires_at: expires_at.map(Timestamp::from_unix_micros),
    }))
}

/// What the body of an ended row says, for a sweep: its times no longer matter, and what is sealed in
/// it need not be opened to be deleted.
pub(super) fn read_ended(id: &Digest, fence: Fence, body: &[u8]) -> Result<Record, WireError> {
    let started = Started::At(Timestamp::from_unix_micros(0));
    wire::decode(id, body, wire::Plain { fence, started, ttl: Ttl::Never })
}

/// Takes the columns of a trail entry.
pub(super) fn read_entry(row: &rusqlite::Row<'_>) -> Result<Result<TrailEntry, StoreError>, Error> {
    let kind = row.get_ref(1)?.as_str()?;
    let Some(kind) = NoteKind::ALL.into_iter().find(|known| known.as_str() == kind) else {
        return Ok(Err(StoreError::Newer(format!(
            "the trail has an entry of kind {kind:?}; finish the upgrade of this process"
        ))));
    };
    Ok(Ok(TrailEntry {
        at: Timestamp::from_unix_micros(row.get(0)?),
        note: Note {
            kind,
            execution: onceward_core::Execution::from_bytes(row.get(2)?),
            actor: row.get(3)?,
            reason: row.get(4)?,
        },
    }))
}
