//! The bound that a store is compared with: an append-only log and an index in memory.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock, mpsc},
    thread::JoinHandle,
};

use onceward::{
    Digest, Store, StoreError, Timestamp,
    clock::{Clock, HostClock},
    protocol::{Fence, Found, Started, Stored, Ttl, Unreadable, wire},
    store::{BoxFuture, Change, Swap},
};
use tokio::sync::oneshot;

/// How many waiting changes share one sync at most: as many as in the `SQLite` store.
const MAX_BATCH: usize = 512;

/// The least that a durable store can do: append the record, sync, remember where it is.
///
/// It keeps the rules that cost something: records are written in the same bytes as everywhere
/// (`wire`), fences are compared, nothing is answered or seen before it is synced, and all changes
/// that wait share one `write` and one `fdatasync`. So it shows what this machine's disk and the
/// protocol allow, and what the rest of a store adds.
///
/// It is not a store that one could use:
///
/// - its memory grows with every record, for ever;
/// - nothing expires: a sweep finds nothing, and the file only grows;
/// - one process only;
/// - it cannot be opened again: a real one would read the whole file first, for seconds;
/// - no lists, no trail, no check for damage but the checksum of each record.
pub(crate) struct AppendLog {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Waiting>>,
    writer: Option<JoinHandle<()>>,
}

impl AppendLog {
    /// Makes a log in a new file, with room in the index for so many records.
    ///
    /// Room is made beforehand because a map of millions stops the writer for a while when it grows;
    /// too much of it slows the writer too, because it meets fresh memory with every record.
    pub(crate) fn create(path: &Path, capacity: usize) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create_new(true).open(path)?;
        let index = RwLock::new(HashMap::with_capacity(capacity));
        let shared = Arc::new(Shared { file, index, clock: HostClock::default() });
        let (queue, waiting) = mpsc::channel();
        let writer =
            Writer { shared: Arc::clone(&shared), end: 0, buffer: Vec::new(), broken: None };
        let writer = std::thread::Builder::new()
            .name("append-log".into())
            .spawn(move || writer.run(&waiting))?;
        Ok(Self { shared, queue: Some(queue), writer: Some(writer) })
    }

    async fn propose(&self, change: &Change) -> Result<Swap, StoreError> {
        let stopped = || StoreError::Unavailable("the writer of the log has stopped".into());
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            id: change.id,
            expected: change.expected,
            fence: change.next.fence,
            started: change.next.started,
            ttl: change.next.ttl,
            bytes: wire::encode(&change.id, &change.next),
            answer,
        };
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(waiting).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

impl Store for AppendLog {
    fn swap<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(self.propose(change))
    }

    /// Reads in the caller's thread: mostly from the page cache.
    fn get<'a>(&'a self, id: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(async { self.shared.found(id, self.shared.entry(id)) })
    }

    fn sweep(&self, _limit: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}

impl Drop for AppendLog {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has already failed every change that waited for it.
            let _ = writer.join();
        }
    }
}

struct Shared {
    file: File,
    index: RwLock<HashMap<Digest, Entry>>,
    clock: HostClock,
}

/// Where a record is, and what is compared or computed with.
#[derive(Clone, Copy)]
struct Entry {
    fence: Fence,
    offset: u64,
    length: u32,
    started: Timestamp,
    updated: Timestamp,
    expires: Option<Timestamp>,
}

impl Shared {
    fn entry(&self, id: &Digest) -> Option<Entry> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    fn found(&self, id: &Digest, entry: Option<Entry>) -> Result<Found, StoreError> {
        let Some(entry) = entry else { return Ok(Found::Nothing) };
        let mut bytes = vec![0; entry.length as usize];
        self.file.read_exact_at(&mut bytes, entry.offset).map_err(unavailable)?;
        let read_at = self.clock.now();
        let plain = wire::Plain {
            fence: entry.fence,
            started: Started::At(entry.started),
            ttl: Ttl::left(entry.expires, read_at),
        };
        Ok(match wire::decode(id, &bytes, plain) {
            Ok(record) => Found::Record(Box::new(Stored {
                record,
                updated_at: entry.updated,
                read_at,
                suspect: false,
            })),
            Err(_) => Found::Unreadable { fence: entry.fence, why: Unreadable::Damaged },
        })
    }
}

/// A change that waits for the writer.
struct Waiting {
    id: Digest,
    expected: Option<Fence>,
    fence: Fence,
    started: Started,
    ttl: Ttl,
    bytes: Vec<u8>,
    answer: oneshot::Sender<Result<Swap, StoreError>>,
}

struct Writer {
    shared: Arc<Shared>,
    end: u64,
    buffer: Vec<u8>,
    broken: Option<StoreError>,
}

impl Writer {
    fn run(mut self, queue: &mpsc::Receiver<Waiting>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while let Ok(first) = queue.recv() {
            batch.push(first);
            batch.extend(queue.try_iter().take(MAX_BATCH - 1));
            self.commit(&mut batch);
        }
    }

