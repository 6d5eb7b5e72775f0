//! Upgrades that do not happen: every client gets an answer, and no outcome is silently unknown.

use h2::{Reason, client, ext::Protocol};
use http::{Method, Request, Version as HttpVersion};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use super::{ask, asking, rest, upstream};
use crate::gateway_support::{
    Call, Gateway, Plan, Reply, TEST_TIMEOUT, Upstream, read_until, route,
};

async fn gateway_before(answer: &'static str) -> Gateway {
    let address = upstream::answering(answer).await;
    Plan::new(&format!("http://{address}"), &route("")).start()
}

#[tokio::test]
async fn an_upstream_that_refuses_is_heard_and_the_connection_goes_on() {
    for (answer, kept) in [
        (
            "HTTP/1.1 426 Upgrade Required\r\nconnection: upgrade, x-theirs\r\nx-theirs: 1\r\n\
             upgrade: chat/2\r\nsec-websocket-version: 13\r\ncontent-length: 4\r\n\r\nno 4",
            &["connection: upgrade", "upgrade: chat/2", "sec-websocket-version: 13"][..],
        ),
        (
            "HTTP/1.1 400 Bad Request\r\nconnection: keep-alive\r\nupgrade: chat/2\r\n\
             content-length: 4\r\n\r\nno 4",
            &[][..],
        ),
    ] {
        let gateway = gateway_before(answer).await;
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        for _ in 0..3 {
            client.write_all(asking("chat/1", "").as_bytes()).await.unwrap();
            let told = read_until(&mut client, "no 4").await;
            assert!(told.starts_with(&answer[..12]), "{told}");
            let about: Vec<_> = told.lines().filter(|line| kept.contains(line)).collect();
            assert_eq!(about.len(), kept.len(), "{told}");
            assert!(!told.contains("x-theirs") && !told.contains("keep-alive"), "{told}");
            assert_eq!(told.contains("upgrade: "), !kept.is_empty(), "{told}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_switches_to_something_else_is_no_answer() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat/2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat/1, tcp\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let gateway = gateway_before(answer).await;
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(asking("chat/1", "").as_bytes()).await.unwrap();
        let told = read_until(&mut client, "}").await;
        assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
        assert!(told.contains("upstream-failed"), "{told}");
    }
    let gateway = gateway_before(upstream::SWITCHED).await;
    let unasked = gateway.send(&Call::new("GET", "/socket")).await;
    assert_eq!(unasked.problem(), (502, "upstream-failed".into()));
}

fn keyed(key: &str) -> String {
    format!(
        "POST /pay HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: chat/1\r\nx-api-key: alice\r\n\
         idempotency-key: {key}\r\ncontent-length: 2\r\n\r\n{{}}"
    )
}

/// The gateway does not ask, so the answer is an ordinary one, which it keeps.
#[tokio::test]
async fn a_request_with_a_key_never_asks_for_an_upgrade() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let first = ask(&mut stream, &keyed("k")).await;
    assert!(first.starts_with("HTTP/1.1 201 "), "{first}");
    let asked = [upstream.last_lines("upgrade").await, upstream.last_lines("connection").await];
    assert!(!asked.concat().iter().any(|line| line.contains("chat") || line.contains("pgrade")));
    let again = Call::post("/pay").key("k").header("x-api-key", "alice").body("{}");
    assert!(gateway.send(&again).await.is_replay());
    assert_eq!(upstream.count_of("k").await, 1);
}

/// An upstream that switches nevertheless may have done anything: its client learns that this is not known.
#[tokio::test]
async fn an_upgrade_that_a_request_with_a_key_did_not_ask_for_leaves_its_outcome_unknown() {
    let gateway = gateway_before(upstream::SWITCHED).await;
    let call = Call::post("/pay").key("k").header("x-api-key", "alice").body("{}");
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(keyed("k").as_bytes()).await.unwrap();
    let told = read_until(&mut stream, "}").await;
    assert!(told.starts_with("HTTP/1.1 504 ") && told.contains("outcome-unknown"), "{told}");
    let again: Reply = gateway.send(&call).await;
    assert_eq!(again.problem(), (409, "outcome-unknown".into()));
}

/// RFC 8441: a client that is not offered it must not ask for it, and one that does loses that stream alone.
#[tokio::test]
async fn over_http_2_an_upgrade_is_refused_and_the_connection_goes_on() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender = sender.ready().await.unwrap();
    assert!(!sender.is_extended_connect_protocol_enabled());
    let plain = |method: Method, path: &str| {
        let uri = format!("http://gateway{path}");
        Request::builder().method(method).uri(uri).version(HttpVersion::HTTP_2)
    };
    let mut extended = plain(Method::CONNECT, "/socket").body(()).unwrap();
    extended.extensions_mut().insert(Protocol::from_static("websocket"));
    let (answer, _) = sender.send_request(extended, false).unwrap();
    let refused = timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::PROTOCOL_ERROR), "{refused}");
    let with_line = plain(Method::GET, "/socket").header("upgrade", "websocket").body(()).unwrap();
    let _ = sender.send_request(with_line, true).unwrap_err();
    sender = sender.ready().await.unwrap();
    let (answer, _) = sender.send_request(plain(Method::GET, "/").body(()).unwrap(), true).unwrap();
    let answer = timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
}

/// HTTP/2 to the upstream has no upgrades either: the request goes on without, as its upstream may answer it.
#[tokio::test]
async fn an_upstream_of_http_2_is_not_asked() {
    let upstream = http2_upstream().await;
    let gateway = Plan::new(&format!("h2c://{upstream}"), &route("")).start();
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let told = ask(&mut client, &asking("websocket", "connection: close\r\n")).await;
    assert!(told.starts_with("HTTP/1.1 426 "), "{told}");
    assert!(rest(&mut client).await.is_empty());
}

/// Answers every request with 426.
async fn http2_upstream() -> std::net::SocketAddr {
    upstream::each(async |stream| {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let answer = http::Response::builder().status(426).body(()).unwrap();
            respond.send_response(answer, true).unwrap();
        }
    })
    .await
}
