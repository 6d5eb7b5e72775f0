//! Answers of an upstream that no careful reader believes.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{client, gateway_support::Upstream, plan};

/// What somebody else would get, if the gateway took it for an answer.
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";

/// Each is the whole answer to a request that was acted on.
const ANSWERS: [(&str, &str); 21] = [
    ("nothing", ""),
    ("not HTTP", "hello\r\n\r\n"),
    ("HTTP/0.9", "<html>"),
    ("HTTP/2.0 in a line", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ("a status that is none", "HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok"),
    ("a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok"),
    ("two lengths that differ", {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nok"
    }),
    ("a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok"),
    ("a length with a minus", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok"),
    ("a length that is too large", "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nok"),
    ("a length of 2^64 - 1", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nok"),
    ("a chunk size that is none", {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nok\r\n0\r\n\r\n"
    }),
    ("a chunk that is too short", {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok\r\n0\r\n\r\n"
    }),
    ("a chunk without its end", {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok0\r\n\r\n"
    }),
    ("no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),
    ("a NUL in a value", "HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 2\r\n\r\nok"),
    ("a space before a colon", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n"),
    ("a switch of protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nstray"),
    ("only an interim answer", "HTTP/1.1 100 Continue\r\n\r\n"),
    ("a hundred interim answers", "HTTP/1.1 100 Continue\r\n\r\n"),
    ("a head that never ends", "HTTP/1.1 200 OK\r\nX: a\r\n"),
];

#[test]
fn what_cannot_be_read_is_never_stored_and_never_runs_again() {
    crate::run(async {
        for (name, answer) in ANSWERS {
            let count = if name.starts_with("a hundred") { 100 } else { 1 };
            let address = answering(answer.repeat(count), End::Close).await;
            let gateway = plan(address, "").start();
            let request = client::keyed("/pay", "k", "{}");
            let first = client::ask(gateway.address, &request).await.unwrap();
            let again = client::ask(gateway.address, &request).await.unwrap();
            let codes = [&first, &again].map(|answer| (answer.status, answer.code()));
            let unknown = |status| (status, Some("outcome-unknown".to_owned()));
            assert_eq!(codes, [unknown(504), unknown(409)], "{name}");
            // Without a key the answer streams, so the client sees how it breaks off.
            if let Ok(other) = client::ask(gateway.address, &client::get("/x")).await {
                assert!([502, 504].contains(&other.status), "{name}: {other:?}");
            }
            gateway.assert_well();
        }
    });
}

#[test]
fn an_answer_that_nobody_asked_for_reaches_nobody() {
    crate::run(async {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{STRAY}");
        let address = answering(answer, End::Keep).await;
        let gateway = plan(address, "").start();
        for number in 0..200 {
            let request = match number % 2 {
                0 => client::get("/x"),
                _ => client::keyed("/pay", &format!("k-{number}"), "{}"),
            };
            let answer = client::ask(gateway.address, &request).await.unwrap();
            assert_ne!(answer.body, b"stray"[..], "after {number} requests");
        }
    });
}

/// A GET may have a body, also one whose length is not said.
#[test]
fn the_chunks_of_a_get_go_on() {
    crate::run(async {
        let upstream = Upstream::any();
        let gateway = plan(upstream.address, "").start();
        let request = "GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                       2\r\nok\r\n0\r\n\r\n";
        let answer = client::ask(gateway.address, request.as_bytes()).await.unwrap();
        assert!(answer.status < 300, "{answer:?}");
        assert_eq!(upstream.seen().await[0]["body"], "ok");
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Keep,
}

/// An upstream that answers whatever comes with these bytes.
async fn answering(answer: String, end: End) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream, answer.clone(), end));
        }
    });
    address
}

async fn answer_all(mut stream: TcpStream, answer: String, end: End) {
    let mut request = [0; 8192];
    // A request comes in one piece or two, the second being its body.
    while matches!(stream.read(&mut request).await, Ok(1..)) {
        if end == End::Close {
            let more = stream.read(&mut request);
            let _ = tokio::time::timeout(Duration::from_millis(20), more).await;
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        if end == End::Close {
            let _ = stream.shutdown().await;
            return;
        }
    }
}
