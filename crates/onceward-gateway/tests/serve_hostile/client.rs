//! Clients that write bytes, not requests.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::gateway_support::{Reply, TEST_TIMEOUT};

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request and reads its answer; an answer that is cut is an error.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Reply> {
        let exchange = async {
            self.stream.write_all(request).await?;
            loop {
                if let Some((answer, length)) = Reply::parse(&self.read) {
                    self.read.drain(..length);
                    return Ok(answer);
                }
                if self.stream.read_buf(&mut self.read).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        timeout(TEST_TIMEOUT, exchange).await.expect("the gateway hangs")
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &[u8]) -> io::Result<Reply> {
    Connection::open(address).await?.ask(request).await
}

/// Asks again with the same key until the answer is final: neither an error of the connection nor
/// "try again".
pub(crate) async fn ask_until_final(address: SocketAddr, request: &[u8]) -> Reply {
    let retrying = async {
        loop {
            match ask(address, request).await {
                Ok(answer) if !answer.is_passing() => return answer,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(TEST_TIMEOUT, retrying).await.expect("no attempt ends")
}

/// What the status URL says about the operation that an answer speaks of.
pub(crate) async fn state(address: SocketAddr, answer: &Reply) -> String {
    let reference = answer.json()["operation"].as_str().unwrap().to_owned();
    let status = ask(address, &get(&format!("/.onceward/operations/{reference}"))).await.unwrap();
    status.json()["state"].as_str().unwrap_or_default().to_owned()
}

/// A request with a key and a body.
pub(crate) fn keyed(path: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A request without a key or a body.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}
