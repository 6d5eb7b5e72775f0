//! A row and what it means; a proposed change and the columns it becomes.

use onceward_core::{
    Change, Digest, Fence, Found, Note, NoteKind, Record, Started, State, StoreError, Stored,
    Timestamp, TrailEntry, Ttl, Unreadable,
    wire::{self, WireError},
};
use rusqlite::{Error, types::ValueRef};

use super::{sealing::Sealing, sql};
use crate::telemetry;

/// The numbers of the states, as in the schema.
pub(super) mod state {
    pub(in super::super) const IN_PROGRESS: i64 = 0;
    pub(in super::super) const UNKNOWN: i64 = 1;
    pub(in super::super) const FAILED_RETRYABLE: i64 = 2;
    pub(in super::super) const SUCCEEDED: i64 = 3;
    pub(in super::super) const FAILED_FINAL: i64 = 4;
    pub(in super::super) const RELEASED: i64 = 5;
}

fn number_of(state: &State) -> i64 {
    match state {
        State::InProgress => state::IN_PROGRESS,
        State::Succeeded(_) => state::SUCCEEDED,
        State::FailedFinal(_) => state::FAILED_FINAL,
        State::FailedRetryable => state::FAILED_RETRYABLE,
        State::Unknown => state::UNKNOWN,
        State::Released => state::RELEASED,
    }
}

/// A change that owns its bytes: encoded by the caller, so that the writer only writes.
pub(super) struct Proposal {
    pub(super) id: Digest,
    pub(super) fence: Fence,
    pub(super) state: i64,
    pub(super) started: Started,
    pub(super) ttl: Ttl,
    pub(super) body: Vec<u8>,
    pub(super) note: Option<Note>,
    pub(super) is_claim: bool,
    pub(super) over: Over,
}

/// What a proposal expects to be stored.
pub(super) enum Over {
    /// Nothing; these columns are written once, they never change for one digest.
    Nothing { scope: String, operation: String },
    /// A record with this fence.
    Fence(Fence),
}

impl Proposal {
    pub(super) fn of(change: &Change, sealing: &Sealing) -> Self {
        let record = &change.next;
        let over = match change.expected {
            Some(fence) => Over::Fence(fence),
            None => Over::Nothing {
                scope: record.scope.to_string(),
                operation: record.operation.as_str().to_owned(),
            },
        };
        Self {
            id: change.id,
            fence: record.fence,
            state: number_of(&record.state),
            started: record.started,
            ttl: record.ttl,
            body: sealing.encode(&change.id, record),
            note: change.note.clone(),
            is_claim: change.is_claim(),
            over,
        }
    }

    /// The statement that makes this change.
    pub(super) fn statement(&self) -> &'static str {
        match (&self.over, self.started) {
            (Over::Nothing { .. }, _) => sql::INSERT,
            (Over::Fence(_), Started::Now) => sql::CLAIM_AFRESH,
            (Over::Fence(_), Started::At(_)) => sql::UPDATE,
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

/// A record as it lies in the file, decoded by whoever asked for it.
#[derive(Debug)]
pub(super) struct Row {
    fence: Fence,
    times: Option<Times>,
    body: Vec<u8>,
    read_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    started_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
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
        Ok(Self { fence, times: Times::read(row, first + 1)?, body, read_at })
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// What the row means; an unreadable one raises its alarm.
    pub(super) fn decode(&self, id: &Digest, sealing: &Sealing) -> Result<Found, StoreError> {
        let found = self.look(id, sealing)?;
        if let Found::Unreadable { why, .. } = &found {
            raise_unreadable(id, *why);
        }
        Ok(found)
    }

    /// What the row means, for whoever looks at many.
    pub(super) fn look(&self, id: &Digest, sealing: &Sealing) -> Result<Found, StoreError> {
        let record = match self.times {
            Some(times) => self.record(id, times, sealing),
            None => Err(WireError::Damaged),
        };
        match record {
            Ok(stored) => Ok(Found::Record(Box::new(stored))),
            Err(WireError::Newer(version)) => Err(StoreError::Newer(format!(
                "record {id} has format {version}, this software knows {}; it was left alone: \
                 finish the upgrade of this process",
                wire::VERSION
            ))),
            Err(error @ (WireError::Damaged | WireError::Sealed)) => {
                let why = match error {
                    WireError::Sealed => Unreadable::Sealed,
                    _ => Unreadable::Damaged,
                };
                Ok(Found::Unreadable { fence: self.fence, why })
            }
        }
    }

    fn record(&self, id: &Digest, times: Times, sealing: &Sealing) -> Result<Stored, WireError> {
        let plain = wire::Plain {
            fence: self.fence,
            started: Started::At(times.started_at),
            ttl: Ttl::left(times.expires_at, self.read_at),
        };
        let record = sealing.decode(id, &self.body, plain)?;
        Ok(Stored { record, updated_at: times.updated_at, read_at: self.read_at })
    }
}

impl Times {
    /// `None` if the columns hold something else than times.
    fn read(row: &rusqlite::Row<'_>, first: usize) -> Result<Option<Self>, Error> {
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
        Ok(Some(Self {
            started_at: Timestamp::from_unix_micros(started_at),
            updated_at: Timestamp::from_unix_micros(updated_at),
            expires_at: expires_at.map(Timestamp::from_unix_micros),
        }))
    }
}

pub(super) fn raise_unreadable(id: &Digest, why: Unreadable) {
    let (what, until) = match why {
        Unreadable::Sealed => (
            "cannot be opened: it was sealed with a key that is not at hand, or changed by somebody",
            "the right key is there",
        ),
        Unreadable::Damaged => {
            ("does not match its checksum", "its owner settles it or an operator resolves it")
        }
    };
    telemetry::RECORD_UNREADABLE
        .raise(format_args!("record {id} {what}; its outcome counts as unknown until {until}"));
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
