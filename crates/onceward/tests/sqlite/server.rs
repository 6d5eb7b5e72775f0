//! A service behind the layer that is killed with kill -9, and started again: real processes, of
//! this very program, with records in an SQLite file and a ledger of effects in another.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use axum::{Router, http::HeaderMap, routing};
use onceward::{
    Effect, Scope,
    server::{Idempotency, InFlight},
    store::sqlite::SqliteStore,
};
use tempfile::TempDir;
use testbed::{Process, TEST_TIMEOUT};

const DIRECTORY: &str = "ONCEWARD_TEST_DIRECTORY";
const EFFECT: &str = "ONCEWARD_TEST_EFFECT";
const LEASE: Duration = Duration::from_millis(500);

/// Does nothing unless another test has started this program.
#[tokio::test]
async fn a_child_of_another_test() {
    let (Ok(directory), Ok(effect)) = (env::var(DIRECTORY), env::var(EFFECT)) else { return };
    let directory = Path::new(&directory);
    let effect = match effect.as_str() {
        "external" => Effect::External,
        _ => Effect::Repeatable { within: Duration::from_secs(60) },
    };
    let store = SqliteStore::open(directory.join("onceward.db")).unwrap();
    let scope = |_: &_| Scope::of("tenant", "acme");
    let idempotency = Idempotency::builder(store, scope).effect(effect).lease(LEASE);
    let idempotency = idempotency.in_flight(InFlight::Conflict);
    let ledger = directory.join("ledger");
    let charge = async move |headers: HeaderMap| {
        let mut ledger = OpenOptions::new().append(true).create(true).open(&ledger).unwrap();
        ledger.write_all(b"charge\n").unwrap();
        if headers.contains_key("x-hang") {
            std::future::pending::<()>().await;
        }
        format!("charged by process {}", std::process::id())
    };
    let layer = idempotency.build().unwrap();
    let app = Router::new().route("/charges", routing::post(charge)).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut output = std::io::stdout();
    writeln!(output, "listening on {}", listener.local_addr().unwrap()).unwrap();
    output.flush().unwrap();
    axum::serve(listener, app).await.unwrap();
}

/// A service that runs until it is killed, at the latest when this is dropped.
struct Service {
    process: Process,
    address: SocketAddr,
}

impl Service {
    fn start(directory: &TempDir, effect: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "server::a_child_of_another_test", "--nocapture"]);
        command.env(DIRECTORY, directory.path()).env(EFFECT, effect);
        let process = Process::start(&mut command).unwrap();
        let address = process.stdout.wait_for_address().unwrap();
        Self { process, address }
    }

    /// On Unix this is SIGKILL: nothing is flushed, settled or closed.
    fn kill(self) {
        self.process.kill().unwrap();
    }

    /// Sends a request and does not wait for the answer.
    fn send(&self, key: &str, header: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).unwrap();
        connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\
             idempotency-key: {key}\r\n{header}\r\n"
        );
        connection.write_all(request.as_bytes()).unwrap();
        connection
    }

    /// The whole answer, as it is on the wire.
    fn ask(&self, key: &str) -> String {
        let mut answer = String::new();
        self.send(key, "").read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks until the operation is not in progress any more.
    fn ask_after_its_lease(&self, key: &str) -> String {
        until(|| Some(self.ask(key)).filter(|answer| !answer.contains("in-progress")))
    }
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn charges(directory: &TempDir) -> usize {
    fs::read_to_string(directory.path().join("ledger")).map_or(0, |ledger| ledger.lines().count())
}

/// Two charges: one that was answered, and one whose process was killed in the middle.
fn killed_in_the_middle(directory: &TempDir, effect: &str) -> String {
    let service = Service::start(directory, effect);
    let answer = service.ask("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let _connection = service.send("killed", "x-hang: 1\r\n");
    until(|| (charges(directory) == 2).then_some(()));
    service.kill();
    answer
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn after_kill_9_an_external_effect_is_unknown_and_an_answer_is_replayed() {
    let directory = TempDir::new().unwrap();
    let answer = killed_in_the_middle(&directory, "external");
    let service = Service::start(&directory, "external");
    let replay = service.ask("answered");
    assert!(replay.contains("idempotent-replayed: true"), "{replay}");
    assert_eq!(body(&replay), body(&answer));
    for _ in 0..3 {
        let retry = service.ask_after_its_lease("killed");
        assert!(retry.contains("409 Conflict") && retry.contains("outcome-unknown"), "{retry}");
    }
    assert_eq!(charges(&directory), 2, "nothing ran again");
}

#[test]
fn after_kill_9_a_repeatable_effect_runs_again_and_then_no_more() {
    let directory = TempDir::new().unwrap();
    killed_in_the_middle(&directory, "repeatable");
    let service = Service::start(&directory, "repeatable");
    let rerun = service.ask_after_its_lease("killed");
    assert!(rerun.starts_with("HTTP/1.1 200 OK") && !rerun.contains("replayed"), "{rerun}");
    let replay = service.ask("killed");
    assert!(replay.contains("idempotent-replayed: true"), "{replay}");
    assert_eq!((body(&replay), charges(&directory)), (body(&rerun), 3));
}
