//! The service that is crashed: a payments API behind the real layer, with its records in SQLite or in Redis.
//!
//! `POST /charges` with `x-tenant` (whose operation it is), `Idempotency-Key`, `x-operation` (what the
//! client has in mind, so that the ledger can tell) and the payload as body. The answer is `201` and
//! repeats the payload.

mod bug;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post,
};
use onceward::{
    CommitError, Effect, Engine, Scope, crashpoint,
    server::{Claim, Completed, Idempotency, InFlight},
    store::{
        Spool,
        redis::{OpenError, RedisStore},
        sqlite::SqliteStore,
    },
};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

pub use bug::Bug;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the service is started with.
#[derive(Clone, Debug, clap::Parser)]
pub struct Arguments {
    /// The database file, of the shop and of the records.
    #[arg(long)]
    pub database: PathBuf,
    /// The address of a Redis server for the records, which are in the database file otherwise.
    #[arg(long)]
    pub redis: Option<String>,
    /// Where the payment provider listens.
    #[arg(long)]
    pub provider: SocketAddr,
    /// What is at stake.
    #[arg(long, value_enum)]
    pub effect: Stake,
    /// Which driver commits a transactional effect.
    #[arg(long, value_enum, default_value = "sqlx")]
    pub driver: Driver,
    /// How long a claim lives without being renewed, in milliseconds.
    #[arg(long, default_value = "1000")]
    pub lease: u64,
    /// Lets one thread do everything, so that a step that stalls stalls the whole process.
    #[arg(long)]
    pub single_thread: bool,
    /// A mistake that the checker must find.
    #[arg(long, value_enum)]
    pub bug: Option<Bug>,
}

/// What is at stake: the kinds of [`Effect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stake {
    /// A row in the shop's own database.
    Transactional,
    /// A call to the provider, without a key.
    External,
    /// A call to the provider, with the derived key, which it honours.
    Repeatable,
}

impl Stake {
    fn effect(self) -> Effect {
        match self {
            Self::Transactional => Effect::Transactional,
            Self::External => Effect::External,
            Self::Repeatable => Effect::Repeatable { within: Duration::from_secs(3600) },
        }
    }
}

/// Which driver commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// Asynchronous.
    Sqlx,
    /// Blocking.
    Rusqlite,
}

/// Runs until the process is killed. Says `listening on <address>` when it is ready.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut runtime = match arguments.single_thread {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(serve(arguments))
}

/// How long a start waits for a server that does not answer.
const REDIS_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Shop {
    arguments: Arguments,
    pool: SqlitePool,
}

async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(address) = &arguments.redis {
        let store = open_redis(address).await?;
        return serve_on(arguments, Engine::new(store.clone()), store).await;
    }
    let store = SqliteStore::builder(&arguments.database).reserve_bytes(0).open()?;
    let engine = match arguments.bug {
        Some(bug) => bug.engine(store.clone()),
        None => Engine::new(store.clone()),
    };
    serve_on(arguments, engine, store).await
}

/// A server that was killed just now is soon there again.
async fn open_redis(address: &str) -> Result<RedisStore, OpenError> {
    let began = Instant::now();
    loop {
        match RedisStore::builder(address)?.accept_relaxed().open().await {
            Err(OpenError::Unreachable(_)) if began.elapsed() < REDIS_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return opened,
        }
    }
}

async fn serve_on(arguments: &Arguments, engine: Engine, spool: impl Spool) -> Result<(), Failure> {
    let options = SqliteConnectOptions::new().filename(&arguments.database);
    let pool = SqlitePool::connect_with(options.create_if_missing(true)).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS charge (operation TEXT NOT NULL, payload TEXT NOT NULL)",
    )
    .execute(&pool)
    .await?;
    let lease = Duration::from_millis(arguments.lease);
    let bug = arguments.bug;
    let options = Idempotency::builder(engine, tenant)
        .spool(spool)
        .effect(arguments.effect.effect())
        .require_key()
        // After a crash nearly all that comes is a retry, and how soon all have ended is looked at.
        .retry_share(1.0)
        .in_flight(InFlight::Conflict)
        .lease(lease);
    let idempotency = match bug {
        Some(bug) => bug.options(options).build()?,
        None => options.build()?,
    };
    let handler = bug.map_or_else(|| post(charge), Bug::handler);
    let app = Router::new().route("/charges", handler).layer(idempotency);
    let app = match bug {
        Some(bug) => bug.outside(app),
        None => app,
    };
    let shop = Shop { arguments: arguments.clone(), pool };
    let app = app.layer(middleware::from_fn(reply)).with_state(shop);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    axum::serve(listener, app).await?;
    Ok(())
}

