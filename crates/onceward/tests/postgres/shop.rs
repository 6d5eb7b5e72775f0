//! A shop on PostgreSQL, its till with each driver, and what its customers are told.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use onceward::{
    Digest, Effect, Engine, Fingerprint, OperationId, Request, Status, Terms, Verdict,
    protocol::Claim,
    store::postgres::{PostgresStore, PostgresStoreBuilder},
};
use testbed::Database;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_postgres::{Client, NoTls};

use crate::{
    server_support::{self, charge},
    support::{age, connect, pool},
};

pub(crate) const INSERT: &str = "INSERT INTO charges (note) VALUES ('a charge')";

/// One database with the shop's own table, without any constraint, and the records.
pub(crate) struct Shop {
    pub(crate) store: PostgresStore,
    pub(crate) till: Till,
    pub(crate) database: Arc<Database>,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(
        choose: impl FnOnce(PostgresStoreBuilder) -> PostgresStoreBuilder,
    ) -> Self {
        Self::on(testbed::postgres().database(), choose).await
    }

    pub(crate) async fn on(
        database: Database,
        choose: impl FnOnce(PostgresStoreBuilder) -> PostgresStoreBuilder,
    ) -> Self {
        let database = Arc::new(database);
        database.sql("CREATE TABLE charges (id serial PRIMARY KEY, note text NOT NULL)");
        let store = choose(PostgresStore::builder(database.url()).unwrap()).open().await.unwrap();
        Self { store, till: Till::new(database.url()), database }
    }

    /// The store of another process on the same database.
    pub(crate) async fn another_store(&self) -> PostgresStore {
        PostgresStore::connect(self.database.url()).await.unwrap()
    }

    /// How many charges there really are.
    pub(crate) fn charges(&self) -> usize {
        self.count("charges")
    }

    pub(crate) fn count(&self, table: &str) -> usize {
        self.database.sql(&format!("SELECT count(*) FROM {table}")).trim().parse().unwrap()
    }

    /// What the record of a key means now.
    pub(crate) async fn status(&self, key: &str) -> Option<Status> {
        server_support::status(&self.store, key).await
    }

    /// Lets the lease of a claim run out.
    pub(crate) async fn abandon(&self, id: &Digest) {
        age(&self.database, id, Duration::from_secs(3600)).await;
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(self.database.url()).await
    }
}

/// The shop's own connections.
#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) url: String,
    pub(crate) deadpool: deadpool_postgres::Pool,
    pub(crate) sqlx: sqlx::PgPool,
}

impl Till {
    fn new(url: &str) -> Self {
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(8);
        let sqlx = options.connect_lazy(url).unwrap();
        Self { url: url.to_owned(), deadpool: pool(url), sqlx }
    }
}

pub(crate) fn request(key: &str) -> Request {
    request_of(charge(key))
}

fn request_of(operation: OperationId) -> Request {
    let fingerprints = Fingerprint::from_parts(1, [7; 32]).into();
    let terms = Terms::of(Effect::Transactional).build().unwrap();
    Request { operation, fingerprints, terms }
}

pub(crate) async fn admit(engine: &Engine, key: &str) -> Claim {
    match engine.admit(request(key)).await.unwrap() {
        Verdict::Run(claim) => claim,
        other => panic!("it does not run: {other:?}"),
    }
}

/// Counts how often a connection writes after it has read: its round trips.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    count: Arc<AtomicUsize>,
    has_read: Arc<AtomicBool>,
}

impl Turns {
    pub(crate) fn take(&self) -> usize {
        self.has_read.store(true, Ordering::SeqCst);
        self.count.swap(0, Ordering::SeqCst)
    }

    /// A connection whose round trips are counted.
    pub(crate) async fn connect(&self, url: &str) -> Client {
        let config: tokio_postgres::Config = url.parse().unwrap();
        let host = match &config.get_hosts()[0] {
            tokio_postgres::config::Host::Tcp(host) => host.clone(),
            tokio_postgres::config::Host::Unix(_) => panic!("tests connect by TCP"),
        };
        let stream = TcpStream::connect((host, config.get_ports()[0])).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let counted = Counted { stream, turns: self.clone() };
        let (client, connection) = config.connect_raw(counted, NoTls).await.unwrap();
        tokio::spawn(connection);
        self.take();
        client
    }
}

struct Counted {
    stream: TcpStream,
    turns: Turns,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if poll.is_ready() {
            self.turns.has_read.store(true, Ordering::SeqCst);
        }
        poll
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.turns.has_read.swap(false, Ordering::SeqCst) {
            self.turns.count.fetch_add(1, Ordering::SeqCst);
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
