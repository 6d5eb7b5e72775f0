//! A store in the memory of this process: for tests and trials, and nothing else.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use onceward_core::{
    Change, Cursor, Digest, Fence, Filter, Found, Inspect, Listed, Note, Order, Page, Purge,
    Record, SWEEP_MARGIN, Spool, SpoolId, Started, State, Store, StoreError, StoreFuture, Stored,
    Swap, Timestamp, Trail, TrailEntry, Ttl,
};

use crate::{
    clock::{Clock, HostClock, Suspicion, Watch},
    telemetry::event,
};

/// Keeps records in memory: they are gone with the process, and other processes do not see them.
///
/// A retry after a restart would run again, so this store must be asked for by a name that says so.
///
/// ```
/// use onceward::store::memory::MemoryStore;
///
/// let store = MemoryStore::not_durable();
/// # let _ = store;
/// ```
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    watch: Watch,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    records: BTreeMap<Digest, Row>,
    /// How many records came so far.
    came: u64,
    trail: BTreeMap<Digest, Vec<TrailEntry>>,
    spool: BTreeMap<(SpoolId, u32), (Timestamp, Vec<u8>)>,
}

struct Row {
    /// The place of this record in the order in which they came.
    seq: u64,
    record: Record,
    started_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl MemoryStore {
    /// Makes an empty store on the host's clock.
    #[must_use]
    pub fn not_durable() -> Self {
        Self::not_durable_with_clock(Arc::new(HostClock))
    }

    /// Makes an empty store on another clock.
    #[must_use]
    pub fn not_durable_with_clock(clock: Arc<dyn Clock>) -> Self {
        tracing::warn!(
            event = event::NOT_DURABLE,
            "records are kept in memory only: a restart forgets every operation"
        );
        Self { watch: Watch::started(Arc::clone(&clock)), clock, tables: Mutex::default() }
    }

    /// What is suspected of the clock: it jumped ahead while this process runs.
    #[must_use]
    pub fn clock_suspicion(&self) -> Option<Suspicion> {
        self.watch.look()
    }

    /// An operator's word that the clock is right now. Returns what was suspected.
    pub fn trust_clock(&self) -> Option<Suspicion> {
        self.watch.look();
        self.watch.trust()
    }

    /// Moves the stored times of one record back, as if it were so much older.
    pub fn age(&self, id: &Digest, by: Duration) {
        if let Some(row) = self.tables().records.get_mut(id) {
            row.started_at = row.started_at.minus(by);
            row.updated_at = row.updated_at.minus(by);
            row.expires_at = row.expires_at.map(|time| time.minus(by));
        }
    }

    fn now(&self) -> Now {
        let at = self.clock.now();
        Now { at, ahead: self.watch.ahead(at) }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is made by one insert or remove: a panic elsewhere leaves the tables whole.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the clock shows, and how far it may be ahead.
#[derive(Clone)]
struct Now {
    at: Timestamp,
    ahead: RangeInclusive<Duration>,
}

impl Row {
    fn new(seq: u64, mut record: Record, now: Timestamp) -> Self {
        let started_at = match record.started {
            Started::Now => now,
            Started::At(time) => time,
        };
        record.started = Started::At(started_at);
        let expires_at = record.ttl.ends_at(now);
        Self { seq, record, started_at, updated_at: now, expires_at }
    }

    fn read(&self, now: &Now) -> Stored {
        let at = now.at;
        let started = Started::At(self.started_at);
        let ttl = Ttl::left(self.expires_at, at);
        let record = Record { started, ttl, ..self.record.clone() };
        let updated_at = self.updated_at;
        let suspect =
            Stored::is_suspect(&record.state, self.expires_at, updated_at, at, &now.ahead);
        Stored { record, updated_at, read_at: at, suspect }
    }

    fn may_be_swept(&self, now: Timestamp) -> bool {
        self.record.state != State::InProgress
            && self.expires_at.is_some_and(|time| time.plus(SWEEP_MARGIN) < now)
    }
}

impl Tables {
    fn found(&self, id: &Digest, now: &Now) -> Found {
        self.records.get(id).map_or(Found::Nothing, |row| Found::Record(Box::new(row.read(now))))
    }

    fn fence(&self, id: &Digest) -> Option<Fence> {
        self.records.get(id).map(|row| row.record.fence)
    }

    fn write(&mut self, change: &Change, now: Timestamp) {
        let seq = match self.records.get(&change.id) {
            Some(row) => row.seq,
            None => {
                self.came += 1;
                self.came
            }
        };
        self.records.insert(change.id, Row::new(seq, change.next.clone(), now));
    }

    fn list(&self, filter: &Filter, after: Option<u64>, now: &Now) -> Page {
        let is_later = |seq: u64| match (filter.order, after) {
            (_, None) => true,
            (Order::OldestFirst, Some(after)) => seq > after,
            (Order::NewestFirst, Some(after)) => seq < after,
        };
        let rows = self.records.iter().filter(|(_, row)| is_later(row.seq));
        let mut rows: Vec<_> = rows
            .map(|(id, row)| (row.seq, *id, row.read(now)))
            .filter(|(_, _, stored)| filter.matches(stored))
            .collect();
        rows.sort_unstable_by_key(|(seq, ..)| match filter.order {
            Order::OldestFirst => *seq,
            Order::NewestFirst => u64::MAX - *seq,
        });
        let limit = filter.limit.clamp(1, Filter::MAX_PAGE) as usize;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(seq, ..)| Cursor(seq.to_string()));
        let listed = rows.into_iter();
        let listed =
            listed.map(|(_, id, stored)| Listed { id, found: Found::Record(Box::new(stored)) });
        Page { listed: listed.collect(), next }
    }

    fn write_note(&mut self, id: &Digest, at: Timestamp, note: &Note) {
        self.trail.entry(*id).or_default().push(TrailEntry { at, note: note.clone() });
    }

    fn sweep(&mut self, limit: u32, now: Timestamp) -> u32 {
        let over = self.records.iter().filter(|(_, row)| row.may_be_swept(now));
        let over: Vec<Digest> = over.map(|(id, _)| *id).take(limit as usize).collect();
        for id in &over {
            self.records.remove(id);
        }
        let Self { records, spool, .. } = self;
        spool.retain(|(id, _), (at, _)| {
            let fence = records.get(&id.operation).map(|row| row.record.fence);
            fence == Some(id.fence) || at.plus(SWEEP_MARGIN) >= now
        });
        u32::try_from(over.len()).unwrap_or(limit)
    }
}

impl Store for MemoryStore {
    fn swap<'a>(&'a self, change: &'a Change) -> StoreFuture<'a, Swap> {
        Box::pin(async move {
            let mut tables = self.tables();
            if tables.fence(&change.id) != change.expected {
                let found = tables.found(&change.id, &self.now());
                return Ok(Swap::Conflict(found));
            }
            let now = self.now().at;
            tables.write(change, now);
            if let Some(note) = &change.note {
                tables.write_note(&change.id, now, note);
            }
            Ok(Swap::Stored { at: now })
        })
    }

    fn get<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Found> {
        Box::pin(async move { Ok(self.tables().found(id, &self.now())) })
    }

    fn sweep(&self, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            self.watch.look();
            self.watch.check_for_sweep()?;
            Ok(self.tables().sweep(limit, self.clock.now()))
        })
    }
}

