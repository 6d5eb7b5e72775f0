//! The second connection that writes: copies the log into the file, so that commits need not.
//!
//! A passive checkpoint never waits and holds no writer up, but under load it never catches up with
//! the writer either, and the log would grow for ever. So the writer itself begins the log anew
//! when it has become long: at a moment when little is left to copy, or, when the log has twice the
//! length, in any case.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, Statement};

use super::{
    OpenError, Thread, builder::Options, log::FRAME_HEADER_BYTES, schema, space::StoreFiles, sql,
};
use crate::telemetry::{self, Begun, event};

/// How long a commit may wait to be copied into the file. It is durable before; the longer it
/// waits, the more changes of the same page are copied at once.
const INTERVAL: Duration = Duration::from_secs(1);

/// The store's own reads end sooner than this; the reads of other processes are not waited for.
const READERS_END: Duration = Duration::from_millis(10);

/// When a reader has kept the log from being begun anew, this much later is soon enough.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// The checkpointing thread; dropping it stops and joins the thread.
pub(super) struct Checkpointer {
    shared: Arc<CheckpointState>,
    _thread: Thread,
}

/// What the writer and the checkpointing thread have in common.
pub(super) struct CheckpointState {
    request: Mutex<CheckpointRequest>,
    requested: Condvar,
    /// Held while a checkpoint runs: SQLite runs one at a time and refuses the other.
    turn: Mutex<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CheckpointRequest {
    Nothing,
    Soon,
    Now,
    Stop,
}

impl Checkpointer {
    pub(super) fn start(options: &Options, presence: &Arc<StoreFiles>) -> Result<Self, OpenError> {
        let connection = schema::open_checkpointer(options)?;
        let shared = Arc::new(CheckpointState {
            request: Mutex::new(CheckpointRequest::Nothing),
            requested: Condvar::new(),
            turn: Mutex::new(()),
        });
        let (for_thread, presence) = (Arc::clone(&shared), Arc::clone(presence));
        let _thread = Thread::start(options, "checkpoint", move || {
            run(&connection, &for_thread, &presence);
        })?;
        Ok(Self { shared, _thread })
    }

    pub(super) fn shared(&self) -> Arc<CheckpointState> {
        Arc::clone(&self.shared)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.request(CheckpointRequest::Stop);
    }
}

impl CheckpointState {
    fn request(&self, request: CheckpointRequest) {
        let mut current = lock(&self.request);
        if *current < request {
            *current = request;
            self.requested.notify_one();
        }
    }

    /// Waits until there is something to do; `false`: stop.
    fn wait(&self) -> bool {
        let nothing = |request: &mut CheckpointRequest| *request == CheckpointRequest::Nothing;
        let calm = |request: &mut CheckpointRequest| *request < CheckpointRequest::Now;
        let guard = self.requested.wait_while(lock(&self.request), nothing);
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        let waited = self.requested.wait_timeout_while(guard, INTERVAL, calm);
        let (mut guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *guard == CheckpointRequest::Stop {
            return false;
        }
        *guard = CheckpointRequest::Nothing;
        true
    }
}

fn run(connection: &Connection, shared: &CheckpointState, presence: &StoreFiles) {
    while shared.wait() {
        // A log without a name can still be saved. With another one in its place, the shared memory
        // may be about that one, and its pages would be copied from the wrong file; as would holes be.
        if presence.is_log_spoilt() {
            continue;
        }
        let position = {
            let (_turn, begun) = (lock(&shared.turn), Begun::now());
            let position = connection.query_row(sql::CHECKPOINT, [], Position::read);
            telemetry::SQLITE_CHECKPOINT_DURATION.since((), begun);
            position
        };
        match position {
            Ok(position) if position.is_copied() => telemetry::SQLITE_LOG_WAITING.set(0),
            // The writer was faster, or a reader is in an old state.
            Ok(_) => shared.request(CheckpointRequest::Soon),
            Err(error) => {
                tracing::warn!(
                    event = event::SQLITE_TROUBLE,
                    "a checkpoint failed and will be tried again: {error}"
                );
                shared.request(CheckpointRequest::Soon);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the log is and how much of it is in the file, in frames.
#[derive(Clone, Copy)]
struct Position {
    written: u64,
    copied: u64,
}

impl Position {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        // SQLite says minus one when it knows nothing yet, which is as good as nothing.
        let frames = |index| row.get(index).map(|count: i64| u64::try_from(count).unwrap_or(0));
        Ok(Self { written: frames(1)?, copied: frames(2)? })
    }

    fn is_copied(self) -> bool {
        self.copied >= self.written
    }
}

/// The writer's view of the log: asks for checkpoints and begins the log anew.
pub(super) struct Log<'c> {
    connection: &'c Connection,
    shared: Arc<CheckpointState>,
    position: Statement<'c>,
    restart: Statement<'c>,
    frame_bytes: u64,
    limit_frames: u64,
    not_before: Option<Instant>,
}

impl<'c> Log<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        shared: Arc<CheckpointState>,
        wal_bytes: u64,
    ) -> rusqlite::Result<Self> {
        let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let frame_bytes = u64::from(page) + FRAME_HEADER_BYTES;
        Ok(Self {
            connection,
            shared,
            position: connection.prepare(sql::LOG_POSITION)?,
            restart: connection.prepare(sql::RESTART_LOG)?,
            frame_bytes,
            limit_frames: wal_bytes / frame_bytes,
            not_before: None,
        })
    }

    /// Called between two transactions. Trouble is left to the next time: nothing is lost by it.
    pub(super) fn tend(&mut self) {
        let Ok(position) = self.position.query_row([], Position::read) else {
            return;
        };
        let waiting = position.written.saturating_sub(position.copied);
        telemetry::SQLITE_LOG_WAITING.set(waiting * self.frame_bytes);
        let is_long = position.written >= self.limit_frames;
        let is_little = waiting < self.limit_frames / 64;
        self.shared.request(if is_long && !is_little {
            CheckpointRequest::Now
        } else {
            CheckpointRequest::Soon
        });
        if !is_long || self.not_before.is_some_and(|time| Instant::now() < time) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let turn = match position.written < 2 * self.limit_frames {
            true if is_little => shared.turn.try_lock().ok(),
            true => None,
            false => Some(lock(&shared.turn)),
        };
        if turn.is_some() {
            self.restart();
        }
    }

    /// Copies what is left, then lets the next commit write at the beginning of the log.
    fn restart(&mut self) {
        let restarted = self
            .connection
            .busy_timeout(READERS_END)
            .and_then(|()| self.restart.query_row([], |row| row.get(0)))
            .and_then(|busy: bool| self.connection.busy_timeout(Duration::ZERO).map(|()| busy));
        self.not_before = match restarted {
            Ok(false) => None,
            Ok(true) => Some(Instant::now() + TRY_AGAIN),
            Err(error) => {
                tracing::warn!(
                    event = event::SQLITE_TROUBLE,
                    "the write-ahead log could not be begun anew: {error}"
                );
                Some(Instant::now() + TRY_AGAIN)
            }
        };
    }
}
