//! The one thread that writes. It takes everything that waits, commits it at once, then answers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use onceward_core::StoreError;
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{
    OpenError, Thread,
    builder::Options,
    checkpoint::{CheckpointState, Log},
    error::stopped,
    schema,
    session::{Applied, Session, Work},
    space::StoreFiles,
    sweep::{Sweep, Sweeper},
    transactions::Trouble,
};
use crate::telemetry;

/// How many changes one transaction takes: more would not save much, but hold up the first ones.
const MAX_CHANGES: usize = 512;

/// How much one transaction takes, for the same reason.
const MAX_BATCH_KIB: u32 = 16 << 10;

/// How much may wait. A caller that comes later waits outside, with the change in its own memory.
const MAX_WAITING_KIB: u32 = 64 << 10;

/// The writing thread; dropping it lets the thread finish what waits, and joins it.
///
/// Dropped in this order: the thread ends when the queue has no sender.
pub(super) struct Writer {
    queue: mpsc::UnboundedSender<Request>,
    room: Arc<Semaphore>,
    _thread: Thread,
}

#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
enum Request {
    Write(Write),
    Sweep(Sweep),
}

/// One piece of work on its way through the writer.
pub(super) struct Write {
    work: Work,
    kib: u32,
    reply: oneshot::Sender<Result<Applied, StoreError>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        options: &Options,
        presence: &Arc<StoreFiles>,
        log: Arc<CheckpointState>,
    ) -> Result<Self, OpenError> {
        let sweeping = schema::open_sweeper(options)?;
        let (queue, waiting) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(MAX_WAITING_KIB as usize));
        let (ready, started) = std::sync::mpsc::channel();
        let (for_thread, settings) = (Arc::clone(&room), options.clone());
        let (presence, watching) = (Arc::clone(presence), Arc::clone(presence));
        let _thread = Thread::start(options, "writer", move || {
            let _closing = CloseRoom(&for_thread);
            let connections = (&connection, &sweeping);
            match Loop::new(connections, (&settings, presence), log, waiting, &for_thread) {
                Ok(writing) => {
                    // The opener of the store waits for this; if it is gone, the queue ends too.
                    let _ = ready.send(Ok(()));
                    writing.run();
                    Loop::keep_spoilt_log(&watching, [&connection, &sweeping]);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let writer = Self { queue, room, _thread };
        match started.recv() {
            Ok(Ok(())) => Ok(writer),
            Ok(Err(error)) => Err(OpenError::from_sqlite(&options.path, &error)),
            Err(_) => Err(OpenError::Failed {
                path: options.path.clone(),
                detail: "the writing thread did not start".into(),
            }),
        }
    }

    /// Hands work to the writer and waits for the commit. Once handed over it is not cancelled.
    pub(super) async fn write(&self, work: Work) -> Result<Applied, StoreError> {
        let kib = u32::try_from(1 + work.bytes() / 1024).unwrap_or(u32::MAX).min(MAX_WAITING_KIB);
        let (reply, answer) = oneshot::channel();
        self.enqueue(Request::Write(Write { work, kib, reply }), kib).await?;
        answer.await.map_err(|_| stopped())?
    }

    /// Lets the writer sweep between its transactions.
    pub(super) async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Request::Sweep(Sweep::new(limit, reply)), 1).await?;
        answer.await.map_err(|_| stopped())?
    }

    async fn enqueue(&self, request: Request, kib: u32) -> Result<(), StoreError> {
        // Given back by the writer with the answer.
        self.room.acquire_many(kib).await.map_err(|_| stopped())?.forget();
        // Before it is sent: the writer must not take it from a queue that counts as empty.
        telemetry::SQLITE_QUEUE.raise_of((), 1);
        self.queue.send(request).map_err(|_| {
            telemetry::SQLITE_QUEUE.lower_of((), 1);
            stopped()
        })
    }
}

/// Wakes the callers that wait for room when the thread ends, for whatever reason.
struct CloseRoom<'a>(&'a Semaphore);

impl Drop for CloseRoom<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Loop<'c> {
    session: Session<'c>,
    sweeper: Sweeper<'c>,
    log: Log<'c>,
    waiting: mpsc::UnboundedReceiver<Request>,
    sweeps: VecDeque<Sweep>,
    room: &'c Semaphore,
    presence: Arc<StoreFiles>,
}

