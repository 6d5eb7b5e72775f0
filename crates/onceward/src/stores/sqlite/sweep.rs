//! Deletes what is over, a little at a time, so that claims hardly notice.

use std::time::{Duration, Instant};

use onceward_core::{
    Body, Digest, Fence, Outcome, SWEEP_MARGIN, State, StoreError, Timestamp, wire::WireError,
};
use rusqlite::params;
use tokio::sync::oneshot;

use super::{
    rows::{raise_unreadable, read_ended},
    session::{Session, Trouble},
    sql,
};
use crate::{clock::MAX_DISAGREEMENT, telemetry};

/// How long one transaction of a sweep may take before the writer looks at its queue again.
const SLICE: Duration = Duration::from_millis(10);

/// How many rows one transaction looks at.
const SLICE_ROWS: u32 = 512;

/// How many old chunks one sweep looks at: the next one goes on behind them.
const MAX_CHUNKS: u32 = 2048;

/// The age at which a chunk without a record was forgotten by its writer.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// A place in the order of age. The smallest one is before everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    time: i64,
    seq: i64,
}

impl Place {
    pub(super) const START: Self = Self { time: i64::MIN, seq: i64::MIN };
}

/// A sweep on its way, in steps between which the writer does other things.
pub(super) struct Sweep {
    left: u32,
    deleted: u32,
    chunks_left: u32,
    records_done: bool,
    reply: oneshot::Sender<Result<u32, StoreError>>,
}

/// Whether a sweep needs another step.
pub(super) enum Progress {
    More,
    Done(Result<u32, StoreError>),
}

/// Where sweeps go on: behind what they had to leave.
#[derive(Clone, Copy)]
pub(super) struct Places {
    record: Place,
    chunk: Place,
}

impl Default for Places {
    fn default() -> Self {
        Self { record: Place::START, chunk: Place::START }
    }
}

impl Sweep {
    pub(super) fn new(limit: u32, reply: oneshot::Sender<Result<u32, StoreError>>) -> Self {
        Self { left: limit, deleted: 0, chunks_left: MAX_CHUNKS, records_done: false, reply }
    }

    pub(super) fn answer(self, answer: Result<u32, StoreError>) {
        // The asker may be gone; what was deleted stays deleted.
        let _ = self.reply.send(answer);
    }

    /// One short transaction.
    pub(super) fn advance(&mut self, session: &mut Session<'_>) -> Progress {
        if let Err(error) = check_clock(session) {
            return Progress::Done(Err(error));
        }
        let before = session.places;
        let step = session.transact(|session, now| match self.records_done {
            false => self.sweep_records(session, now),
            true => self.sweep_chunks(session, now),
        });
        match step {
            Ok(Step { deleted, is_last }) => {
                self.deleted += deleted;
                match (is_last, self.records_done) {
                    (true, true) => return Progress::Done(Ok(self.deleted)),
                    (true, false) => self.records_done = true,
                    (false, _) => {}
                }
                Progress::More
            }
            Err(trouble) => {
                session.places = before;
                Progress::Done(Err(Trouble::into_error(trouble)))
            }
        }
    }
}
