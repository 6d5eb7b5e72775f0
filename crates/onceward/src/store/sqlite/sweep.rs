//! Deletes what is over, a little at a time, so that claims hardly notice.
//!
//! It has a connection of its own that does not wait for the disk: a deletion that a power cut
//! undoes is simply made again, and whatever is acknowledged later syncs it too.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use onceward_core::{
    Digest, Fence, SWEEP_MARGIN, State, StoreError, StoredBody, Timestamp, Unreadable,
    wire::WireError,
};
use rusqlite::{Connection, Params, params};
use tokio::sync::oneshot;

use super::{
    builder::Options,
    rows::{raise_unreadable, read_ended},
    session::discard_chunks,
    space::StoreFiles,
    sql,
    transactions::{Transactions, Trouble},
};
use crate::{
    clock::{SUSPICION_HOLDS, suspected_elsewhere},
    store::sql::codec::Codec,
};

/// How long one step may look for rows before the writer turns to its queue again.
const STEP: Duration = Duration::from_millis(10);

/// How many rows one step takes while no change waits for the writer.
const STEP_ROWS: u32 = 1024;

/// How many rows one step takes while a change waits.
const BUSY_STEP_ROWS: u32 = 256;

/// How many old chunks one sweep looks at: the next one goes on behind them.
const MAX_CHUNKS: u32 = 2048;

/// How many entries of the inbox one sweep deletes at most.
const MAX_RECEIPTS: u32 = 65_536;

/// The age at which a chunk without a record was forgotten by its writer.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// A sweep that was asked for.
pub(super) struct Sweep {
    records_left: u32,
    chunks_left: u32,
    receipts_left: u32,
    deleted: u32,
    reply: oneshot::Sender<Result<u32, StoreError>>,
}

impl Sweep {
    pub(super) fn new(limit: u32, reply: oneshot::Sender<Result<u32, StoreError>>) -> Self {
        let (chunks_left, receipts_left) = (MAX_CHUNKS, MAX_RECEIPTS);
        Self { records_left: limit, chunks_left, receipts_left, deleted: 0, reply }
    }

    fn is_done(&self) -> bool {
        self.records_left == 0 && self.chunks_left == 0 && self.receipts_left == 0
    }

    fn answer(self, answer: Result<u32, StoreError>) {
        // The asker may be gone; what was deleted stays deleted.
        let _ = self.reply.send(answer);
    }
}

/// The connection that deletes, used by the writing thread between its own transactions.
pub(super) struct Sweeper<'c> {
    transactions: Transactions<'c>,
    codec: Codec,
    sweep_clock: SweepClock<'c>,
}

/// A place in the order of age.
#[derive(Clone, Copy)]
struct SweepPosition {
    time: i64,
    seq: i64,
}

impl SweepPosition {
    const START: Self = Self { time: i64::MIN, seq: i64::MIN };
}

/// What a step has done.
struct Done {
    examined: u32,
    deleted: u32,
    is_last: bool,
}

/// What a sweep does with a row whose retention is over.
enum RowAction {
    Delete,
    DeleteSpooled(Digest, Fence),
    Unreadable(Digest),
    Newer,
}

impl<'c> Sweeper<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        options: &Options,
        presence: &Arc<StoreFiles>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            transactions: Transactions::new(connection, options, presence)?,
            codec: options.codec.clone(),
            sweep_clock: SweepClock::new(connection)?,
        })
    }

    /// Takes one step of a sweep, in a transaction of its own; gives the sweep back if there is
    /// more to do.
    pub(super) fn step(&mut self, mut sweep: Sweep, is_busy: bool) -> Option<Sweep> {
        let Self { transactions, codec, sweep_clock } = self;
        let rows = if is_busy { BUSY_STEP_ROWS } else { STEP_ROWS };
        codec.watch().look();
        let trusted = codec.watch().check_for_sweep();
        let stepped = transactions.run(|now| match (&trusted, &sweep) {
            (Err(_), _) => sweep_clock.suspect(now).map(|()| None),
            (Ok(()), _) if sweep_clock.is_suspected(now)? => Ok(None),
            (Ok(()), Sweep { records_left: left @ 1.., .. }) => {
                sweep_clock.sweep_records(rows.min(*left), now).map(Some)
            }
            (Ok(()), Sweep { chunks_left: left @ 1.., .. }) => {
                sweep_clock.sweep_chunks(rows.min(*left), now).map(Some)
            }
            (Ok(()), _) => sweep_clock.sweep_inbox(rows, now).map(Some),
        });
        let stepped = stepped.map_err(Trouble::into_error);
        let done = match trusted.and_then(|()| stepped?.ok_or_else(suspected_elsewhere)) {
            Ok(done) => done,
            Err(error) => {
                sweep.answer(Err(error));
                return None;
            }
        };
        let left = match &mut sweep {
            Sweep { records_left: left @ 1.., deleted, .. } => {
                *deleted += done.deleted;
                left
            }
            Sweep { chunks_left: left @ 1.., .. } => left,
            Sweep { receipts_left, .. } => receipts_left,
        };
        *left = if done.is_last { 0 } else { left.saturating_sub(done.examined) };
        if sweep.is_done() {
            let deleted = sweep.deleted;
            sweep.answer(Ok(deleted));
            return None;
        }
        Some(sweep)
    }
}

/// A step, and where the next one goes on.
struct SweepClock<'c> {
    connection: &'c Connection,
    next_record: SweepPosition,
    next_chunk: SweepPosition,
}

