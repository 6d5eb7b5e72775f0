//! Upgrades through the gateway, to a WebSocket or to something else.

mod ends;
mod limits;
mod lines;
mod refusals;
mod upstream;
mod websocket;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::gateway_support::{Gateway, TEST_TIMEOUT, read_until};

/// What a client writes that asks for this protocol, with other lines.
fn asking(protocol: &str, lines: &str) -> String {
    format!(
        "GET /socket HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n{lines}\r\n"
    )
}

/// A connection that the upstream has agreed to upgrade to `chat/1`.
async fn tunnel(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = ask(&mut stream, &asking("chat/1", "")).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

/// Writes a head, and gives that of the answer.
async fn ask(stream: &mut TcpStream, head: &str) -> String {
    stream.write_all(head.as_bytes()).await.unwrap();
    read_until(stream, "\r\n\r\n").await
}

/// Everything that comes until the other side closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut came = Vec::new();
    let read = timeout(TEST_TIMEOUT, stream.read_to_end(&mut came)).await;
    // A reset is an end, too.
    let _ = read.expect("it is never closed");
    String::from_utf8_lossy(&came).into_owned()
}
