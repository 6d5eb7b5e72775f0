//! What a change means in SQL.

use std::sync::Arc;

use onceward_core::{Digest, Fence, Found, Note, SpoolId, Timestamp};
use rusqlite::{Connection, params};

use super::{
    builder::Options,
    mark::Marks,
    routes,
    rows::{Expected, Proposal, Row},
    space::{Space, StoreFiles},
    sql,
    transactions::{Transactions, Trouble},
};
use crate::{
    store::sql::{codec::Codec, routes::KeptRoute},
    telemetry::{self, Begun},
};

/// One task for the writer.
pub(super) enum Work {
    Swap(Proposal),
    Purge { id: Digest, expected: Fence, note: Note },
    PutChunk { id: SpoolId, index: u32, bytes: Vec<u8> },
    DiscardChunks { id: SpoolId },
    KeepRoute { before: Option<KeptRoute>, route: KeptRoute },
    Queue(QueueChange),
}

/// A change of the outbox. It is made once more if another change of the same transaction fails.
pub(super) struct QueueChange {
    pub(super) bytes: usize,
    pub(super) make: MakeChange,
}

type MakeChange = Box<dyn Fn(&Connection, Timestamp) -> rusqlite::Result<Wrote> + Send>;

/// Whether a change of the outbox has written anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Something,
    Nothing,
}

impl Work {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Swap(proposal) => proposal.body.len(),
            Self::PutChunk { bytes, .. } => bytes.len(),
            Self::Queue(change) => change.bytes,
            Self::Purge { .. } | Self::DiscardChunks { .. } | Self::KeepRoute { .. } => 0,
        }
    }
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Applied {
    /// It was done.
    Written { at: Timestamp },
    /// It was not: this is what is stored.
    Refused(Option<Row>),
    /// It was not: there is no room for claims.
    Full(String),
}

/// The writing connection: changes in, answers out.
pub(super) struct Session<'c> {
    transactions: Transactions<'c>,
    records: Records<'c>,
    marks: Marks<'c>,
}

impl<'c> Session<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        options: &Options,
        presence: &Arc<StoreFiles>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            transactions: Transactions::new(connection, options, presence)?,
            records: Records::new(connection, options)?,
            marks: Marks::new(connection, &options.path)?,
        })
    }

    /// Does all of it in one transaction, in order, or nothing.
    pub(super) fn commit<'w>(
        &mut self,
        works: impl Iterator<Item = &'w Work>,
    ) -> Result<Vec<Applied>, Trouble> {
        let (begun, Self { transactions, records, marks }) = (Begun::now(), self);
        let committed = transactions.run(|now| {
            let applied: rusqlite::Result<Vec<_>> =
                works.map(|work| records.apply(work, now)).collect();
            let applied = applied?;
            let writes = applied.iter().any(|one| matches!(one, Applied::Written { .. }));
            let mark = writes.then(|| marks.count()).transpose()?;
            Ok((applied, mark))
        });
        if let Ok((_, Some(mark))) = committed {
            marks.note(mark);
        }
        telemetry::SQLITE_COMMIT_DURATION.since((), begun);
        committed.map(|(applied, _)| applied)
    }
}

/// Changes records, inside a transaction.
struct Records<'c> {
    connection: &'c Connection,
    space: Space,
    codec: Codec,
}

impl<'c> Records<'c> {
    fn new(connection: &'c Connection, options: &Options) -> rusqlite::Result<Self> {
        for text in sql::OF_RECORDS {
            connection.prepare_cached(text)?;
        }
        let space = Space::new(&options.path, options.reserve_bytes);
        Ok(Self { connection, space, codec: options.codec.clone() })
    }

    fn apply(&mut self, work: &Work, now: Timestamp) -> rusqlite::Result<Applied> {
        match work {
            Work::Swap(proposal) => self.swap(proposal, now),
            Work::Purge { id, expected, note } => self.purge(id, *expected, note, now),
            Work::PutChunk { id, index, bytes } => {
                put_once(self.connection, id, *index, bytes, now)?;
                Ok(Applied::Written { at: now })
            }
            Work::DiscardChunks { id } => {
                discard_chunks(self.connection, &id.operation, id.fence)?;
                Ok(Applied::Written { at: now })
            }
            Work::KeepRoute { before, route } => {
                let is_kept = routes::keep(self.connection, before.as_ref(), route)?;
                Ok(if is_kept { Applied::Written { at: now } } else { Applied::Refused(None) })
            }
            Work::Queue(change) => Ok(match (change.make)(self.connection, now)? {
                Wrote::Something => Applied::Written { at: now },
                Wrote::Nothing => Applied::Refused(None),
            }),
        }
    }

