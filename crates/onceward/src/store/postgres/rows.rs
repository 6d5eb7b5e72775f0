//! What the driver of PostgreSQL gives and takes.

use std::{
    error::Error,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onceward_core::{Change, Digest, Fence, SWEEP_MARGIN, State, StoreError, Timestamp, Ttl};
use tokio_postgres::{
    Row as PgRow,
    types::{IsNull, ToSql, Type, accepts, private::BytesMut, to_sql_checked},
};
use uuid::Uuid;

use crate::store::sql::{
    codec::Codec,
    rows::{Expected, Proposal, Row, Times},
};

/// How long the end of a claim is expected to be remembered, where it does not say.
const USUAL_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The longest time that is written: PostgreSQL's own end of time is far behind it.
const LONGEST: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;

/// A change with everything that its statement needs.
pub(super) struct Work {
    pub(super) proposal: Proposal,
    pub(super) kind: ChangeKind,
    /// When a sweep looks at the row, in microseconds from now; `None`: as before.
    pub(super) sweep_micros: Option<i64>,
    pub(super) retain_micros: Option<i64>,
}

/// Which statement makes a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangeKind {
    Claim,
    End,
    Change,
}

impl Work {
    pub(super) fn of(change: &Change, codec: &Codec) -> Self {
        let proposal = Proposal::of(change, codec);
        let record = &change.next;
        let has_ended = matches!(record.state, State::Succeeded(_) | State::FailedFinal(_));
        let is_timed = matches!(record.ttl, Ttl::For(_));
        let kind = match (change.expected, has_ended && is_timed && change.note.is_none()) {
            (None, _) => ChangeKind::Claim,
            // The end of a claim keeps its execution; only a repair has another one, and a note.
            (Some(_), true) => ChangeKind::End,
            (Some(_), false) => ChangeKind::Change,
        };
        let is_renewal = record.state == State::InProgress && !change.is_claim();
        let retain = change.is_claim().then(|| change.retain.unwrap_or(USUAL_RETENTION));
        let kept = match (retain, record.ttl) {
            (Some(retain), _) => Some(retain),
            (None, Ttl::For(ttl)) => Some(ttl),
            (None, Ttl::Never) => None,
        };
        let sweep = kept.map_or(LONGEST, |kept| micros(kept.saturating_add(SWEEP_MARGIN)));
        Self {
            proposal,
            kind,
            sweep_micros: (!is_renewal).then_some(sweep),
            retain_micros: match (retain, kind) {
                (Some(retain), _) => Some(micros(retain)),
                (None, ChangeKind::Claim) => Some(micros(USUAL_RETENTION)),
                (None, _) => None,
            },
        }
    }

    pub(super) fn ttl_micros(&self) -> Option<i64> {
        match self.proposal.ttl {
            Ttl::For(ttl) => Some(micros(ttl)),
            Ttl::Never => None,
        }
    }

    pub(super) fn expected(&self) -> Option<Fence> {
        match self.proposal.expected {
            Expected::Nothing { .. } => None,
            Expected::Fence(fence) => Some(fence),
        }
    }

    /// Whom the operation belongs to and what it is called, for a first record.
    pub(super) fn names(&self) -> (&str, &str) {
        match &self.proposal.expected {
            Expected::Nothing { scope, operation } => (scope, operation),
            Expected::Fence(_) => ("", ""),
        }
    }

    pub(super) fn state(&self) -> i16 {
        i16::try_from(self.proposal.state).unwrap_or_default()
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

/// A length of time in microseconds, sent as an `interval`: a number would have to be multiplied by one, and
/// the server looks for its multiplication by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval(pub(super) i64);

impl ToSql for Interval {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The days and the months of it.
        let rest = [0; 8];
        out.extend_from_slice(&self.0.to_be_bytes());
        out.extend_from_slice(&rest);
        Ok(IsNull::No)
    }

    accepts!(INTERVAL);
    to_sql_checked!();
}

pub(super) fn fence_of(uuid: Uuid) -> Fence {
    Fence::from_random(uuid.into_bytes())
}

pub(super) fn uuid_of(fence: Fence) -> Uuid {
    Uuid::from_bytes(*fence.as_bytes())
}

pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_unix_micros(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    })
}

pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let micros = time.unix_micros();
    let distance = Duration::from_micros(micros.unsigned_abs());
    match micros >= 0 {
        true => UNIX_EPOCH + distance,
        false => UNIX_EPOCH - distance,
    }
}

/// A row and who wrote it.
pub(super) struct Read {
    pub(super) id: Digest,
    pub(super) row: Row,
    /// Who wrote it, if that must be on a standby before it may be believed.
    pub(super) unsure: Option<Writer>,
}

/// A transaction, and the server on which it is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) xid: u32,
    /// Since when the server runs: no other one, and no other start of it, has the same.
    pub(super) server: SystemTime,
}

impl Writer {
    /// Numbers of transactions have 32 bits, whatever they are read as.
    pub(super) fn new(xid: i64, server: SystemTime) -> Self {
        Self { xid: u32::try_from(xid & i64::from(u32::MAX)).unwrap_or_default(), server }
    }
}

impl Read {
    /// Takes the columns that every reading statement has.
    pub(super) fn of(row: &PgRow) -> Result<Self, StoreError> {
        Self::take(row).map_err(|error| {
            StoreError::Unusable(format!(
                "a row of the table onceward.record is not as this software makes it: {error}"
            ))
        })
    }

    fn take(row: &PgRow) -> Result<Self, tokio_postgres::Error> {
        let (fence, started_at): (Uuid, SystemTime) = (row.try_get(1)?, row.try_get(2)?);
        let (updated_at, read_at): (SystemTime, SystemTime) = (row.try_get(3)?, row.try_get(6)?);
        let expires_at: Option<SystemTime> = row.try_get(4)?;
        let (xid, has_standbys): (i64, bool) = (row.try_get(7)?, row.try_get(8)?);
        let times = Times {
            started_at: timestamp(started_at),
            updated_at: timestamp(updated_at),
            expires_at: expires_at.map(timestamp),
        };
        let row_read = Row {
            fence: fence_of(fence),
            times: Some(times),
            body: row.try_get(5)?,
            read_at: timestamp(read_at),
        };
        let writer = Writer::new(xid, row.try_get(9)?);
        let id: Vec<u8> = row.try_get(0)?;
        let id = Digest(id.try_into().unwrap_or_default());
        Ok(Self { id, row: row_read, unsure: has_standbys.then_some(writer) })
    }
}
