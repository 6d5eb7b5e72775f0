//! A network that loses things: real sockets on the loopback, closed at the wrong moments.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{BoxError, upstream::CALLER};

#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) key: String,
    pub(super) caller: String,
    pub(super) customer: &'static str,
    pub(super) cents: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkCondition {
    /// It lets the answer through, if it comes in time.
    Fair {
        time_out: Duration,
    },
    CutsOff,
    /// The connection breaks so long after the request was sent; the answer is never read.
    LosesAnswer {
        after: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) replayed: bool,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn problem(&self) -> Option<String> {
        let document: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(document["code"].as_str()?.to_owned())
    }
}

/// Why no answer arrived. The client cannot know whether the server did the work, unless no server was
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Refused,
    CutOff,
    AnswerLost,
    TimedOut,
}

pub(super) async fn send(
    server: SocketAddr,
    order: &Order,
    condition: NetworkCondition,
) -> Result<Answer, Loss> {
    match condition {
        NetworkCondition::Fair { time_out } => {
            match timeout(time_out, exchange(server, order)).await {
                Ok(answer) => answer,
                Err(_) => Err(Loss::TimedOut),
            }
        }
        NetworkCondition::CutsOff => {
            let bytes = order.to_bytes(server);
            send_and_leave(server, &bytes[..bytes.len() - 8], Duration::ZERO).await?;
            Err(Loss::CutOff)
        }
        NetworkCondition::LosesAnswer { after } => {
            send_and_leave(server, &order.to_bytes(server), after).await?;
            Err(Loss::AnswerLost)
        }
    }
}

/// Sends bytes, waits, and closes the connection without having read anything.
async fn send_and_leave(server: SocketAddr, bytes: &[u8], after: Duration) -> Result<(), Loss> {
    let mut connection = connect(server).await?;
    connection.write_all(bytes).await.map_err(|_| Loss::AnswerLost)?;
    sleep(after).await;
    Ok(())
}

/// One request and its answer on a connection of its own; dropping it closes the connection.
async fn exchange(server: SocketAddr, order: &Order) -> Result<Answer, Loss> {
    let connection = connect(server).await?;
    ask(connection, server, order).await.map_err(|_| Loss::AnswerLost)
}

async fn connect(server: SocketAddr) -> Result<TcpStream, Loss> {
    TcpStream::connect(server).await.map_err(|_| Loss::Refused)
}

async fn ask(stream: TcpStream, server: SocketAddr, order: &Order) -> Result<Answer, BoxError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = order.to_request(server)?;
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let replayed = head.headers.get("idempotent-replayed").is_some_and(|flag| flag == "true");
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, replayed, body })
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection ends when it has handed over everything, or when it breaks.
        _ = connection => answer.await,
    }
}

impl Order {
    fn body(&self) -> String {
        serde_json::json!({ "customer": self.customer, "cents": self.cents }).to_string()
    }

    fn to_request(&self, server: SocketAddr) -> http::Result<Request<Full<Bytes>>> {
        Request::post("/charges")
            .header(header::HOST, server.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header(CALLER, &self.caller)
            .header("idempotency-key", &self.key)
            .body(Full::from(self.body()))
    }

    /// The same request, for connections that do not live to see an answer.
    fn to_bytes(&self, server: SocketAddr) -> Vec<u8> {
        let Self { key, caller, .. } = self;
        let body = self.body();
        let head = format!(
            "POST /charges HTTP/1.1\r\nhost: {server}\r\ncontent-type: application/json\r\n\
             {CALLER}: {caller}\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        (head + &body).into_bytes()
    }
}
