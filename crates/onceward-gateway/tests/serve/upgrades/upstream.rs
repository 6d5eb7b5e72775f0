//! Upstreams that do with a connection what their test says.

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};

use crate::gateway_support::read_until;

/// Each connection is for this.
pub(super) async fn each<F>(then: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(then(stream));
        }
    });
    address
}

/// Gives each head to the test, with the connection that it came on.
pub(super) async fn heads() -> (SocketAddr, mpsc::Receiver<(String, TcpStream)>) {
    let (sender, heads) = mpsc::channel(16);
    let address = each(move |mut stream| {
        let sender = sender.clone();
        async move {
            let head = read_until(&mut stream, "\r\n\r\n").await;
            let _ = sender.send((head, stream)).await;
        }
    });
    (address.await, heads)
}

/// Answers each request so, until the gateway closes the connection.
pub(super) async fn answering(answer: &'static str) -> SocketAddr {
    let answer = move |mut stream: TcpStream| async move {
        while !read_until(&mut stream, "\r\n\r\n").await.is_empty() {
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    each(answer).await
}

pub(super) const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat/1\r\n\r\n";

/// Switches to `chat/1`, in which each side says again what the other one said.
pub(super) async fn chat() -> SocketAddr {
    let echo = |mut stream: TcpStream| async move {
        read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(SWITCHED.as_bytes()).await.unwrap();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            if stream.write_all(&piece[..count]).await.is_err() {
                break;
            }
        }
    };
    each(echo).await
}

/// Says each message of a WebSocket again, and takes the first subprotocol that a client knows.
pub(super) async fn websocket() -> SocketAddr {
    each(async |stream| {
        #[expect(clippy::result_large_err, reason = "tungstenite wants it so")]
        let chosen = |request: &Request, mut response: Response| {
            const NAME: &str = "sec-websocket-protocol";
            if let Some(first) = request.headers().get(NAME) {
                let first = first.to_str().unwrap().split(',').next().unwrap().trim();
                response.headers_mut().insert(NAME, first.parse().unwrap());
            }
            Ok(response)
        };
        let Ok(mut socket) = accept_hdr_async(stream, chosen).await else { return };
        while let Some(Ok(message)) = socket.next().await {
            let is_for_others = matches!(message, Message::Text(_) | Message::Binary(_));
            if is_for_others && socket.send(message).await.is_err() {
                break;
            }
        }
    })
    .await
}