fn announce(address: SocketAddr) -> io::Result<()> {
    use std::io::Write as _;
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {address}")?;
    out.flush()
}

fn tenant(request: &Parts) -> Result<Scope, &'static str> {
    let tenant = request.headers.get("x-tenant").and_then(|value| value.to_str().ok());
    Scope::of("tenant", tenant.ok_or("not signed in")?).map_err(|_| "not signed in")
}

/// The last step. A panic here closes the connection without an answer.
async fn reply(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let replied: Result<Response, io::Error> = crashpoint!("reply", Ok(response), broken());
    replied.expect("the connection is there")
}

async fn charge(
    State(shop): State<Shop>,
    claim: Claim,
    headers: HeaderMap,
    payload: String,
) -> Result<Response, CommitError> {
    let order = Order::of(&headers, payload);
    let charged = match (shop.arguments.effect, shop.arguments.driver) {
        (Stake::Transactional, Driver::Sqlx) => {
            return Ok(charge_with_sqlx(&shop, &claim, &order).await?.into_response());
        }
        (Stake::Transactional, Driver::Rusqlite) => {
            let charging =
                tokio::task::spawn_blocking(move || charge_with_rusqlite(&shop, &claim, &order));
            return Ok(charging.await.expect("it does not panic")?.into_response());
        }
        (Stake::External, _) => crashpoint!("effect", order.ask(&shop, "-").await, broken()),
        (Stake::Repeatable, _) => {
            let key = claim.key_for("charge");
            crashpoint!("effect", order.ask(&shop, key.as_str()).await, broken())
        }
    };
    Ok(match charged {
        Ok(()) => order.answer().into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    })
}

async fn charge_with_sqlx(
    shop: &Shop,
    claim: &Claim,
    order: &Order,
) -> Result<Completed, CommitError> {
    let failed = || CommitError::from(sqlx::Error::WorkerCrashed);
    let mut transaction = crashpoint!("own.begin", claim.begin(&shop.pool).await, failed())?;
    let insert = sqlx::query(INSERT).bind(&order.operation).bind(&order.payload);
    crashpoint!("effect", insert.execute(&mut *transaction).await, sqlx::Error::WorkerCrashed)?;
    claim.commit(transaction, order.answer()).await
}

fn charge_with_rusqlite(
    shop: &Shop,
    claim: &Claim,
    order: &Order,
) -> Result<Completed, CommitError> {
    let mut connection = rusqlite::Connection::open(&shop.arguments.database)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let failed = || rusqlite::Error::InvalidQuery;
    let transaction = crashpoint!(
        "own.begin",
        claim.begin_blocking(&mut connection),
        CommitError::from(failed())
    )?;
    let row = (&order.operation, &order.payload);
    crashpoint!("effect", transaction.execute(INSERT, row), failed())?;
    claim.commit_blocking(transaction, order.answer())
}

const INSERT: &str = "INSERT INTO charge (operation, payload) VALUES (?1, ?2)";

/// What the client has in mind.
struct Order {
    operation: String,
    payload: String,
}

impl Order {
    fn of(headers: &HeaderMap, payload: String) -> Self {
        let operation = headers.get("x-operation").and_then(|value| value.to_str().ok());
        Self { operation: operation.unwrap_or("none").to_owned(), payload }
    }

    fn answer(&self) -> (StatusCode, [(&'static str, String); 1], String) {
        let header = [("x-charged", self.operation.clone())];
        (StatusCode::CREATED, header, format!("charged {}", self.payload))
    }

    /// Asks the provider to charge, with this key or, if it is `-`, without one.
    async fn ask(&self, shop: &Shop, key: &str) -> io::Result<()> {
        let mut connection = TcpStream::connect(shop.arguments.provider).await?;
        let line = format!("{key} {} {}\n", self.operation, self.payload);
        connection.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(connection).read_line(&mut answer).await?;
        match answer.as_str() {
            "done\n" => Ok(()),
            _ => Err(broken()),
        }
    }
}

fn broken() -> io::Error {
    io::Error::other("the connection is gone")
}
