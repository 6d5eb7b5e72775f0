//! A payments service that stops where it is told to, as a process of its own.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::post,
};
use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Process;
use tokio_postgres::NoTls;

use crate::gateway_support::{Pipe, eventually};

/// Where a run can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request has come.
    Received,
    /// The payment is written.
    Effect,
    /// The record is ended as well.
    Completed,
    /// Both are committed.
    Committed,
    /// A part of the answer is sent.
    Answering,
}

impl Step {
    pub(crate) const ALL: [Self; 5] =
        [Self::Received, Self::Effect, Self::Completed, Self::Committed, Self::Answering];

    pub(crate) fn is_committed(self) -> bool {
        matches!(self, Self::Committed | Self::Answering)
    }
}

/// Whether the service does what the guide says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    Taken,
    /// It commits its effect before it ends the record.
    NotTaken,
}

const ADDRESS: &str = "KILLED_SERVICE_ADDRESS";
const DATABASE: &str = "KILLED_SERVICE_DATABASE";
const STOPS_AT: &str = "KILLED_SERVICE_STOPS_AT";
const DIRECTORY: &str = "KILLED_SERVICE_DIRECTORY";
const CARE: &str = "KILLED_SERVICE_CARE";

/// The size of an answer: more than fits into the buffers between two programs.
pub(crate) const LARGE: usize = 6 << 20;

/// A running service; it is killed when this is dropped.
pub(crate) struct Service {
    process: Process,
    directory: TempDir,
}

impl Service {
    /// Its first request stops at this step.
    pub(crate) fn start(address: SocketAddr, database: &str, stops_at: Option<Step>) -> Self {
        Self::start_as(address, database, stops_at, Care::Taken)
    }

    pub(crate) fn start_as(
        address: SocketAddr,
        database: &str,
        stops_at: Option<Step>,
        care: Care,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stops_at = stops_at.map(|step| format!("{step:?}")).unwrap_or_default();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "kill::service::serves_if_it_is_told_to", "--nocapture"])
            .env(ADDRESS, address.to_string())
            .env(DATABASE, database)
            .env(STOPS_AT, stops_at)
            .env(DIRECTORY, directory.path())
            .env(CARE, format!("{care:?}"));
        let process = Process::start(&mut command).unwrap();
        process.wait_until_it_accepts(address).unwrap();
        Self { process, directory }
    }

    /// Waits until its first request has stopped.
    pub(crate) async fn stopped(&self) {
        let file = self.directory.path().join("stopped");
        eventually("the service stops", || async { file.exists() }).await;
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        std::fs::write(self.directory.path().join("resume"), "").unwrap();
    }

    /// Waits until its first request has ended, one way or the other.
    pub(crate) async fn ended(&self) {
        let file = self.directory.path().join("ended");
        eventually("the first request ends", || async { file.exists() }).await;
    }

    /// What kill -9 does.
    pub(crate) fn kill(self) {
        self.process.kill().unwrap();
    }
}

/// Not a test, but the service itself, when this program is started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_if_it_is_told_to() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let stops_at = env::var(STOPS_AT).unwrap();
    let running = Running {
        database: env::var(DATABASE).unwrap(),
        stops_at: Step::ALL.into_iter().find(|step| format!("{step:?}") == stops_at),
        directory: env::var_os(DIRECTORY).unwrap().into(),
        is_careless: env::var(CARE).unwrap() == format!("{:?}", Care::NotTaken),
        is_first: Arc::new(AtomicBool::new(true)),
    };
    let app = Router::new().route("/payments", post(pay)).with_state(running);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    axum::serve(listener, app).await.unwrap();
}

#[derive(Clone)]
struct Running {
    database: String,
    stops_at: Option<Step>,
    directory: PathBuf,
    is_careless: bool,
    is_first: Arc<AtomicBool>,
}

/// Where one request stops.
#[derive(Clone)]
struct Stops {
    at: Option<Step>,
    directory: PathBuf,
}

impl Stops {
    async fn pass(&self, step: Step) {
        if self.at != Some(step) {
            return;
        }
        std::fs::write(self.directory.join("stopped"), "").unwrap();
        let resume = self.directory.join("resume");
        while !Path::new(&resume).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn pay(
    State(running): State<Running>,
    headers: HeaderMap,
    Json(new): Json<Value>,
) -> Response {
    let is_first = running.is_first.swap(false, Ordering::SeqCst);
    let stops =
        Stops { at: running.stops_at.filter(|_| is_first), directory: running.directory.clone() };
    let execution = headers["onceward-execution"].to_str().unwrap().to_owned();
    // Whoever asked may be gone; what was begun goes on, as it does in most services.
    let directory = running.directory.clone();
    let paying = tokio::spawn(async move {
        let paid = charge(&running, &execution, new["cents"].as_i64().unwrap(), &stops).await;
        if is_first {
            std::fs::write(directory.join("ended"), "").unwrap();
        }
        (paid, stops)
    });
    match paying.await.unwrap() {
        (Ok(body), stops) => answer(body, stops),
        (Err(error), _) => {
            (http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

async fn charge(
    running: &Running,
    execution: &str,
    cents: i64,
    stops: &Stops,
) -> Result<Vec<u8>, tokio_postgres::Error> {
    stops.pass(Step::Received).await;
    let (mut client, connection) = tokio_postgres::connect(&running.database, NoTls).await?;
    tokio::spawn(connection);
    let mut transaction = client.transaction().await?;
    let insert = "INSERT INTO payment (cents, execution) VALUES ($1, $2) RETURNING id";
    let id: i64 = transaction.query_one(insert, &[&cents, &execution]).await?.get(0);
    if running.is_careless {
        transaction.commit().await?;
        transaction = client.transaction().await?;
    }
    stops.pass(Step::Effect).await;
    let mut body = json!({ "id": id, "cents": cents }).to_string().into_bytes();
    body.resize(body.len().max(if cents == LARGE as i64 { LARGE } else { 0 }), b' ');
    let headers = r#"[["content-type", "application/json"]]"#;
    let complete = "SELECT onceward.complete($1, 201, $2::text::jsonb, $3)";
    transaction.execute(complete, &[&execution, &headers, &body]).await?;
    stops.pass(Step::Completed).await;
    transaction.commit().await?;
    stops.pass(Step::Committed).await;
    Ok(body)
}

/// In two pieces.
fn answer(body: Vec<u8>, stops: Stops) -> Response {
    let (length, whole) = (body.len(), Bytes::from(body));
    let (sender, pieces) = Pipe::new();
    tokio::spawn(async move {
        let _ = sender.send(Frame::data(whole.slice(..5))).await;
        stops.pass(Step::Answering).await;
        let _ = sender.send(Frame::data(whole.slice(5..))).await;
    });
    let head = Response::builder().status(201).header("content-length", length);
    head.header("content-type", "application/json").body(Body::new(pieces)).unwrap()
}
