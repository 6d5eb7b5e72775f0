//! The threads that read. Each takes several waiting questions and answers them in one go.

use std::{path::PathBuf, sync::Arc};

use onceward_core::{Cursor, Digest, Filter, Page, SpoolId, StoreError, Timestamp, TrailEntry};
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::{mpsc, oneshot};

use super::{
    Census, OpenError, Thread,
    builder::Options,
    census,
    error::{before_commit, stopped},
    list, routes,
    rows::{Row, read_entry},
    schema, session,
    space::{LostFile, StoreFiles},
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

/// The reading threads: requests wait for the one, operators and relays for the other.
pub(super) struct Readers {
    requests: Reader,
    operators: Reader,
    presence: Arc<StoreFiles>,
}

/// One reading thread; dropping it lets it answer what waits, and joins it.
///
/// Dropped in this order: the thread ends when the queue has no sender.
struct Reader {
    queue: mpsc::Sender<Question>,
    _thread: Thread,
}

/// Sends its own answer. An asker that is gone needs none.
type Question = Box<dyn FnOnce(&Session) + Send>;

impl Readers {
    pub(super) fn start(options: &Options, presence: &Arc<StoreFiles>) -> Result<Self, OpenError> {
        Ok(Self {
            requests: Reader::start(options)?,
            operators: Reader::start(options)?,
            presence: Arc::clone(presence),
        })
    }

    pub(super) async fn get(&self, id: Digest) -> Result<Option<Row>, StoreError> {
        self.presence.was_seen().map_err(LostFile::into_error)?;
        self.requests.ask(move |session| flat(session.get(&id))).await
    }

    pub(super) async fn chunk(
        &self,
        id: SpoolId,
        index: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.presence.was_seen().map_err(LostFile::into_error)?;
        self.requests.ask(move |session| flat(session.chunk(&id, index))).await
    }

    pub(super) async fn list(&self, filter: Filter) -> Result<Page, StoreError> {
        let list = move |session: &Session| {
            list::list(&session.connection, &filter, session.clock.now(), &session.codec)
        };
        self.operators.ask(list).await
    }

    pub(super) async fn census(&self) -> Result<Census, StoreError> {
        let census = |session: &Session| {
            let Session { connection, clock, path, codec } = session;
            census::census(connection, path, clock.now(), codec)
        };
        self.operators.ask(census).await
    }

    /// Asks something about messages, by the time of the asking.
    pub(super) async fn messages<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.presence.was_seen().map_err(LostFile::into_error)?;
        self.operators.ask(move |session| question(&session.connection, session.clock.now())).await
    }

    pub(super) async fn trail(&self, id: Digest) -> Result<Vec<TrailEntry>, StoreError> {
        self.operators.ask(move |session| session.trail(&id)).await
    }

    pub(super) async fn routes(&self) -> Result<Vec<KeptRoute>, StoreError> {
        self.operators.ask(|session| routes::routes(&session.connection)).await
    }

    pub(super) async fn living(&self, after: Option<Cursor>) -> Result<Living, StoreError> {
        let living = move |session: &Session| {
            routes::living(&session.connection, after.as_ref(), session.clock.now())
        };
        self.operators.ask(living).await
    }
}

impl Reader {
    fn start(options: &Options) -> Result<Self, OpenError> {
        let session = Session {
            connection: schema::open_reader(options)?,
            clock: Arc::clone(&options.clock),
            path: options.path.clone(),
            codec: options.codec.clone(),
        };
        let (queue, mut waiting) = mpsc::channel(MAX_WAITING);
        let _thread = Thread::start(options, "reader", move || {
            let mut questions = Vec::with_capacity(MAX_QUESTIONS);
            while waiting.blocking_recv_many(&mut questions, MAX_QUESTIONS) > 0 {
                session.answer(&mut questions);
            }
        })?;
        Ok(Self { queue, _thread })
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Session) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question = Box::new(move |session: &Session| drop(reply.send(question(session))));
        self.queue.send(question).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

struct Session {
    connection: Connection,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    codec: Codec,
}

impl Session {
    /// The snapshot is taken after the questions were: each sees what was acknowledged before it
    /// was asked. Without a snapshot in common every statement takes its own, which only costs time.
    fn answer(&self, questions: &mut Vec<Question>) {
        let together = questions.len() > 1 && self.execute(sql::BEGIN_READING).is_ok();
        for question in questions.drain(..) {
            question(self);
        }
        if together && let Err(error) = self.execute(sql::COMMIT) {
            tracing::warn!(
                event = event::SQLITE_TROUBLE,
                "a read transaction could not be ended: {error}"
            );
        }
    }

    fn execute(&self, text: &str) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(text)?.execute([])
    }

    fn get(&self, id: &Digest) -> rusqlite::Result<Option<Row>> {
        session::read(&self.connection, id, self.clock.now())
    }

    fn trail(&self, id: &Digest) -> Result<Vec<TrailEntry>, StoreError> {
        let mut statement = flat(self.connection.prepare(sql::TRAIL))?;
        let entries = flat(statement.query_map([id.0], read_entry))?;
        entries.map(|entry| flat(entry)?).collect()
    }

    fn chunk(&self, id: &SpoolId, index: u32) -> rusqlite::Result<Option<Vec<u8>>> {
        let (digest, fence) = (&id.operation.0, id.fence.as_bytes());
        let mut chunk = self.connection.prepare_cached(sql::READ_CHUNK)?;
        chunk.query_row(params![digest, fence, index], |row| row.get(0)).optional()
    }
}

/// A read that failed has changed nothing.
pub(super) fn flat<T>(result: rusqlite::Result<T>) -> Result<T, StoreError> {
    result.map_err(|error| before_commit(&error))
}
