//! The threads that read. Each takes several waiting questions and answers them in one go.

use std::{path::Path, sync::Arc, thread::JoinHandle};

use onceward_core::{Cursor, Digest, Filter, Page, SpoolId, StoreError, TrailEntry};
use rusqlite::{Connection, OptionalExtension as _, Statement, params};
use tokio::sync::{mpsc, oneshot};

use super::{
    Census, OpenError,
    builder::Options,
    census,
    error::{before_commit, stopped},
    list, routes,
    rows::{Row, read_entry},
    schema,
    space::{Gone, Presence},
    sql,
};
use crate::{
    clock::Clock,
    store::sql::{
        codec::Codec,
        routes::{KeptRoute, Living},
    },
    telemetry::event,
};

/// How many questions a thread takes at once: they share the cost of one snapshot.
const MAX_QUESTIONS: usize = 32;

/// How many questions may wait inside; others wait outside.
const MAX_WAITING: usize = 4096;

/// The reading threads: requests wait for the one, operators for the other.
pub(super) struct Readers {
    requests: Reader,
    operators: Reader,
    presence: Arc<Presence>,
}

/// One reading thread; dropping it lets it answer what waits, and joins it.
struct Reader {
    queue: Option<mpsc::Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

enum Question {
    Get(Digest, Reply<Option<Row>>),
    Census(Reply<Census>),
    List(Filter, Reply<Page>),
    Trail(Digest, Reply<Vec<TrailEntry>>),
    Chunk(SpoolId, u32, Reply<Option<Vec<u8>>>),
    Routes(Reply<Vec<KeptRoute>>),
    Living(Option<Cursor>, Reply<Living>),
}

impl Readers {
    pub(super) fn start(options: &Options, presence: &Arc<Presence>) -> Result<Self, OpenError> {
        Ok(Self {
            requests: Reader::start(options)?,
            operators: Reader::start(options)?,
            presence: Arc::clone(presence),
        })
    }

    pub(super) async fn get(&self, id: Digest) -> Result<Option<Row>, StoreError> {
        self.presence.was_seen().map_err(Gone::into_error)?;
        self.requests.ask(|reply| Question::Get(id, reply)).await
    }

    pub(super) async fn chunk(
        &self,
        id: SpoolId,
        index: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.presence.was_seen().map_err(Gone::into_error)?;
        self.requests.ask(|reply| Question::Chunk(id, index, reply)).await
    }

    pub(super) async fn list(&self, filter: Filter) -> Result<Page, StoreError> {
        self.operators.ask(|reply| Question::List(filter, reply)).await
    }

    pub(super) async fn census(&self) -> Result<Census, StoreError> {
        self.operators.ask(Question::Census).await
    }

    pub(super) async fn trail(&self, id: Digest) -> Result<Vec<TrailEntry>, StoreError> {
        self.operators.ask(|reply| Question::Trail(id, reply)).await
    }

    pub(super) async fn routes(&self) -> Result<Vec<KeptRoute>, StoreError> {
        self.operators.ask(Question::Routes).await
    }

    pub(super) async fn living(&self, after: Option<Cursor>) -> Result<Living, StoreError> {
        self.operators.ask(|reply| Question::Living(after, reply)).await
    }
}

impl Reader {
    fn start(options: &Options) -> Result<Self, OpenError> {
        let connection = schema::open_reader(options)?;
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (clock, path) = (Arc::clone(&options.clock), options.path.clone());
        let codec = options.codec.clone();
        let thread = super::spawn(options, "reader", move || {
            run(&connection, waiting, &*clock, &path, &codec);
        })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(question(reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(
    connection: &Connection,
    mut waiting: mpsc::Receiver<Question>,
    clock: &dyn Clock,
    path: &Path,
    codec: &Codec,
) {
    let mut questions = Vec::with_capacity(MAX_QUESTIONS);
    let mut session = match Session::new(connection, clock, path, codec) {
        Ok(session) => session,
        Err(error) => {
            return tracing::error!(
                event = event::SQLITE_TROUBLE,
                "a reading thread could not start: {error}"
            );
        }
    };
    while waiting.blocking_recv_many(&mut questions, MAX_QUESTIONS) > 0 {
        session.answer(&mut questions);
    }
}

struct Session<'c> {
    connection: &'c Connection,
    clock: &'c dyn Clock,
    path: &'c Path,
    codec: &'c Codec,
    begin: Statement<'c>,
    end: Statement<'c>,
    get: Statement<'c>,
    chunk: Statement<'c>,
}

impl<'c> Session<'c> {
    fn new(
        connection: &'c Connection,
        clock: &'c dyn Clock,
        path: &'c Path,
        codec: &'c Codec,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            clock,
            path,
            codec,
            begin: connection.prepare(sql::BEGIN_READING)?,
            end: connection.prepare(sql::COMMIT)?,
            get: connection.prepare(sql::READ)?,
            chunk: connection.prepare(sql::READ_CHUNK)?,
        })
    }

    /// The snapshot is taken after the questions were: each sees what was acknowledged before it
    /// was asked. Without a snapshot in common every statement takes its own, which only costs time.
    fn answer(&mut self, questions: &mut Vec<Question>) {
        let together = questions.len() > 1 && self.begin.execute([]).is_ok();
        for question in questions.drain(..) {
            self.answer_one(question);
        }
        if together && let Err(error) = self.end.execute([]) {
            tracing::warn!(
                event = event::SQLITE_TROUBLE,
                "a read transaction could not be ended: {error}"
            );
        }
    }

    /// An asker that is gone needs no answer.
    fn answer_one(&mut self, question: Question) {
        match question {
            Question::Get(id, reply) => drop(reply.send(flat(self.get(&id)))),
            Question::List(filter, reply) => {
                let now = self.clock.now();
                drop(reply.send(list::list(self.connection, &filter, now, self.codec)));
            }
            Question::Census(reply) => {
                let now = self.clock.now();
                drop(reply.send(census::census(self.connection, self.path, now, self.codec)));
            }
            Question::Trail(id, reply) => drop(reply.send(self.trail(&id))),
            Question::Routes(reply) => drop(reply.send(routes::routes(self.connection))),
            Question::Living(after, reply) => {
                let now = self.clock.now();
                drop(reply.send(routes::living(self.connection, after.as_ref(), now)));
            }
            Question::Chunk(id, index, reply) => drop(reply.send(flat(self.chunk(&id, index)))),
        }
    }

    fn get(&mut self, id: &Digest) -> rusqlite::Result<Option<Row>> {
        let mut rows = self.get.query([id.0])?;
        rows.next()?.map(|row| Row::read(row, 0, self.clock.now())).transpose()
    }

    fn trail(&self, id: &Digest) -> Result<Vec<TrailEntry>, StoreError> {
        let mut statement = flat(self.connection.prepare(sql::TRAIL))?;
        let entries = flat(statement.query_map([id.0], read_entry))?;
        entries.map(|entry| flat(entry)?).collect()
    }

    fn chunk(&mut self, id: &SpoolId, index: u32) -> rusqlite::Result<Option<Vec<u8>>> {
        let (digest, fence) = (&id.operation.0, id.fence.as_bytes());
        self.chunk.query_row(params![digest, fence, index], |row| row.get(0)).optional()
    }
}

/// A read that failed has changed nothing.
pub(super) fn flat<T>(result: rusqlite::Result<T>) -> Result<T, StoreError> {
    result.map_err(|error| before_commit(&error))
}
