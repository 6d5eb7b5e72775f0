//! Group commit: changes that wait are written together, by few connections.
//!
//! First claims and all other changes wait in lines of their own, because a statement makes many of one
//! kind. A connection that is free takes everything that waits, up to a limit, so that no change waits for
//! company: one change alone is one statement. The lane then reads what a batch left out, and if a service's
//! transaction held it, proposed once more alone.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
};

use onceward_core::{Digest, Started, StoreError, Timestamp};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{
    Dialect,
    error::Trouble,
    link::{ConnectOptions, Link, MAX_RESENDS, ReconnectingLink},
    rows::{ChangeKind, Interval, Read, Work, timestamp, uuid_of},
    sql,
};
use crate::engine::Pause;

/// How many changes may wait; a change that comes then waits for a place.
const QUEUE: usize = 16_384;

/// How often a first claim must have waited for too long before another transaction is taken to make it.
const HELD: u32 = 4;

/// What became of a change.
pub(super) enum Applied {
    Written {
        at: Timestamp,
    },
    /// Something else is stored.
    Refused(Option<Read>),
    Held,
}

type Answer = Result<Applied, StoreError>;

struct Job {
    work: Work,
    reply: oneshot::Sender<Answer>,
}

impl Job {
    fn answer(self, answer: Answer) {
        // The caller may be gone; what was written stays written.
        let _ = self.reply.send(answer);
    }

    fn id(&self) -> Digest {
        self.work.proposal.id
    }
}

/// Hands changes to the connections that write. Dropping it ends them when they have written
/// everything.
pub(super) struct Writer {
    claims: mpsc::Sender<Job>,
    others: mpsc::Sender<Job>,
}

impl Writer {
    /// Starts this many connections for each line.
    pub(super) fn start(how: &Arc<ConnectOptions>, lanes: usize, batch: usize) -> Self {
        let line = || {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let waiting = Arc::new(Mutex::new(receiver));
            for _ in 0..lanes {
                let lane = Lane { line: ReconnectingLink::new(how), dialect: how.dialect, batch };
                tokio::spawn(lane.run(waiting.clone()));
            }
            sender
        };
        Self { claims: line(), others: line() }
    }

    pub(super) async fn write(&self, work: Work) -> Answer {
        let (reply, answer) = oneshot::channel();
        let line = match work.kind {
            ChangeKind::Claim => &self.claims,
            ChangeKind::End | ChangeKind::Change => &self.others,
        };
        let ended = || StoreError::Unavailable("the store was closed".to_owned());
        line.send(Job { work, reply }).await.map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// One connection that writes.
struct Lane {
    line: ReconnectingLink,
    dialect: Dialect,
    batch: usize,
}

impl Lane {
    async fn run(self, waiting: Arc<Mutex<mpsc::Receiver<Job>>>) {
        let mut jobs = Vec::new();
        loop {
            let taken = waiting.lock().await.recv_many(&mut jobs, self.batch).await;
            if taken == 0 {
                return;
            }
            // A caller that is gone does not count on its change, which may be from long ago.
            jobs.retain(|job| !job.reply.is_closed());
            let mut left = mem::take(&mut jobs);
            while !left.is_empty() {
                let (now, later) = each_once(left);
                left = later;
                match self.line.link().await {
                    Ok(link) => self.write(&link, now).await,
                    Err(error) => {
                        for job in now {
                            job.answer(Err(error.clone()));
                        }
                    }
                }
            }
        }
    }

    async fn write(&self, link: &Link, jobs: Vec<Job>) {
        let (ends, rest): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| job.work.kind == ChangeKind::End);
        let (claims, changes): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|job| job.work.kind == ChangeKind::Claim);
        self.write_together(link, claims, ChangeKind::Claim).await;
        self.write_together(link, ends, ChangeKind::End).await;
        for job in changes {
            let answer = self.alone(link, &job.work).await;
            job.answer(answer);
        }
    }

