//! A connection, and what keeps one open.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use onceward_core::StoreError;
use tokio::{
    sync::{Mutex, OnceCell},
    task::AbortHandle,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Row, Socket, Statement,
    error::{DbError, Severity},
    tls::TlsStream,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Address, Dialect, OpenError,
    error::{Trouble, store_error},
    sql::{Query, SLOTS},
};
use crate::engine::Pause;

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How long a row may be held by another transaction before it is set aside.
const LOCK_TIMEOUT: &str = "50ms";

/// Where names without a schema are looked for, whatever role and database say: in no schema that
/// another role may write to. The statements depend on it no more than behind a pooler, where a read has
/// no session of its own; this is for what triggers and indexes on the tables may call.
pub(super) const SEARCH_PATH: &str = "pg_catalog, pg_temp";

/// After so long without an answer a connection is left to itself. The commit that it waits for is not
/// cancelled: the caller cannot know what becomes of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long callers get the error of a failed try to connect before there is another one: longer after each, and
/// not for all connections at the same time.
const FIRST_RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_RECONNECT_PAUSE: Duration = Duration::from_secs(2);

/// How often a statement that got in the way of another is sent at most.
pub(super) const MAX_RESENDS: u32 = 8;

/// A connection that was silent for so long when its caller gave up is not used again: the server may
/// hang, and a hanging one never closes anything.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many times in a row that is done: each may leave a session behind on the server.
const MAX_SILENT: usize = 8;

/// How long all servers of an address together may take, and each of them at least has.
const CONNECT_ALL_TIMEOUT: Duration = Duration::from_secs(8);
const CONNECT_ONE_TIMEOUT: Duration = Duration::from_secs(3);

/// Hears what other processes say.
pub(super) type OnNotification = Box<dyn Fn(&str) + Send + Sync>;

/// Everything that is needed to connect.
pub(super) struct ConnectOptions {
    pub(super) address: Address,
    pub(super) tls: MakeRustlsConnect,
    pub(super) dialect: Dialect,
    /// Whether statements are prepared and settings belong to the session: not behind a pooler.
    pub(super) prepares: bool,
    /// Whether a weaker `synchronous_commit` is left as it is.
    pub(super) accepts_relaxed: bool,
    pub(super) heard: OnceLock<OnNotification>,
    /// Which of the servers took writes when a connection was opened last: it is tried first.
    pub(super) latest: AtomicUsize,
    /// Counts up when a connection is silent for too long, or to another server than others: the older
    /// ones are then not used again.
    pub(super) generation: AtomicU64,
    /// How many connections in a row were silent for too long.
    pub(super) silent: AtomicUsize,
}

impl ConnectOptions {
    /// Lets every connection be opened anew.
    pub(super) fn renew_links(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn isolation(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => "read committed",
            Dialect::Wire => "serializable",
        }
    }

    /// Makes what this session acknowledges durable, whatever its role is set to, now or later.
    fn durable(&self, is_local: bool) -> String {
        if self.accepts_relaxed || self.dialect == Dialect::Wire {
            return String::new();
        }
        format!(
            "SELECT pg_catalog.set_config('synchronous_commit', \
             CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'remote_apply' \
             THEN 'remote_apply' ELSE 'on' END, {is_local})"
        )
    }

    /// Every statement finds its rows by an index. Statistics from when a table was nearly empty must not lead
    /// to another plan.
    fn by_index(&self, set: &str) -> String {
        match self.dialect {
            Dialect::Postgres => format!("{set} enable_seqscan = off"),
            Dialect::Wire => String::new(),
        }
    }

    fn session(&self) -> String {
        format!(
            "SET search_path = {SEARCH_PATH}; SET lock_timeout = '{LOCK_TIMEOUT}'; \
             SET default_transaction_isolation = '{}'; {}; {}",
            self.isolation(),
            self.by_index("SET"),
            self.durable(false)
        )
    }

