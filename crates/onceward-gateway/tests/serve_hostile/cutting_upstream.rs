//! An upstream that acts and then breaks off, at any byte of its answer.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::counting_upstream::{Ledger, ReceivedRequest};

/// How the answer says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
}

impl Framing {
    /// The whole answer, which tells the effects that a key had until now.
    pub(crate) fn answer(self, effects: usize) -> String {
        let text = format!("{{\"effects\":{effects}}}");
        let head = "HTTP/1.1 201 Created\r\nConnection: close\r\nX-Kind: money\r\n";
        let length = text.len();
        match self {
            Self::Length => format!("{head}Content-Length: {length}\r\n\r\n{text}"),
            Self::Chunked => {
                let (one, two) = text.split_at(5);
                let (first, second) = (one.len(), two.len());
                format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{first:x}\r\n{one}\r\n{second:x}\r\n\
                     {two}\r\n0\r\n\r\n"
                )
            }
        }
    }
}

/// The first answer to each key ends after as many bytes as the key's last part says.
pub(crate) async fn start(framing: Framing) -> (SocketAddr, Ledger) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, ledger) = (listener.local_addr().unwrap(), Ledger::default());
    let kept = ledger.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, framing, ledger.clone()));
        }
    });
    (address, kept)
}

async fn serve(mut stream: TcpStream, framing: Framing, ledger: Ledger) {
    let Some(key) = read(&mut stream).await else { return };
    let target = "/pay".to_owned();
    let seen = ReceivedRequest { method: "POST".into(), target, key: Some(key.clone()) };
    let effects = ledger.add(seen);
    let answer = framing.answer(effects);
    let cut: usize = key.rsplit('-').next().unwrap().parse().unwrap();
    let length = if effects == 1 { cut.min(answer.len()) } else { answer.len() };
    let _ = stream.write_all(&answer.as_bytes()[..length]).await;
    let _ = stream.shutdown().await;
}

/// Reads one request to its end and gives its key.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length: usize = value("content-length: ")?.parse().ok()?;
        if body.len() >= length {
            return Some(value("idempotency-key: ")?.to_owned());
        }
    }
}