    fn swap(&mut self, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<Applied> {
        if proposal.is_claim && self.space.is_full() {
            return self.refuse_claim(proposal, now);
        }
        Ok(match swap_once(self.connection, proposal, now)? {
            Ok(at) => Applied::Written { at },
            Err(stored) => Applied::Refused(stored),
        })
    }

    /// Without room for claims, duplicates still get their answers.
    fn refuse_claim(&mut self, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<Applied> {
        let stored = read(self.connection, &proposal.id, now)?;
        let would_fit = match (&proposal.expected, &stored) {
            (Expected::Nothing { .. }, None) => true,
            (Expected::Fence(expected), Some(row)) => row.fence == *expected,
            _ => false,
        };
        Ok(match would_fit {
            true => Applied::Full(self.space.refusal()),
            false => Applied::Refused(stored),
        })
    }

    fn purge(
        &mut self,
        id: &Digest,
        expected: Fence,
        note: &Note,
        now: Timestamp,
    ) -> rusqlite::Result<Applied> {
        match read(self.connection, id, now)? {
            Some(row) if row.fence == expected && may_be_purged(&row, id, &self.codec) => {}
            other => return Ok(Applied::Refused(other)),
        }
        let mut delete = self.connection.prepare_cached(sql::DELETE)?;
        delete.execute(params![id.0, expected.as_bytes()])?;
        discard_chunks(self.connection, id, expected)?;
        note_down(self.connection, id, note, now)?;
        Ok(Applied::Written { at: now })
    }
}

/// One swap inside the transaction that is open on this connection; `Err`: what is stored.
pub(super) fn swap_once(
    connection: &Connection,
    proposal: &Proposal,
    now: Timestamp,
) -> rusqlite::Result<Result<Timestamp, Option<Row>>> {
    if write(connection, proposal, now)? == 0 {
        return Ok(Err(read(connection, &proposal.id, now)?));
    }
    if let Some(note) = &proposal.note {
        note_down(connection, &proposal.id, note, now)?;
    }
    Ok(Ok(now))
}

/// Makes the change where the expected fence is stored; gives the number of rows that changed.
fn write(connection: &Connection, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<usize> {
    let Proposal { id, fence, state, body, .. } = proposal;
    let (started_at, expires_at) = (proposal.started_at(now), proposal.expires_at(now));
    let (fence, updated_at) = (fence.as_bytes(), now.unix_micros());
    let mut statement = connection.prepare_cached(proposal.statement())?;
    match &proposal.expected {
        Expected::Nothing { scope, operation } => statement.execute(params![
            id.0, fence, state, started_at, updated_at, expires_at, scope, operation, body
        ]),
        Expected::Fence(expected) => statement.execute(params![
            id.0,
            expected.as_bytes(),
            fence,
            state,
            started_at,
            updated_at,
            expires_at,
            body
        ]),
    }
}

pub(super) fn read(
    connection: &Connection,
    id: &Digest,
    now: Timestamp,
) -> rusqlite::Result<Option<Row>> {
    let mut statement = connection.prepare_cached(sql::READ)?;
    let mut rows = statement.query([id.0])?;
    rows.next()?.map(|row| Row::read(row, 0, now)).transpose()
}

/// Writes one chunk inside the transaction that is open on this connection.
pub(super) fn put_once(
    connection: &Connection,
    id: &SpoolId,
    index: u32,
    bytes: &[u8],
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (digest, fence) = (&id.operation.0, id.fence.as_bytes());
    let mut put = connection.prepare_cached(sql::PUT_CHUNK)?;
    put.execute(params![digest, fence, index, now.unix_micros(), bytes]).map(drop)
}

pub(super) fn discard_chunks(
    connection: &Connection,
    id: &Digest,
    fence: Fence,
) -> rusqlite::Result<()> {
    let mut discard = connection.prepare_cached(sql::DISCARD_CHUNKS)?;
    discard.execute(params![id.0, fence.as_bytes()]).map(drop)
}

fn note_down(
    connection: &Connection,
    id: &Digest,
    note: &Note,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let Note { kind, execution, actor, reason } = note;
    let (kind, execution, at) = (kind.as_str(), execution.as_bytes(), now.unix_micros());
    let mut statement = connection.prepare_cached(sql::NOTE)?;
    statement.execute(params![id.0, at, kind, execution, actor, reason]).map(drop)
}

/// What cannot be read cannot be resolved: an operator may delete it.
fn may_be_purged(row: &Row, id: &Digest, codec: &Codec) -> bool {
    match row.decode(id, codec) {
        Ok(Found::Unreadable { .. }) => true,
        Ok(Found::Record(stored)) => stored.refuses_purge().is_none(),
        Ok(Found::Nothing) | Err(_) => false,
    }
}