    fn begin(&self) -> String {
        format!(
            "BEGIN ISOLATION LEVEL {}; SET LOCAL search_path = {SEARCH_PATH}; \
             SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {}; {}",
            self.isolation(),
            self.by_index("SET LOCAL"),
            self.durable(true)
        )
    }
}

/// One connection. Its statements are sent one behind the other and answered in that order.
pub(super) struct Link {
    pub(super) client: Client,
    /// Statements by their slots; `None`: they are sent unprepared, and settings go with each transaction.
    prepared: Option<[OnceCell<Statement>; SLOTS]>,
    begin: String,
    /// Behind a pooler only one caller at a time uses the connection: see [`Link::in_turn`]. `true`: the last
    /// one left before it had its answer.
    turn: Mutex<bool>,
    /// How often the server has said that a commit may not be replicated.
    doubts: Arc<AtomicU64>,
    is_spent: AtomicBool,
    how: Arc<ConnectOptions>,
    generation: u64,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closing is polite, but a statement that hangs would keep it open for ever.
        if self.is_spent.load(Ordering::Relaxed) {
            self.driver.abort();
        }
    }
}

impl Link {
    /// Tries one server after the other, first the one that took writes last.
    pub(super) async fn open(how: &Arc<ConnectOptions>) -> Result<Self, OpenError> {
        let servers = how.address.servers();
        let count = u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
        let patience = (CONNECT_ALL_TIMEOUT / count).max(CONNECT_ONE_TIMEOUT);
        let first = how.latest.load(Ordering::Relaxed) % servers.len().max(1);
        let mut failure = OpenError::Unreachable("the address names no server".to_owned());
        for place in (first..servers.len()).chain(0..first) {
            let opening = timeout(patience, Self::open_at(how, &servers[place])).await;
            let silent = |_| Err(OpenError::Unreachable(format!("no answer within {patience:?}")));
            match opening.unwrap_or_else(silent) {
                Ok(link) => {
                    how.latest.store(place, Ordering::Relaxed);
                    return Ok(link);
                }
                // That one cannot be reached says less than that another one does not want us.
                Err(error) if matches!(failure, OpenError::Unreachable(_)) => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    async fn open_at(how: &Arc<ConnectOptions>, server: &Config) -> Result<Self, OpenError> {
        let failed = |error: &tokio_postgres::Error| OpenError::from_driver(error);
        let generation = how.generation.load(Ordering::Relaxed);
        let connecting = server.connect(how.tls.clone()).await;
        let (client, connection) = connecting.map_err(|error| failed(&error))?;
        let doubts = Arc::new(AtomicU64::new(0));
        let driver = tokio::spawn(drive(connection, doubts.clone(), how.clone())).abort_handle();
        let link = Self {
            client,
            prepared: how.prepares.then(|| std::array::from_fn(|_| OnceCell::new())),
            begin: how.begin(),
            turn: Mutex::default(),
            doubts,
            is_spent: AtomicBool::new(false),
            how: how.clone(),
            generation,
            driver,
        };
        if how.prepares {
            link.client.batch_execute(&how.session()).await.map_err(|error| failed(&error))?;
        }
        Ok(link)
    }

    /// Sends a statement that only reads.
    pub(super) async fn read(
        &self,
        query: &Query,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self.answered(again_if_undone(|| self.send(query, parameters))).await?;
        rows.map_err(|error| self.noted(&error))
    }

    /// Sends a statement that is rarely needed: unprepared, with the types of its parameters.
    pub(super) async fn ask(
        &self,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StoreError> {
        let asking = || self.in_turn(self.client.query_typed(text, parameters));
        self.answered(again_if_undone(asking)).await?.map_err(|error| self.noted(&error))
    }

    /// Sends a statement that writes, and waits until it is durable as the server promises.
    pub(super) async fn write(
        &self,
        query: &Query,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Trouble> {
        let doubts = self.doubts.load(Ordering::Acquire);
        let rows = self.answered(self.send_to_write(query, parameters)).await;
        let rows = rows.map_err(Trouble::Failed)?.map_err(|error| {
            self.note(&error);
            Trouble::of(&error)
        })?;
        if self.doubts.load(Ordering::Acquire) != doubts {
            let text = "the wait for the standby was cancelled: the change is on this server, and may be \
                        missing on the one that replaces it";
            return Err(Trouble::Failed(StoreError::Unavailable(text.to_owned())));
        }
        Ok(rows)
    }

    /// Waits for an answer, but not for ever; also when the caller stops waiting, silence is noticed.
    async fn answered<T>(&self, asking: impl Future<Output = T>) -> Result<T, StoreError> {
        let waiting = Waiting { link: self, since: Instant::now(), is_over: false };
        let answer = timeout(ANSWER_TIMEOUT, asking).await;
        waiting.ends(answer.is_ok());
        answer.map_err(|_| StoreError::Unavailable(format!("no answer within {ANSWER_TIMEOUT:?}")))
    }

    async fn send_to_write(
        &self,
        query: &Query,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.prepared.is_some() {
            return self.send(query, parameters).await;
        }
        // All three are on their way before the first is answered; a statement that fails turns the
        // commit into a rollback.
        let change = async {
            let (begun, rows, committed) = tokio::join!(
                biased;
                self.client.batch_execute(&self.begin),
                self.send_unprepared(query, parameters),
                self.client.batch_execute("COMMIT"),
            );
            begun?;
            let rows = rows?;
            committed?;
            Ok(rows)
        };
        self.in_turn(change).await
    }

    async fn send(
        &self,
        query: &Query,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match &self.prepared {
            Some(prepared) => {
                let prepare = || self.client.prepare_typed(query.text, query.types);
                let statement = prepared[query.slot].get_or_try_init(prepare).await?;
                self.client.query(statement, parameters).await
            }
            None => self.in_turn(self.send_unprepared(query, parameters)).await,
        }
    }

    async fn send_unprepared(
        &self,
        query: &Query,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let typed: Vec<_> = parameters.iter().copied().zip(query.types.iter().cloned()).collect();
        self.client.query_typed(query.text, &typed).await
    }

    /// Sends nothing before the statement ahead of it was answered, where a pooler is between.
    ///
    /// PgBouncer gives the server's connection to another client when a transaction has ended, also while
    /// the first half of the next statement is on its way: the second half reaches another server process.
    async fn in_turn<T>(
        &self,
        sending: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        if self.prepared.is_some() {
            return sending.await;
        }
        let mut is_cut_off = self.turn.lock().await;
        if std::mem::replace(&mut *is_cut_off, true) {
            // Answered after everything that was sent before it, and too short to be sent in two halves.
            self.client.batch_execute("").await?;
        }
        let answer = sending.await;
        *is_cut_off = false;
        answer
    }

    /// Some errors say that this connection is of no use any more.
    fn note(&self, error: &tokio_postgres::Error) {
        let code = error.code().map_or("", |code| code.code());
        // A server that became a standby, statements that were prepared for other tables or on another
        // connection, a server that stops.
        let spent = ["25006", "0A000", "26000", "42P05", "57P01", "57P02", "57P03"];
        if error.is_closed() || spent.contains(&code) {
            self.is_spent.store(true, Ordering::Relaxed);
        }
    }

    fn noted(&self, error: &tokio_postgres::Error) -> StoreError {
        self.note(error);
        store_error(error)
    }

    /// Leaves a connection that hangs to itself, and looks for another server. The server keeps what was
    /// begun on it, perhaps for as long as its standby is away: so not too many of them.
    fn is_silent(&self) {
        let how = &self.how;
        if how.generation.load(Ordering::Relaxed) != self.generation {
            // Others have noticed it already, and newer connections are of no concern.
            self.is_spent.store(true, Ordering::Relaxed);
        } else if how.silent.fetch_add(1, Ordering::Relaxed) < MAX_SILENT {
            self.is_spent.store(true, Ordering::Relaxed);
            how.latest.fetch_add(1, Ordering::Relaxed);
            how.renew_links();
        }
    }

    fn is_usable(&self) -> bool {
        !self.client.is_closed()
            && !self.is_spent.load(Ordering::Relaxed)
            && self.generation == self.how.generation.load(Ordering::Relaxed)
    }
}

/// A caller waits for an answer of a connection.
struct Waiting<'a> {
    link: &'a Link,
    since: Instant,
    is_over: bool,
}

impl Waiting<'_> {
    fn ends(mut self, is_answered: bool) {
        self.is_over = is_answered;
        if is_answered {
            self.link.how.silent.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= SILENCE_TIMEOUT {
            self.link.is_silent();
        }
    }
}

/// Sends once more, a few times, what got in the way of another transaction and was undone.
async fn again_if_undone<F>(mut send: impl FnMut() -> F) -> Result<Vec<Row>, tokio_postgres::Error>
where
    F: Future<Output = Result<Vec<Row>, tokio_postgres::Error>>,
{
    let mut pause = Pause::default();
    for _ in 1..MAX_RESENDS {
        match send().await {
            Err(error) if matches!(Trouble::of(&error), Trouble::Undone(_)) => pause.wait().await,
            result => return result,
        }
    }
    send().await
}

/// Moves the bytes of a connection, and listens to what the server says besides.
async fn drive<S>(
    mut connection: Connection<Socket, S>,
    doubts: Arc<AtomicU64>,
    how: Arc<ConnectOptions>,
) where
    S: TlsStream + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            AsyncMessage::Notice(notice) if is_doubt(&notice) => {
                doubts.fetch_add(1, Ordering::AcqRel);
            }
            AsyncMessage::Notification(heard) => {
                if let Some(tell) = how.heard.get() {
                    tell(heard.payload());
                }
            }
            _ => {}
        }
    }
}

/// A commit whose wait for the standby is cancelled counts as a success, with a warning.
fn is_doubt(notice: &DbError) -> bool {
    let is_warning = notice.parsed_severity() == Some(Severity::Warning);
    is_warning && ["01000", "57P01"].contains(&notice.code().code())
}

/// A connection that is opened anew when it breaks.
pub(super) struct ReconnectingLink {
    how: Arc<ConnectOptions>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    failed: Option<Failed>,
}

struct Failed {
    error: OpenError,
    times: u32,
    until: Instant,
}

impl Failed {
    fn new(error: OpenError, before: u32) -> Self {
        let pause = (FIRST_RECONNECT_PAUSE * (1 << before.min(6))).min(LONGEST_RECONNECT_PAUSE);
        let until = Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        Self { error, times: before + 1, until }
    }
}

impl ReconnectingLink {
    pub(super) fn new(how: &Arc<ConnectOptions>) -> Self {
        Self { how: how.clone(), state: Mutex::default() }
    }

    /// The connection as it is, or a new one. A caller that comes while one is being opened waits for it;
    /// one that comes shortly after that failed gets its error.
    pub(super) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        let mut state = self.state.lock().await;
        if let Some(link) = state.link.as_ref().filter(|link| link.is_usable()) {
            return Ok(link.clone());
        }
        state.link = None;
        if let Some(failed) = state.failed.as_ref().filter(|failed| Instant::now() < failed.until) {
            return Err(unreachable(&failed.error));
        }
        match Link::open(&self.how).await {
            Ok(link) => {
                state.failed = None;
                Ok(state.link.insert(Arc::new(link)).clone())
            }
            Err(error) => {
                let unreachable = unreachable(&error);
                let before = state.failed.as_ref().map_or(0, |failed| failed.times);
                state.failed = Some(Failed::new(error, before));
                Err(unreachable)
            }
        }
    }
}

/// Without a connection nothing was sent, but an earlier try may have been.
fn unreachable(error: &OpenError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