impl<'c> Loop<'c> {
    fn new(
        (writing, sweeping): (&'c Connection, &'c Connection),
        (options, presence): (&Options, Arc<StoreFiles>),
        log: Arc<CheckpointState>,
        waiting: mpsc::UnboundedReceiver<Request>,
        room: &'c Semaphore,
    ) -> rusqlite::Result<Self> {
        // Preparing a statement reads the schema, and another process may be closing the file.
        let wait = |patience| {
            writing.busy_timeout(patience).and_then(|()| sweeping.busy_timeout(patience))
        };
        wait(options.busy_timeout)?;
        let session = Session::new(writing, options, &presence)?;
        let sweeper = Sweeper::new(sweeping, options, &presence)?;
        let log = Log::new(writing, log, options.wal_bytes)?;
        wait(Duration::ZERO)?;
        Ok(Self { session, sweeper, log, waiting, sweeps: VecDeque::new(), room, presence })
    }

    fn run(mut self) {
        let mut requests = Vec::with_capacity(MAX_CHANGES);
        let mut batch = Vec::with_capacity(MAX_CHANGES);
        while self.take(&mut requests) {
            telemetry::SQLITE_QUEUE.lower_of((), requests.len() as u64);
            let mut kib = 0;
            for request in requests.drain(..) {
                match request {
                    Request::Write(write) => {
                        kib += write.kib;
                        batch.push(write);
                        if kib >= MAX_BATCH_KIB {
                            self.commit(&mut batch);
                            kib = 0;
                        }
                    }
                    Request::Sweep(sweep) => self.sweeps.push_back(sweep),
                }
            }
            let is_busy = !batch.is_empty();
            self.commit(&mut batch);
            self.sweep_a_little(is_busy);
        }
    }

    /// The last connection that is closed copies the log into the file: not one that has holes.
    fn keep_spoilt_log(presence: &StoreFiles, connections: [&Connection; 2]) {
        // What this finds is remembered.
        let _ = presence.look();
        if presence.was_log_cut_off() {
            for connection in connections {
                // Then SQLite reports the holes itself, at the next start.
                let _ = schema::keep_log(connection, true);
            }
        }
    }

    /// Takes what waits. Waits for more only if there is nothing to sweep; `false`: all is done.
    fn take(&mut self, requests: &mut Vec<Request>) -> bool {
        if self.sweeps.is_empty() {
            return self.waiting.blocking_recv_many(requests, MAX_CHANGES) > 0;
        }
        while requests.len() < MAX_CHANGES
            && let Ok(request) = self.waiting.try_recv()
        {
            requests.push(request);
        }
        true
    }

    fn commit(&mut self, batch: &mut Vec<Write>) {
        if batch.is_empty() {
            return;
        }
        telemetry::SQLITE_BATCH.observe((), batch.len() as u64);
        match self.session.commit(batch.iter().map(|write| &write.work)) {
            Ok(applied) => {
                for (write, applied) in batch.drain(..).zip(applied) {
                    self.answer(write, Ok(applied));
                }
            }
            // One change is to blame, and the others shall not suffer: each on its own.
            Err(Trouble::Change(_)) if batch.len() > 1 => {
                for write in batch.drain(..) {
                    let alone = self.session.commit(std::iter::once(&write.work));
                    let applied = alone.map_err(Trouble::into_error);
                    self.answer(write, applied.and_then(|mut one| one.pop().ok_or_else(stopped)));
                }
            }
            Err(trouble) => {
                let error = trouble.into_error();
                for write in batch.drain(..) {
                    self.answer(write, Err(error.clone()));
                }
            }
        }
        self.tend();
    }

    fn tend(&mut self) {
        if self.presence.was_seen().is_ok() {
            self.log.tend();
        }
    }

    fn answer(&self, write: Write, applied: Result<Applied, StoreError>) {
        self.room.add_permits(write.kib as usize);
        // The asker may be gone; what was written stays written.
        let _ = write.reply.send(applied);
    }

    fn sweep_a_little(&mut self, is_busy: bool) {
        let Some(sweep) = self.sweeps.pop_front() else {
            return;
        };
        match self.sweeper.step(sweep, is_busy) {
            Some(sweep) => self.sweeps.push_front(sweep),
            None => self.room.add_permits(1),
        }
        self.tend();
    }
}
