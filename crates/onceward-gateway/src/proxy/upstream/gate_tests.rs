//! The gate with hyper around it and a slow upstream behind it.

use std::{future::poll_fn, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{
    io::{AsyncReadExt as _, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    time::{advance, sleep},
};
use tower_service::Service as _;

use super::*;
use crate::proxy::upstream::sockets::Sockets;

const SECOND: Duration = Duration::from_secs(1);
const SIZE: usize = 1 << 20;

fn order() -> Request<Full<Bytes>> {
    Request::post("/pay").header("host", "x").body(Full::new(Bytes::from(vec![7; SIZE]))).unwrap()
}

/// With a pipe for the kernel.
fn gated(stream: DuplexStream) -> Gated<DuplexStream> {
    Gated::closed_by(TokioIo::new(stream), |_, _| {})
}

fn write(gate: &Gate) -> bool {
    matches!(gate.write(|| Poll::Ready(Ok(1))), Poll::Ready(Ok(1)))
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_reads_slowly_gets_nothing_after_the_deadline() {
    const KERNEL: usize = 16 << 10;
    let (ours, mut upstream) = duplex(KERNEL);
    let gated = gated(ours);
    let gate = gated.gate.clone();
    let (mut sender, connection) = http1::handshake(gated).await.unwrap();
    let task = tokio::spawn(connection);
    gate.exclusive(task.abort_handle());
    let pass = gate.begin(Deadline::within(SECOND)).unwrap();
    let sent = tokio::spawn(sender.send_request(order()));
    let mut read = vec![0; SIZE / 4];
    upstream.read_exact(&mut read).await.unwrap();
    sleep(SECOND).await;
    let mut rest = Vec::new();
    upstream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() <= KERNEL, "{} bytes left after the deadline", rest.len());
    assert!(sent.await.unwrap().is_err());
    assert!(!pass.give_up(), "a part of it has left");
}

#[tokio::test]
async fn the_kernel_throws_away_what_it_has_of_a_request_that_is_given_up() {
    let (gated, mut upstream) = connected().await;
    let gate = gated.gate.clone();
    let (mut sender, connection) = http1::handshake(gated).await.unwrap();
    let task = tokio::spawn(connection);
    gate.exclusive(task.abort_handle());
    let pass = gate.begin(Deadline::within(SECOND * 60)).unwrap();
    let sent = tokio::spawn(sender.send_request(order()));
    upstream.read_exact(&mut [0; 10]).await.unwrap();
    assert!(!pass.give_up(), "a part of it has left");
    assert!(sent.await.unwrap().is_err());
    let error = upstream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_its_connection() {
    let gate = Arc::<Gate>::default();
    let task = tokio::spawn(std::future::pending::<()>());
    gate.exclusive(task.abort_handle());
    let pass = gate.begin(Deadline::within(SECOND)).unwrap();
    assert!(write(&gate) && gate.is_open());
    drop(pass);
    assert!(!write(&gate) && !gate.is_open());
    assert!(task.await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn nothing_of_what_is_given_up_unwritten_leaves_later() {
    let gate = Arc::<Gate>::default();
    gate.exclusive(tokio::spawn(std::future::pending::<()>()).abort_handle());
    assert!(write(&gate), "a handshake, say");
    let pass = gate.begin(Deadline::within(SECOND)).unwrap();
    assert!(pass.give_up(), "certainly nothing was sent");
    assert!(!write(&gate));
}

#[tokio::test(start_paused = true)]
async fn on_a_shared_connection_a_given_up_request_leaves_its_deadline_behind() {
    let gate = Arc::<Gate>::default();
    let answered = gate.begin(Deadline::within(SECOND)).unwrap();
    answered.answered();
    advance(SECOND).await;
    assert!(write(&gate) && gate.is_open(), "what was answered binds nothing");

    let given_up = gate.begin(Deadline::within(SECOND)).unwrap();
    let other = gate.begin(Deadline::within(SECOND * 60)).unwrap();
    assert!(!given_up.give_up(), "it may still be in a queue");
    assert!(!gate.is_open(), "no other request joins it");
    assert!(write(&gate), "the others go on meanwhile");
    advance(SECOND).await;
    assert!(!write(&gate), "what is in the queue must not leave");
    assert!(!other.give_up(), "a byte has left since it began: of what, the gate cannot tell");
}

#[tokio::test(start_paused = true)]
async fn what_is_late_is_not_begun() {
    let (gate, deadline) = (Arc::<Gate>::default(), Deadline::within(SECOND));
    advance(SECOND).await;
    assert!(gate.begin(deadline).is_err());
    assert!(gate.is_open() && write(&gate), "others may use the connection");
}

/// A connection of TCP, with its other end.
async fn connected() -> (Gated<Socket>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut connector = Sockets::new(1).bound(HttpConnector::new(), SECOND * 60);
    let gated = Gated::new(connector.call(upstream).await.unwrap());
    let (upstream, _) = listener.accept().await.unwrap();
    (gated, upstream)
}

async fn end(gated: &mut Gated<Socket>) -> io::Result<()> {
    poll_fn(|context| Pin::new(&mut *gated).poll_shutdown(context)).await
}

#[tokio::test]
async fn only_a_connection_without_open_requests_is_closed_in_order() {
    // As when the process is killed.
    let (gated, mut upstream) = connected().await;
    drop(gated);
    let error = upstream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let (mut gated, mut upstream) = connected().await;
    gated.gate.begin(Deadline::within(SECOND * 60)).unwrap().answered();
    end(&mut gated).await.unwrap();
    drop(gated);
    assert_eq!(upstream.read_to_end(&mut Vec::new()).await.unwrap(), 0);

    // On a connection of HTTP/2: the request may be in the kernel.
    let (mut gated, mut upstream) = connected().await;
    drop(gated.gate.begin(Deadline::within(SECOND * 60)).unwrap());
    end(&mut gated).await.unwrap();
    drop(gated);
    let error = upstream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let (mut gated, _upstream) = connected().await;
    gated.gate.state().is_shut = true;
    assert!(end(&mut gated).await.is_err());
}