    async fn write_together(&self, link: &Link, mut jobs: Vec<Job>, kind: ChangeKind) {
        jobs.sort_unstable_by_key(Job::id);
        let mut groups = vec![jobs];
        while let Some(mut group) = groups.pop() {
            if group.len() < 2 {
                for job in group {
                    let answer = self.alone(link, &job.work).await;
                    job.answer(answer);
                }
                continue;
            }
            let written = match kind {
                ChangeKind::Claim => claim_many(link, &group).await,
                _ => end_many(link, &group, self.dialect).await,
            };
            match written {
                Ok(written) => {
                    let left = answer_written(group, &written);
                    for job in self.answer_conflicts(link, left).await {
                        groups.push(vec![job]);
                    }
                }
                // Undone as a whole: one of them met a user's transaction, or has a value that the server
                // does not take, and the others need not suffer from it.
                Err(Trouble::Held | Trouble::Undone(_) | Trouble::Value(_)) => {
                    groups.push(group.split_off(group.len() / 2));
                    groups.push(group);
                }
                Err(Trouble::Failed(error)) => {
                    for job in group {
                        job.answer(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Answers all that something else is stored for; gives back those that may be tried alone.
    async fn answer_conflicts(&self, link: &Link, jobs: Vec<Job>) -> Vec<Job> {
        if jobs.is_empty() {
            return jobs;
        }
        let mut stored = match self.read_many(link, &jobs).await {
            Ok(stored) => stored,
            Err(error) => {
                for job in jobs {
                    job.answer(Err(error.clone()));
                }
                return Vec::new();
            }
        };
        let mut left = Vec::new();
        for job in jobs {
            match stored.remove(&job.id()) {
                Some(read) if Some(read.row.fence) != job.work.expected() => {
                    job.answer(Ok(Applied::Refused(Some(read))));
                }
                None if job.work.expected().is_some() => job.answer(Ok(Applied::Refused(None))),
                // Held a moment ago, or gone since then.
                _ => left.push(job),
            }
        }
        left
    }

    async fn read_many(
        &self,
        link: &Link,
        jobs: &[Job],
    ) -> Result<HashMap<Digest, Read>, StoreError> {
        let ids: Vec<_> = jobs.iter().map(|job| job.id().0.to_vec()).collect();
        let rows = link.read(self.dialect.read(), &[&ids]).await?;
        rows.iter().map(|row| Read::of(row).map(|read| (read.id, read))).collect()
    }

    /// Makes one change, or finds out what is in its way.
    async fn alone(&self, link: &Link, work: &Work) -> Answer {
        let (mut tries, mut pause) = (0, Pause::default());
        loop {
            tries += 1;
            match change_one(link, work).await {
                Ok(Some(at)) => return Ok(Applied::Written { at }),
                Ok(None) => break,
                Err(Trouble::Undone(_)) if tries < MAX_RESENDS => pause.wait().await,
                // A first claim may have waited for something else, as a table that grows.
                Err(Trouble::Held) if work.kind == ChangeKind::Claim && tries < HELD => {
                    if let Some(read) = self.read_one(link, work).await? {
                        return Ok(Applied::Refused(Some(read)));
                    }
                }
                // The row as it was before the transaction took hold of it may tell enough.
                Err(Trouble::Held) => {
                    let stored = self.read_one(link, work).await?;
                    let is_other = |read: &Read| Some(read.row.fence) != work.expected();
                    return Ok(match stored.filter(is_other) {
                        Some(read) => Applied::Refused(Some(read)),
                        None => Applied::Held,
                    });
                }
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
        let stored = self.read_one(link, work).await?;
        Ok(Applied::Refused(stored))
    }

    async fn read_one(&self, link: &Link, work: &Work) -> Result<Option<Read>, StoreError> {
        let id = work.proposal.id.0.as_slice();
        let rows = link.read(self.dialect.read_one(), &[&id]).await?;
        rows.first().map(Read::of).transpose()
    }
}

/// Two changes of one record cannot be in one statement.
fn each_once(jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let mut seen = HashSet::with_capacity(jobs.len());
    jobs.into_iter().partition(|job| seen.insert(job.id()))
}

/// Answers those that were written, and gives back the others.
fn answer_written(jobs: Vec<Job>, written: &HashMap<Digest, Timestamp>) -> Vec<Job> {
    let mut left = Vec::new();
    for job in jobs {
        match written.get(&job.id()) {
            Some(at) => job.answer(Ok(Applied::Written { at: *at })),
            None => left.push(job),
        }
    }
    left
}

type Written = Result<HashMap<Digest, Timestamp>, Trouble>;

async fn claim_many(link: &Link, jobs: &[Job]) -> Written {
    let (mut ids, mut fences, mut executions, mut states) = (vec![], vec![], vec![], vec![]);
    let (mut ttls, mut sweeps, mut retains) = (vec![], vec![], vec![]);
    let (mut scopes, mut operations, mut bodies) = (vec![], vec![], vec![]);
    for Job { work, .. } in jobs {
        let ((id, fence, execution), (scope, operation)) = (keys(work), work.names());
        ids.push(id);
        fences.push(fence);
        executions.push(execution);
        states.push(work.state());
        ttls.push(work.ttl_micros().map(Interval));
        sweeps.push(work.sweep_micros.map(Interval));
        retains.push(work.retain_micros.map(Interval));
        scopes.push(scope);
        operations.push(operation);
        bodies.push(work.proposal.body.as_slice());
    }
    let parameters: [&(dyn ToSql + Sync); 10] = [
        &ids,
        &fences,
        &executions,
        &states,
        &ttls,
        &sweeps,
        &retains,
        &scopes,
        &operations,
        &bodies,
    ];
    written(&link.write(&sql::CLAIM_MANY, &parameters).await?)
}

async fn end_many(link: &Link, jobs: &[Job], dialect: Dialect) -> Written {
    let (mut ids, mut expected, mut fences) = (vec![], vec![], vec![]);
    let (mut states, mut ttls, mut bodies) = (vec![], vec![], vec![]);
    for Job { work, .. } in jobs {
        ids.push(work.proposal.id.0.as_slice());
        expected.push(work.expected().map(uuid_of));
        fences.push(uuid_of(work.proposal.fence));
        states.push(work.state());
        ttls.push(work.ttl_micros().map(Interval));
        bodies.push(work.proposal.body.as_slice());
    }
    let parameters: [&(dyn ToSql + Sync); 6] = [&ids, &expected, &fences, &states, &ttls, &bodies];
    written(&link.write(dialect.end_many(), &parameters).await?)
}

fn written(rows: &[Row]) -> Written {
    rows.iter().map(written_one).collect::<Result<_, _>>().map_err(|error| Trouble::of(&error))
}

fn written_one(row: &Row) -> Result<(Digest, Timestamp), tokio_postgres::Error> {
    let id: &[u8] = row.try_get(0)?;
    Ok((Digest(id.try_into().unwrap_or_default()), timestamp(row.try_get(1)?)))
}

/// `None`: something else is stored.
async fn change_one(link: &Link, work: &Work) -> Result<Option<Timestamp>, Trouble> {
    let rows = match work.kind {
        ChangeKind::Claim => {
            let (id, fence, execution) = keys(work);
            let (scope, operation) = work.names();
            let parameters: [&(dyn ToSql + Sync); 10] = [
                &id,
                &fence,
                &execution,
                &work.state(),
                &work.ttl_micros().map(Interval),
                &work.sweep_micros.map(Interval),
                &work.retain_micros.map(Interval),
                &scope,
                &operation,
                &work.proposal.body.as_slice(),
            ];
            link.write(&sql::CLAIM, &parameters).await?
        }
        ChangeKind::End => {
            let (id, fence, _) = keys(work);
            let parameters: [&(dyn ToSql + Sync); 6] = [
                &id,
                &work.expected().map(uuid_of),
                &fence,
                &work.state(),
                &work.ttl_micros().map(Interval),
                &work.proposal.body.as_slice(),
            ];
            link.write(&sql::END, &parameters).await?
        }
        ChangeKind::Change => change(link, work).await?,
    };
    let row = rows.first().map(written_one).transpose().map_err(|error| Trouble::of(&error))?;
    Ok(row.map(|(_, at)| at))
}

async fn change(link: &Link, work: &Work) -> Result<Vec<Row>, Trouble> {
    let (id, fence, execution) = keys(work);
    let note = work.proposal.note.as_ref();
    let by = note.map(|note| Uuid::from_bytes(*note.execution.as_bytes()));
    let parameters: [&(dyn ToSql + Sync); 14] = [
        &id,
        &work.expected().map(uuid_of),
        &fence,
        &execution,
        &work.state(),
        &(work.proposal.started == Started::Now),
        &work.ttl_micros().map(Interval),
        &work.retain_micros.map(Interval),
        &work.sweep_micros.map(Interval),
        &work.proposal.body.as_slice(),
        &note.map(|note| note.kind.as_str()),
        &by,
        &note.and_then(|note| note.actor.as_deref()),
        &note.and_then(|note| note.reason.as_deref()),
    ];
    link.write(&sql::CHANGE, &parameters).await
}

fn keys(work: &Work) -> (&[u8], Uuid, Uuid) {
    let proposal = &work.proposal;
    let execution = Uuid::from_bytes(*proposal.execution.as_bytes());
    (&proposal.id.0, uuid_of(proposal.fence), execution)
}