    /// Writes, syncs, makes the changes visible, answers: in this order.
    fn commit(&mut self, batch: &mut Vec<Waiting>) {
        let now = self.shared.clock.now();
        let mut changed = HashMap::with_capacity(batch.len());
        let swapped: Vec<bool> =
            batch.iter().map(|change| self.append(change, &mut changed, now)).collect();
        if let Err(error) = self.sync() {
            // How much of the batch is in the file is not known: nothing may follow it.
            self.broken.get_or_insert(error);
        }
        if self.broken.is_none() {
            let mut index = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
            index.extend(changed);
        }
        for (change, swapped) in batch.drain(..).zip(swapped) {
            let answer = match (&self.broken, swapped) {
                (Some(error), _) => Err(error.clone()),
                (None, true) => Ok(Swap::Stored { at: now }),
                (None, false) => self.conflict(&change.id),
            };
            // Nobody listens any more if the caller gave up; the change is made all the same.
            let _ = change.answer.send(answer);
        }
    }

    /// Adds the change to the buffer if its fence is the expected one.
    fn append(
        &mut self,
        change: &Waiting,
        changed: &mut HashMap<Digest, Entry>,
        now: Timestamp,
    ) -> bool {
        let entry = changed.get(&change.id).copied().or_else(|| self.shared.entry(&change.id));
        if entry.map(|entry| entry.fence) != change.expected {
            return false;
        }
        let started = match change.started {
            Started::Now => now,
            Started::At(time) => time,
        };
        let expires = change.ttl.ends_at(now);
        let Ok(length) = u32::try_from(change.bytes.len()) else { return false };
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&change.id.0);
        self.buffer.extend_from_slice(change.fence.as_bytes());
        for time in [Some(started), Some(now), expires] {
            let micros = time.map_or(i64::MAX, Timestamp::unix_micros);
            self.buffer.extend_from_slice(&micros.to_le_bytes());
        }
        let offset = self.end + self.buffer.len() as u64;
        self.buffer.extend_from_slice(&change.bytes);
        let entry = Entry { fence: change.fence, offset, length, started, updated: now, expires };
        changed.insert(change.id, entry);
        true
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() || self.broken.is_some() {
            self.buffer.clear();
            return Ok(());
        }
        let mut file = &self.shared.file;
        file.write_all(&self.buffer).and_then(|()| file.sync_data()).map_err(unavailable)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn conflict(&self, id: &Digest) -> Result<Swap, StoreError> {
        self.shared.found(id, self.shared.entry(id)).map(Swap::Conflict)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable(format!("the log cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Work};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn log() -> (tempfile::TempDir, AppendLog) {
        let directory = tempfile::tempdir().unwrap();
        let log = AppendLog::create(&directory.path().join("log"), 16).unwrap();
        (directory, log)
    }

    #[test]
    fn a_record_is_created_only_where_nothing_is() {
        let (_directory, log) = log();
        let work = Work::default();
        block_on(async {
            let admission = work.admission(1);
            let change = admission.change();
            assert_eq!(log.get(&change.id).await, Ok(Found::Nothing));
            assert!(matches!(log.swap(change).await, Ok(Swap::Stored { .. })));
            let Ok(Swap::Conflict(Found::Record(stored))) = log.swap(change).await else {
                panic!("created twice")
            };
            assert_eq!(stored.record.fence, change.next.fence);
            assert_eq!(stored.record.started, Started::At(stored.updated_at));
            assert!(matches!(log.get(&change.id).await, Ok(Found::Record(_))));
        });
    }

    #[test]
    fn only_the_holder_of_the_fence_changes_a_record() {
        let (_directory, log) = log();
        let work = Work::default();
        block_on(async {
            let claim = load::claim(&log, &work, 1).await.unwrap();
            let first = work.settlement(&claim);
            let second = work.settlement(&claim);
            assert!(matches!(log.swap(first.change()).await, Ok(Swap::Stored { .. })));
            let Ok(Swap::Conflict(Found::Record(stored))) = log.swap(second.change()).await else {
                panic!("the fence was not compared")
            };
            assert_eq!(stored.record.fence, first.change().next.fence);
            assert_eq!(stored.record.state, first.change().next.state);
        });
    }

    #[test]
    fn changes_of_one_batch_see_each_other() {
        let (_directory, log) = log();
        let work = Work::default();
        block_on(async {
            let changes: Vec<_> = (0..200).map(|_| work.admission(7)).collect();
            let log = Arc::new(log);
            let mut tasks = tokio::task::JoinSet::new();
            for admission in changes {
                let log = Arc::clone(&log);
                tasks.spawn(async move { log.swap(admission.change()).await });
            }
            let swaps = tasks.join_all().await;
            let stored = swaps.iter().filter(|swap| matches!(swap, Ok(Swap::Stored { .. })));
            assert_eq!(stored.count(), 1);
        });
    }
}