impl<'c> SweepClock<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        for text in sql::OF_SWEEPS {
            connection.prepare_cached(text)?;
        }
        let (next_record, next_chunk) = (SweepPosition::START, SweepPosition::START);
        Ok(Self { connection, next_record, next_chunk })
    }

    fn execute(&self, text: &str, parameters: impl Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(text)?.execute(parameters).map(drop)
    }

    fn suspect(&self, now: Timestamp) -> rusqlite::Result<()> {
        self.execute(sql::SUSPECT_CLOCK, [now.unix_micros()])
    }

    fn is_suspected(&self, now: Timestamp) -> rusqlite::Result<bool> {
        let holds = i64::try_from(SUSPICION_HOLDS.as_micros()).unwrap_or(i64::MAX);
        let mut suspected = self.connection.prepare_cached(sql::CLOCK_SUSPECTED)?;
        suspected.query_row([now.unix_micros(), holds], |row| row.get(0))
    }

    fn sweep_records(&mut self, limit: u32, now: Timestamp) -> rusqlite::Result<Done> {
        let start = Instant::now();
        let before = now.minus(SWEEP_MARGIN).unix_micros();
        let SweepPosition { time, seq } = self.next_record;
        let mut found = Vec::with_capacity(limit as usize);
        let mut sweepable = self.connection.prepare_cached(sql::SWEEPABLE)?;
        let mut rows = sweepable.query(params![time, seq, before, limit])?;
        let mut is_last = true;
        while let Some(row) = rows.next()? {
            found.push((SweepPosition { seq: row.get(0)?, time: row.get(1)? }, action_for(row)?));
            is_last = found.len() < limit as usize;
            if start.elapsed() > STEP {
                is_last = false;
                break;
            }
        }
        drop(rows);
        let mut deleted = 0;
        for (place, action) in &found {
            match action {
                RowAction::Newer => {
                    self.next_record = *place;
                    continue;
                }
                RowAction::Unreadable(id) => {
                    raise_unreadable(id, Unreadable::Damaged);
                    self.execute(sql::KEEP_UNREADABLE, [place.seq])?;
                    continue;
                }
                RowAction::DeleteSpooled(id, fence) => {
                    discard_chunks(self.connection, id, *fence)?;
                }
                RowAction::Delete => {}
            }
            self.execute(sql::DELETE_SWEPT, [place.seq])?;
            deleted += 1;
        }
        if is_last {
            self.next_record = SweepPosition::START;
        }
        // What is kept does not count: `limit` is about deleting.
        Ok(Done { examined: deleted, deleted, is_last })
    }

    fn sweep_chunks(&mut self, limit: u32, now: Timestamp) -> rusqlite::Result<Done> {
        let start = Instant::now();
        let before = now.minus(ORPHAN_AGE).unix_micros();
        let SweepPosition { time, seq } = self.next_chunk;
        let mut found = Vec::with_capacity(limit as usize);
        let mut old_chunks = self.connection.prepare_cached(sql::OLD_CHUNKS)?;
        let mut rows = old_chunks.query(params![time, seq, before, limit])?;
        while let Some(row) = rows.next()? {
            let is_orphan: bool = row.get(2)?;
            found.push((SweepPosition { seq: row.get(0)?, time: row.get(1)? }, is_orphan));
        }
        drop(rows);
        let (mut examined, mut deleted) = (0, 0);
        for (place, is_orphan) in &found {
            if *is_orphan {
                self.execute(sql::DELETE_CHUNK, [place.seq])?;
                deleted += 1;
            }
            examined += 1;
            self.next_chunk = *place;
            if start.elapsed() > STEP {
                break;
            }
        }
        let is_last = examined < limit && examined as usize == found.len();
        if is_last {
            self.next_chunk = SweepPosition::START;
        }
        Ok(Done { examined, deleted, is_last })
    }

    /// Deletes what consumers need not remember any more.
    fn sweep_inbox(&mut self, limit: u32, now: Timestamp) -> rusqlite::Result<Done> {
        let before = now.minus(SWEEP_MARGIN).unix_micros();
        let mut delete = self.connection.prepare_cached(sql::SWEEP_INBOX)?;
        let deleted = delete.execute(params![before, limit])?;
        let deleted = u32::try_from(deleted).unwrap_or(u32::MAX);
        Ok(Done { examined: deleted, deleted, is_last: deleted < limit })
    }
}

/// A record is deleted only if it can be read and has ended: corruption is not absence, and what
/// newer software wrote is not ours to judge.
fn action_for(row: &rusqlite::Row<'_>) -> rusqlite::Result<RowAction> {
    let (id, fence) = (Digest(row.get(2)?), Fence::from_random(row.get(3)?));
    let body = row.get_ref(4)?.as_blob().unwrap_or_default();
    Ok(match read_ended(&id, fence, body).map(|record| record.state) {
        Err(WireError::Newer(_)) => RowAction::Newer,
        Err(WireError::Damaged) | Ok(State::InProgress) => RowAction::Unreadable(id),
        // It has ended, and there may be chunks: the retention is kept without the key as well.
        Err(WireError::Sealed) => RowAction::DeleteSpooled(id, fence),
        Ok(State::Succeeded(outcome) | State::FailedFinal(outcome))
            if matches!(outcome.body, StoredBody::Spooled { .. }) =>
        {
            RowAction::DeleteSpooled(id, fence)
        }
        Ok(_) => RowAction::Delete,
    })
}
