//! The writing connection with its statements, and what one change means in SQL.

use std::{sync::Arc, time::Duration};

use onceward_core::{Digest, Fence, Found, Note, SpoolId, StoreError, Timestamp};
use rusqlite::{Connection, Statement, params};

use super::{
    builder::Options,
    error::{at_commit, before_commit, is_io},
    rows::{Over, Proposal, Row},
    schema::patiently,
    space::{Presence, Space},
    sql,
};
use crate::clock::Clock;

/// What the writer is asked to do.
pub(super) enum Work {
    Swap(Proposal),
    Purge { id: Digest, expected: Fence, note: Note },
    PutChunk { id: SpoolId, index: u32, bytes: Vec<u8> },
    DiscardChunks { id: SpoolId },
}

impl Work {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Swap(proposal) => proposal.body.len(),
            Self::PutChunk { bytes, .. } => bytes.len(),
            Self::Purge { .. } | Self::DiscardChunks { .. } => 0,
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

/// Why a transaction was rolled back.
pub(super) enum Trouble {
    /// One change could not be made; others might.
    Change(StoreError),
    /// Nothing could be made, or it is not known whether it was.
    Everything(StoreError),
}

impl Trouble {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Change(error) | Self::Everything(error) => error,
        }
    }
}

/// What a session needs to know beside its connection.
pub(super) struct Settings {
    clock: Arc<dyn Clock>,
    busy_timeout: Duration,
    space: Space,
    presence: Presence,
}

impl Settings {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            clock: Arc::clone(&options.clock),
            busy_timeout: options.busy_timeout,
            space: Space::new(&options.path, options.reserve_bytes),
            presence: Presence::of(&options.path),
        }
    }
}

/// The writing connection, used by one thread.
pub(super) struct Session<'c> {
    connection: &'c Connection,
    settings: Settings,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    insert: Statement<'c>,
    update: Statement<'c>,
    read: Statement<'c>,
    delete: Statement<'c>,
    note: Statement<'c>,
    put_chunk: Statement<'c>,
    discard_chunks: Statement<'c>,
}

