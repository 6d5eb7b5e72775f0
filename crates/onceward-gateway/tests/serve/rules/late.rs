//! Rule 15: what an operator may give free without force cannot happen any more. The first request waits
//! for its connection, or for a stream of HTTP/2, until its key was given free and a retry has run.

use std::{
    fs,
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    gateway_support::{
        Call, Certificates, Gateway, Plan, Signal, TEST_TIMEOUT, eventually, route, route_for,
    },
    rules::pay,
};

/// A run that is soon over, on a route whose requests may take longer than that.
const SOON_OVER: &str = "lease = \"200ms\"\nmax_run = \"600ms\"";

/// What an upstream did, told by itself.
#[derive(Clone)]
struct Ledger {
    paid: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl Ledger {
    fn new() -> Self {
        Self { paid: Arc::default(), connections: Arc::default() }
    }

    fn paid(&self) -> u64 {
        self.paid.load(Ordering::SeqCst)
    }

    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let service = service_fn(move |request: Request<Incoming>| {
            let ledger = self.clone();
            async move {
                request.into_body().collect().await?;
                ledger.paid.fetch_add(1, Ordering::SeqCst);
                let response = Response::builder().status(201).body(Full::new(Bytes::from("done")));
                Ok::<_, hyper::Error>(response.unwrap())
            }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        // A gateway that hangs up early was counted above.
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

/// Waits until an operator may say, without force, that the operation did not happen, and says so.
/// It may also have given its key back by itself.
async fn give_free(gateway: &Gateway) {
    let list = Call::new("GET", "/v1/operations");
    eventually("the key is free", || async {
        let listed = gateway.ask(&list).await.json();
        let paying =
            listed["operations"].as_array().unwrap().iter().find(|operation| {
                operation["name"].as_str().is_some_and(|name| name.contains("/pay"))
            });
        let Some(paying) = paying.cloned() else { return false };
        if paying["state"] == "released" {
            return true;
        }
        let path = format!("/v1/operations/{}/resolve", paying["operation"].as_str().unwrap());
        let found = json!({"outcome": "not_applied", "reason": "the upstream has no such payment"});
        gateway.ask(&Call::post(&path).json(found)).await.status == 200
    })
    .await;
}

fn plan(upstream: &str, text: &str) -> Plan {
    Plan::new(upstream, &format!("admin = \"127.0.0.1:0\"\n{text}"))
}

/// Waits until everything that it began has come to an end.
async fn end(gateway: Gateway) {
    gateway.signal(Signal::TERM);
    tokio::task::spawn_blocking(move || gateway.wait_for_end()).await.unwrap();
}

/// A listener whose upstream does not accept yet, and connections that fill its queue: the kernel drops what
/// comes next.
async fn full() -> (TcpListener, SocketAddr, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let (address, mut waiting) = (listener.local_addr().unwrap(), Vec::new());
    let patience = Duration::from_millis(300);
    while let Ok(stream) = timeout(patience, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 100, "the queue has no end here");
    }
    (listener, address, waiting)
}

/// Whether a process waits for a connection to this address, by the kernel's own table.
fn is_connecting(address: SocketAddr) -> bool {
    const SYN_SENT: &str = "02";
    let port = format!(":{:04X}", address.port());
    fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns[2].ends_with(&port) && columns[3] == SYN_SENT
    })
}

fn accept(listener: TcpListener, ledger: &Ledger) {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(ledger.clone().serve(stream));
        }
    });
}

#[tokio::test]
async fn rule_15_a_connection_that_comes_up_late_sends_nothing() {
    let ((listener, address, waiting), ledger) = (full().await, Ledger::new());
    let gateway = plan(&format!("http://{address}"), &route(SOON_OVER)).start();
    let first = gateway.begin(&pay("k"));
    give_free(&gateway).await;
    assert_eq!(ledger.paid(), 0);
    drop(waiting);
    accept(listener, &ledger);
    assert_eq!(gateway.send(&pay("k")).await.status, 201);
    assert!(gateway.send(&pay("k")).await.is_replay());
    first.await.unwrap();
    end(gateway).await;
    assert_eq!(ledger.paid(), 1, "the first request was sent late");
}

/// What the kernel has taken would go on leaving for as long as the connection is open.
#[tokio::test]
async fn rule_15_a_request_is_given_up_when_its_claim_ends_though_its_time_does_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = format!("{SOON_OVER}\ntimeout = \"5m\"");
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let gateway = plan(&upstream, &route(&options)).start();
    let first = gateway.begin(&pay("k"));
    let (mut stream, _) = listener.accept().await.unwrap();
    let end = timeout(TEST_TIMEOUT, stream.read_to_end(&mut Vec::new())).await.expect("it goes on");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(first.await.unwrap().problem(), (504, "outcome-unknown".into()));
}

#[tokio::test]
async fn rule_15_a_gateway_that_was_asleep_while_it_connected_sends_nothing() {
    let ((listener, address, waiting), ledger) = (full().await, Ledger::new());
    // Longer than a busy machine takes to stop the process while it connects.
    let soon_over = "lease = \"200ms\"\nmax_run = \"3s\"";
    let plan = plan(&format!("http://{address}"), &route(soon_over));
    let asleep = plan.start();
    let awake = plan.beside(&asleep).start();
    let first = asleep.begin(&pay("k"));
    eventually("it connects", async || is_connecting(address)).await;
    asleep.signal(Signal::STOP);
    give_free(&awake).await;
    let fillers = waiting.len() as u64;
    drop(waiting);
    accept(listener, &ledger);
    assert_eq!(awake.send(&pay("k")).await.status, 201);
    eventually("the kernel has connected for it", async || {
        ledger.connections.load(Ordering::SeqCst) == fillers + 2
    })
    .await;
    asleep.signal(Signal::CONT);
    first.await.unwrap();
    end(asleep).await;
    assert_eq!(ledger.paid(), 1, "the first request was sent late");
    assert!(awake.send(&pay("k")).await.is_replay());
}

