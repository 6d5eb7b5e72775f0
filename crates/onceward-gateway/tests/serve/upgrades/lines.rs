//! What of the two heads goes on, and what comes right behind them.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{asking, rest, upstream};
use crate::gateway_support::{Plan, read_until, route};
use tokio::net::TcpStream;

/// The lines of these names, in their order.
fn lines<'a>(head: &'a str, names: &[&str]) -> Vec<&'a str> {
    let is_one = |line: &&str| {
        let name = line.split(':').next().unwrap().to_ascii_lowercase();
        names.contains(&name.as_str())
    };
    let mut lines: Vec<_> = head.lines().skip(1).filter(is_one).collect();
    lines.sort_unstable();
    lines
}

const ABOUT_CONNECTIONS: [&str; 10] = [
    "connection",
    "upgrade",
    "keep-alive",
    "te",
    "transfer-encoding",
    "proxy-connection",
    "http2-settings",
    "x-mine",
    "x-theirs",
    "onceward-outcome",
];

#[tokio::test]
async fn only_the_lines_about_the_upgrade_go_on() {
    let (address, mut heads) = upstream::heads().await;
    let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "GET /socket?a=b HTTP/1.1\r\nHost: shop.example\r\n\
                Connection: keep-alive, Upgrade, X-Mine, HTTP2-Settings\r\n\
                Upgrade: WebSocket, h2c\r\nHTTP2-Settings: AAMAAABk\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
                Proxy-Connection: x\r\nX-Mine: 1\r\nOrigin: https://shop.example\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let (asked, mut server) = heads.recv().await.unwrap();
    assert!(asked.starts_with("GET /socket?a=b HTTP/1.1\r\n"), "{asked}");
    let about = lines(&asked, &ABOUT_CONNECTIONS);
    assert_eq!(about, ["connection: upgrade", "upgrade: WebSocket"], "{asked}");
    let kept = ["origin", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version"];
    assert_eq!(lines(&asked, &kept).len(), 4, "{asked}");

    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Theirs\r\n\
                    Upgrade: websocket\r\nX-Theirs: 1\r\nKeep-Alive: 5\r\nOnceward-Outcome: final\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSet-Cookie: room=7\r\n\r\n";
    server.write_all(switched.as_bytes()).await.unwrap();
    let told = read_until(&mut client, "\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 101 "), "{told}");
    let about = lines(&told, &ABOUT_CONNECTIONS);
    assert_eq!(about, ["connection: upgrade", "upgrade: websocket"], "{told}");
    assert_eq!(lines(&told, &["sec-websocket-accept", "set-cookie"]).len(), 2, "{told}");
    assert!(!told.contains("content-length"), "{told}");
}

#[tokio::test]
async fn another_protocol_may_speak_at_once() {
    let (address, mut heads) = upstream::heads().await;
    let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    // Before it knows whether the upstream agrees.
    let eager = asking("chat/1, chat/2", "") + "hello from the client";
    client.write_all(eager.as_bytes()).await.unwrap();
    let (asked, mut server) = heads.recv().await.unwrap();
    assert_eq!(lines(&asked, &["upgrade"]), ["upgrade: chat/1, chat/2"]);
    assert!(asked.ends_with("\r\n\r\n"), "nothing is said to it yet: {asked}");
    let switched = upstream::SWITCHED.replace("chat/1", "chat/2") + "hello from the server";
    server.write_all(switched.as_bytes()).await.unwrap();
    let mut came = [0; 21];
    server.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"hello from the client");
    let told = read_until(&mut client, "hello from the server").await;
    assert!(told.contains("upgrade: chat/2\r\n"), "{told}");
    server.write_all(b", and goodbye").await.unwrap();
    drop(server);
    assert_eq!(rest(&mut client).await, ", and goodbye");
}

#[tokio::test]
async fn a_protocol_that_carries_requests_is_not_asked_for() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for (protocol, more) in [
        ("h2c", "http2-settings: AAMAAABkAAQAAP__\r\n"),
        ("HTTP/2.0", ""),
        ("TLS/1.2", ""),
        (",", ""),
    ] {
        let (address, mut heads) = upstream::heads().await;
        let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(asking(protocol, more).as_bytes()).await.unwrap();
        let (asked, mut server) = heads.recv().await.unwrap();
        assert!(lines(&asked, &ABOUT_CONNECTIONS).is_empty(), "{asked}");
        server.write_all(answer.as_bytes()).await.unwrap();
        let told = read_until(&mut client, "ok").await;
        assert!(told.starts_with("HTTP/1.1 200 "), "{protocol}: {told}");
        // The connection is still one of HTTP.
        client.write_all(asking("chat/1", "").as_bytes()).await.unwrap();
        let again = read_until(&mut server, "\r\n\r\n").await;
        assert!(lines(&again, &["upgrade"]) == ["upgrade: chat/1"], "{again}");
    }
}

/// Only a GET of HTTP/1.1 without a body, which names the upgrade in `Connection`, asks for one.
#[tokio::test]
async fn what_asks_in_another_way_is_an_ordinary_request() {
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    for head in [
        "GET /x HTTP/1.0\r\nconnection: upgrade\r\nupgrade: chat/1\r\n\r\n",
        "GET /x HTTP/1.1\r\nhost: h\r\nupgrade: chat/1\r\n\r\n",
        "GET /x HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\n\r\n",
        "HEAD /x HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: chat/1\r\n\r\n",
        "POST /x HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: chat/1\r\ncontent-length: 0\r\n\r\n",
        "GET /x HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: chat/1\r\ncontent-length: 2\r\n\r\nhi",
    ] {
        let (address, mut heads) = upstream::heads().await;
        let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        let (asked, mut server) = heads.recv().await.unwrap();
        assert!(lines(&asked, &ABOUT_CONNECTIONS).is_empty(), "{head} became {asked}");
        server.write_all(answer.as_bytes()).await.unwrap();
        let told = read_until(&mut client, "\r\n\r\n").await;
        assert!(told.contains(" 200 "), "{head}: {told}");
    }
}