impl<'c> Session<'c> {
    pub(super) fn new(connection: &'c Connection, settings: Settings) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            settings,
            begin: connection.prepare(sql::BEGIN)?,
            commit: connection.prepare(sql::COMMIT)?,
            rollback: connection.prepare(sql::ROLLBACK)?,
            insert: connection.prepare(sql::INSERT)?,
            update: connection.prepare(sql::UPDATE)?,
            read: connection.prepare(sql::READ)?,
            delete: connection.prepare(sql::DELETE)?,
            note: connection.prepare(sql::NOTE)?,
            put_chunk: connection.prepare(sql::PUT_CHUNK)?,
            discard_chunks: connection.prepare(sql::DISCARD_CHUNKS)?,
        })
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.settings.clock
    }

    /// Does all of it in one transaction, in order, or nothing.
    pub(super) fn commit<'w>(
        &mut self,
        works: impl ExactSizeIterator<Item = &'w Work>,
    ) -> Result<Vec<Applied>, Trouble> {
        self.transact(|session, now| {
            let mut applied = Vec::with_capacity(works.len());
            for work in works {
                applied.push(session.apply(work, now)?);
            }
            Ok(applied)
        })
    }

    /// Runs one transaction. Whoever is answered after it knows that it is on the disk.
    pub(super) fn transact<T>(
        &mut self,
        body: impl FnOnce(&mut Self, Timestamp) -> rusqlite::Result<T>,
    ) -> Result<T, Trouble> {
        self.begin().map_err(Trouble::Everything)?;
        // Read when the lock is there: waiting for it does not count against any lease.
        let now = self.settings.clock.now();
        match body(self, now) {
            Ok(done) => match self.commit.execute([]) {
                Ok(_) => Ok(done),
                Err(error) => {
                    self.roll_back();
                    Err(Trouble::Everything(at_commit(&error)))
                }
            },
            Err(error) => {
                self.roll_back();
                let store_error = before_commit(&error);
                Err(match is_io(&error) {
                    true => Trouble::Everything(store_error),
                    false => Trouble::Change(store_error),
                })
            }
        }
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        if self.settings.presence.is_lost() {
            return Err(StoreError::Unusable(self.settings.presence.complaint()));
        }
        if !self.connection.is_autocommit() {
            self.roll_back();
        }
        let begun = patiently(self.settings.busy_timeout, || self.begin.execute([]));
        begun.map(drop).map_err(|error| before_commit(&error))
    }

    /// SQLite itself may have rolled back already. What cannot be rolled back was not committed.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.rollback.execute([])
        {
            tracing::warn!("a rollback failed and will be tried again: {error}");
        }
    }

    fn apply(&mut self, work: &Work, now: Timestamp) -> rusqlite::Result<Applied> {
        match work {
            Work::Swap(proposal) => self.swap(proposal, now),
            Work::Purge { id, expected, note } => self.purge(id, *expected, note, now),
            Work::PutChunk { id, index, bytes } => {
                let (digest, fence) = (&id.operation.0, id.fence.as_bytes());
                self.put_chunk.execute(params![digest, fence, index, now.unix_micros(), bytes])?;
                Ok(Applied::Written { at: now })
            }
            Work::DiscardChunks { id } => {
                self.discard_chunks.execute(params![id.operation.0, id.fence.as_bytes()])?;
                Ok(Applied::Written { at: now })
            }
        }
    }

    fn swap(&mut self, proposal: &Proposal, now: Timestamp) -> rusqlite::Result<Applied> {
        if proposal.is_claim && self.settings.space.is_full() {
            return self.refuse_claim(proposal, now);
        }
        let Proposal { id, fence, state, body, .. } = proposal;
        let (started_at, expires_at) = (proposal.started_at(now), proposal.expires_at(now));
        let (fence, updated_at) = (fence.as_bytes(), now.unix_micros());
        let changed = match &proposal.over {
            Over::Nothing { scope, operation } => self.insert.execute(params![
                id.0, fence, state, started_at, updated_at, expires_at, scope, operation, body
            ])?,
            Over::Fence(expected) => self.update.execute(params![
                id.0,
                expected.as_bytes(),
                fence,
                state,
                started_at,
                updated_at,
                expires_at,
                body
            ])?,
        };
        if changed == 0 {
            return Ok(Applied::Refused(self.read(id, now)?));
        }
        if let Some(note) = &proposal.note {
            self.note(id, note, now)?;
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
            true => Applied::Full(self.settings.space.refusal()),
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
            Some(row) if row.fence() == expected && may_be_purged(&row, id) => {}
            other => return Ok(Applied::Refused(other)),
        }
        self.delete.execute(params![id.0, expected.as_bytes()])?;
        self.discard_chunks.execute(params![id.0, expected.as_bytes()])?;
        self.note(id, note, now)?;
        Ok(Applied::Written { at: now })
    }

    fn read(&mut self, id: &Digest, now: Timestamp) -> rusqlite::Result<Option<Row>> {
        let mut rows = self.read.query([id.0])?;
        rows.next()?.map(|row| Row::read(row, 0, now)).transpose()
    }

    fn note(&mut self, id: &Digest, note: &Note, now: Timestamp) -> rusqlite::Result<()> {
        let Note { kind, execution, actor, reason } = note;
        let (kind, execution, at) = (kind.as_str(), execution.as_bytes(), now.unix_micros());
        self.note.execute(params![id.0, at, kind, execution, actor, reason]).map(drop)
    }
}

/// What cannot be read has nobody to resolve it: an operator may delete it.
fn may_be_purged(row: &Row, id: &Digest) -> bool {
    match row.decode(id) {
        Ok(Found::Unreadable { .. }) => true,
        Ok(Found::Record(stored)) => stored.refuses_purge().is_none(),
        Ok(Found::Nothing) | Err(_) => false,
    }
}
