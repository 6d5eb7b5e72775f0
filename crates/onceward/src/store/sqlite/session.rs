//! What a change means in SQL.

use std::sync::Arc;

use onceward_core::{Digest, Fence, Found, Note, SpoolId, Timestamp};
use rusqlite::{Connection, Statement, params};

use super::{
    builder::Options,
    mark::Marks,
    routes,
    rows::{Over, Proposal, Row},
    space::{Presence, Space},
    sql,
    transactions::{Transactions, Trouble},
};
use crate::{
    store::sql::{codec::Codec, routes::KeptRoute},
    telemetry::{self, Begun},
};

/// What the writer is asked to do.
pub(super) enum Work {
    Swap(Proposal),
    Purge { id: Digest, expected: Fence, note: Note },
    PutChunk { id: SpoolId, index: u32, bytes: Vec<u8> },
    DiscardChunks { id: SpoolId },
    KeepRoute { before: Option<KeptRoute>, route: KeptRoute },
}

impl Work {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Swap(proposal) => proposal.body.len(),
            Self::PutChunk { bytes, .. } => bytes.len(),
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
        presence: &Arc<Presence>,
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

/// The statements by which records are changed, inside a transaction.
struct Records<'c> {
    connection: &'c Connection,
    space: Space,
    codec: Codec,
    insert: Statement<'c>,
    update: Statement<'c>,
    claim_afresh: Statement<'c>,
    read: Statement<'c>,
    delete: Statement<'c>,
    note: Statement<'c>,
    put_chunk: Statement<'c>,
    discard_chunks: Statement<'c>,
}

impl<'c> Records<'c> {
    fn new(connection: &'c Connection, options: &Options) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            space: Space::new(&options.path, options.reserve_bytes),
            codec: options.codec.clone(),
            insert: connection.prepare(sql::INSERT)?,
            update: connection.prepare(sql::UPDATE)?,
            claim_afresh: connection.prepare(sql::CLAIM_AFRESH)?,
            read: connection.prepare(sql::READ)?,
            delete: connection.prepare(sql::DELETE)?,
            note: connection.prepare(sql::NOTE)?,
            put_chunk: connection.prepare(sql::PUT_CHUNK)?,
            discard_chunks: connection.prepare(sql::DISCARD_CHUNKS)?,
        })
    }

    fn apply(&mut self, work: &Work, now: Timestamp) -> rusqlite::Result<Applied> {
        match work {
            Work::Swap(proposal) => self.swap(proposal, now),
            Work::Purge { id, expected, note } => self.purge(id, *expected, note, now),
            Work::PutChunk { id, index, bytes } => {
                put(&mut self.put_chunk, id, *index, bytes, now)?;
                Ok(Applied::Written { at: now })
            }
            Work::DiscardChunks { id } => {
                self.discard_chunks.execute(params![id.operation.0, id.fence.as_bytes()])?;
                Ok(Applied::Written { at: now })
            }
            Work::KeepRoute { before, route } => {
                let is_kept = routes::keep(self.connection, before.as_ref(), route)?;
                Ok(if is_kept { Applied::Written { at: now } } else { Applied::Refused(None) })
            }
        }
    }

    fn swap(&mut self, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<Applied> {
        if proposal.is_claim && self.space.is_full() {
            return self.refuse_claim(proposal, now);
        }
        let statement = match proposal.statement() {
            sql::INSERT => &mut self.insert,
            sql::UPDATE => &mut self.update,
            _ => &mut self.claim_afresh,
        };
        let changed = write(statement, proposal, now)?;
        if changed == 0 {
            return Ok(Applied::Refused(self.read(&proposal.id, now)?));
        }
        if let Some(note) = &proposal.note {
            self.note(&proposal.id, note, now)?;
        }
        Ok(Applied::Written { at: now })
    }

    /// Without room for claims, duplicates still get their answers.
    fn refuse_claim(&mut self, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<Applied> {
        let stored = self.read(&proposal.id, now)?;
        let would_fit = match (&proposal.over, &stored) {
            (Over::Nothing { .. }, None) => true,
            (Over::Fence(expected), Some(row)) => row.fence() == *expected,
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
        match self.read(id, now)? {
            Some(row) if row.fence() == expected && may_be_purged(&row, id, &self.codec) => {}
            other => return Ok(Applied::Refused(other)),
        }
        self.delete.execute(params![id.0, expected.as_bytes()])?;
        self.discard_chunks.execute(params![id.0, expected.as_bytes()])?;
        self.note(id, note, now)?;
        Ok(Applied::Written { at: now })
    }

    fn read(&mut self, id: &Digest, now: Timestamp) -> rusqlite::Result<Option<Row>> {
        read(&mut self.read, id, now)
    }

    fn note(&mut self, id: &Digest, note: &Note, now: Timestamp) -> rusqlite::Result<()> {
        note_down(&mut self.note, id, note, now)
    }
}

/// One swap on a connection of the user's own, inside its transaction; `Err`: what is stored.
pub(super) fn swap_once(
    connection: &Connection,
    proposal: &Proposal,
    now: Timestamp,
) -> rusqlite::Result<Result<Timestamp, Option<Row>>> {
    let prepare = |sql| connection.prepare_cached(sql);
    let changed = write(&mut *prepare(proposal.statement())?, proposal, now)?;
    if changed == 0 {
        return Ok(Err(read(&mut *prepare(sql::READ)?, &proposal.id, now)?));
    }
    if let Some(note) = &proposal.note {
        note_down(&mut *prepare(sql::NOTE)?, &proposal.id, note, now)?;
    }
    Ok(Ok(now))
}

/// One chunk on a connection of the user's own, inside its transaction.
pub(super) fn put_once(
    connection: &Connection,
    id: &SpoolId,
    index: u32,
    bytes: &[u8],
    now: Timestamp,
) -> rusqlite::Result<()> {
    put(&mut *connection.prepare_cached(sql::PUT_CHUNK)?, id, index, bytes, now)
}

/// Makes the change where the expected fence is stored; gives the number of rows that changed.
fn write(
    statement: &mut Statement<'_>,
    proposal: &Proposal,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let Proposal { id, fence, state, body, .. } = proposal;
    let (started_at, expires_at) = (proposal.started_at(now), proposal.expires_at(now));
    let (fence, updated_at) = (fence.as_bytes(), now.unix_micros());
    match &proposal.over {
        Over::Nothing { scope, operation } => statement.execute(params![
            id.0, fence, state, started_at, updated_at, expires_at, scope, operation, body
        ]),
        Over::Fence(expected) => statement.execute(params![
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

fn read(read: &mut Statement<'_>, id: &Digest, now: Timestamp) -> rusqlite::Result<Option<Row>> {
    let mut rows = read.query([id.0])?;
    rows.next()?.map(|row| Row::read(row, 0, now)).transpose()
}

fn put(
    put: &mut Statement<'_>,
    id: &SpoolId,
    index: u32,
    bytes: &[u8],
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (digest, fence) = (&id.operation.0, id.fence.as_bytes());
    put.execute(params![digest, fence, index, now.unix_micros(), bytes]).map(drop)
}

fn note_down(
    statement: &mut Statement<'_>,
    id: &Digest,
    note: &Note,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let Note { kind, execution, actor, reason } = note;
    let (kind, execution, at) = (kind.as_str(), execution.as_bytes(), now.unix_micros());
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
