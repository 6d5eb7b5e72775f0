//! A proposed change and the columns it becomes; a row and what it means: the same in every SQL store.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use onceward_core::{Change, Note};
use onceward_core::{
    Digest, Fence, Found, Started, State, StoreError, Stored, Timestamp, Ttl, Unreadable,
    wire::{self, WireError},
};

use super::codec::Codec;
use crate::telemetry;

/// The numbers of the states, as in the schemas.
pub(crate) mod state {
    pub(crate) const IN_PROGRESS: i64 = 0;
    pub(crate) const UNKNOWN: i64 = 1;
    pub(crate) const FAILED_RETRYABLE: i64 = 2;
    pub(crate) const SUCCEEDED: i64 = 3;
    pub(crate) const FAILED_FINAL: i64 = 4;
    pub(crate) const RELEASED: i64 = 5;
}

pub(crate) fn number_of(state: &State) -> i64 {
    match state {
        State::InProgress => state::IN_PROGRESS,
        State::Succeeded(_) => state::SUCCEEDED,
        State::FailedFinal(_) => state::FAILED_FINAL,
        State::FailedRetryable => state::FAILED_RETRYABLE,
        State::Unknown => state::UNKNOWN,
        State::Released => state::RELEASED,
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
/// A change that owns its bytes: encoded by the caller, so that the writer only writes.
pub(crate) struct Proposal {
    pub(crate) id: Digest,
    pub(crate) fence: Fence,
    pub(crate) state: i64,
    #[cfg(feature = "postgres")]
    pub(crate) execution: onceward_core::Execution,
    pub(crate) started: Started,
    pub(crate) ttl: Ttl,
    pub(crate) body: Vec<u8>,
    pub(crate) note: Option<Note>,
    pub(crate) is_claim: bool,
    pub(crate) expected: Expected,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
/// What a proposal expects to be stored.
pub(crate) enum Expected {
    /// Nothing; these columns are written once, they never change for one digest.
    Nothing { scope: String, operation: String },
    /// A record with this fence.
    Fence(Fence),
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Proposal {
    pub(crate) fn of(change: &Change, codec: &Codec) -> Self {
        let record = &change.next;
        let expected = match change.expected {
            Some(fence) => Expected::Fence(fence),
            None => Expected::Nothing {
                scope: record.scope.to_string(),
                operation: record.operation.as_str().to_owned(),
            },
        };
        Self {
            id: change.id,
            fence: record.fence,
            state: number_of(&record.state),
            #[cfg(feature = "postgres")]
            execution: record.execution,
            started: record.started,
            ttl: record.ttl,
            body: codec.encode(&change.id, record),
            note: change.note.clone(),
            is_claim: change.is_claim(),
            expected,
        }
    }
}

/// A record as it is stored; the caller that asked for it decodes it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) fence: Fence,
    /// `None`: the columns hold something else than times.
    pub(crate) times: Option<Times>,
    pub(crate) body: Vec<u8>,
    pub(crate) read_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) started_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Row {
    /// What the row means; an unreadable one raises its alarm.
    pub(crate) fn decode(&self, id: &Digest, codec: &Codec) -> Result<Found, StoreError> {
        let found = self.look(id, codec)?;
        if let Found::Unreadable { why, .. } = &found {
            raise_unreadable(id, *why);
        }
        Ok(found)
    }

    /// What the row means, for a list or a census of many.
    pub(crate) fn look(&self, id: &Digest, codec: &Codec) -> Result<Found, StoreError> {
        let record = match self.times {
            Some(times) => self.record(id, times, codec),
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

    fn record(&self, id: &Digest, times: Times, codec: &Codec) -> Result<Stored, WireError> {
        let plain = wire::Plain {
            fence: self.fence,
            started: Started::At(times.started_at),
            ttl: Ttl::left(times.expires_at, self.read_at),
        };
        let record = codec.decode(id, &self.body, plain)?;
        let Times { updated_at, expires_at, .. } = times;
        let suspect = codec.is_suspect(&record.state, expires_at, updated_at, self.read_at);
        Ok(Stored { record, updated_at, read_at: self.read_at, suspect })
    }
}

pub(crate) fn raise_unreadable(id: &Digest, why: Unreadable) {
    let (what, until) = match why {
        Unreadable::Sealed => (
            "cannot be opened: it was sealed with a key that is not at hand, or it was changed",
            "the right key is there",
        ),
        Unreadable::Damaged => {
            ("does not match its checksum", "its owner settles it or an operator resolves it")
        }
    };
    telemetry::RECORD_UNREADABLE
        .raise(format_args!("record {id} {what}; its outcome counts as unknown until {until}"));
}