/// The upstream's word that it has never seen the request counts as an operator's does.
#[tokio::test]
async fn rule_15_what_the_upstream_never_saw_is_not_sent_after_it_said_so() {
    let ((listener, address, waiting), ledger) = (full().await, Ledger::new());
    let (asked, reconcile) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let url = asked_what_became(asked.clone(), reconcile.clone()).await;
    let soon_over = format!("lease = \"200ms\"\nmax_run = \"3s\"\nreconcile = \"{url}\"");
    let plan = plan(&format!("http://{address}"), &route(&soon_over));
    let asleep = plan.start();
    let awake = plan.beside(&asleep).start();
    let first = asleep.begin(&pay("k"));
    eventually("it connects", async || is_connecting(address)).await;
    asleep.signal(Signal::STOP);
    eventually("its claim is over", async || {
        awake.send(&pay("k")).await;
        asked.load(Ordering::SeqCst) > 0
    })
    .await;
    let fillers = waiting.len() as u64;
    drop(waiting);
    accept(listener, &ledger);
    reconcile.store(true, Ordering::SeqCst);
    eventually("a retry has run", async || awake.send(&pay("k")).await.status == 201).await;
    eventually("the kernel has connected for it", async || {
        ledger.connections.load(Ordering::SeqCst) == fillers + 2
    })
    .await;
    asleep.signal(Signal::CONT);
    first.await.unwrap();
    end(asleep).await;
    assert_eq!(ledger.paid(), 1, "the first request was sent late");
}

/// Somebody who is asked what became of an operation, and says that it never came when it is known.
async fn asked_what_became(asked: Arc<AtomicU64>, is_known: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/reconcile", listener.local_addr().unwrap());
    let service = service_fn(move |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        let outcome = if is_known.load(Ordering::SeqCst) { "never" } else { "unknown" };
        let answer = json!({ "outcome": outcome }).to_string();
        async { Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(answer)))) }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn rule_15_a_handshake_that_ends_late_sends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    if Certificates::make(directory.path(), &[]).is_none() {
        return;
    }
    let tls = TlsAcceptor::from(Arc::new(Certificates::server(directory.path())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = directory.path().join("ca.pem");
    let upstream = format!("https://{}", listener.local_addr().unwrap());
    let gateway = plan(&upstream, &route(SOON_OVER))
        .variable("SSL_CERT_FILE", authority.to_str().unwrap())
        .start();
    let first = gateway.begin(&pay("k"));
    let (slow, _) = listener.accept().await.unwrap();
    give_free(&gateway).await;
    let ledger = Ledger::new();
    let serve = |stream| {
        let (ledger, tls) = (ledger.clone(), tls.clone());
        async move {
            // A gateway that has given up is not there any more.
            if let Ok(stream) = tls.accept(stream).await {
                ledger.serve(stream).await;
            }
        }
    };
    let again = gateway.begin(&pay("k"));
    let (stream, _) = listener.accept().await.unwrap();
    tokio::spawn(serve(stream));
    assert_eq!(again.await.unwrap().status, 201);
    tokio::spawn(serve(slow));
    first.await.unwrap();
    end(gateway).await;
    assert_eq!(ledger.paid(), 1, "the first request was sent late");
}

/// An upstream of HTTP/2 that grants one stream, and answers it when it may: RFC 9113, section 6.
/// Gives how many requests came after that.
async fn one_stream(
    mut stream: TcpStream,
    holding: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
) -> u32 {
    const SETTINGS: [u8; 24] =
        [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 4, 1, 0, 0, 0, 0];
    const DONE: [u8; 10] = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&SETTINGS).await.unwrap();
    let (mut head, mut late, mut is_first) = ([0; 9], 0, true);
    while stream.read_exact(&mut head).await.is_ok() {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        if stream.read_exact(&mut vec![0; length]).await.is_err() {
            break;
        }
        match (head[3] == HEADERS, is_first) {
            (true, true) => {
                is_first = false;
                holding.add_permits(1);
                let _may = may_answer.acquire().await;
                // On a busy machine the gateway may have given the connection up.
                let _ = stream.write_all(&DONE).await;
            }
            (true, false) => late += 1,
            (false, _) => {}
        }
    }
    late
}

#[tokio::test]
async fn rule_15_a_request_that_waits_for_a_stream_is_not_sent_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let paying = route(&format!("{SOON_OVER}\ntimeout = \"300ms\""));
    let text = format!("{paying}{}", route_for("POST /hold", ""));
    let gateway = plan(&format!("h2c://{}", listener.local_addr().unwrap()), &text).start();
    let held = gateway.begin(&pay("held").retarget("POST", "/hold"));
    let (stream, _) = listener.accept().await.unwrap();
    let (holding, may_answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let upstream = tokio::spawn(one_stream(stream, holding.clone(), may_answer.clone()));
    let _holding = holding.acquire().await;
    // It has no body: its head is all of it.
    let pay = pay("k").retarget("POST", "/pay");
    let first = gateway.send(&pay).await;
    assert_eq!(first.problem(), (504, "outcome-unknown".into()));
    give_free(&gateway).await;
    may_answer.add_permits(1);
    held.await.unwrap();
    let ledger = Ledger::new();
    accept(listener, &ledger);
    assert_eq!(gateway.send(&pay).await.status, 201);
    end(gateway).await;
    assert_eq!(ledger.paid(), 1);
    assert_eq!(upstream.await.unwrap(), 0, "the first request was sent late");
}