impl Inspect for MemoryStore {
    fn list<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let after = filter.after.as_ref().map(|cursor| cursor.0.parse()).transpose();
            let after = after.map_err(|_| {
                StoreError::Unusable("the page cursor is not one of this store".into())
            })?;
            Ok(self.tables().list(filter, after, &self.now()))
        })
    }

    fn purge<'a>(
        &'a self,
        id: &'a Digest,
        expected: Fence,
        note: &'a Note,
    ) -> StoreFuture<'a, Purge> {
        Box::pin(async move {
            let now = self.now();
            let mut tables = self.tables();
            let stored = match tables.found(id, &now) {
                Found::Record(stored) if stored.record.fence == expected => stored,
                found => return Ok(Purge::Conflict(found)),
            };
            if let Some(refusal) = stored.refuses_purge() {
                return Ok(refusal);
            }
            tables.records.remove(id);
            tables.write_note(id, now.at, note);
            Ok(Purge::Purged)
        })
    }
}

impl Trail for MemoryStore {
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>> {
        Box::pin(async move { Ok(self.tables().trail.get(id).cloned().unwrap_or_default()) })
    }
}

impl Spool for MemoryStore {
    fn put<'a>(&'a self, id: &'a SpoolId, index: u32, chunk: &'a [u8]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.tables().spool.insert((*id, index), (self.clock.now(), chunk.to_vec()));
            Ok(())
        })
    }

    fn chunk<'a>(&'a self, id: &'a SpoolId, index: u32) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let chunk = self.tables().spool.get(&(*id, index)).map(|(_, chunk)| chunk.clone());
            Ok(chunk)
        })
    }

    fn discard<'a>(&'a self, id: &'a SpoolId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.tables().spool.retain(|(of, _), _| of != id);
            Ok(())
        })
    }
}
