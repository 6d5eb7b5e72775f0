//! Clients that write bytes, not requests.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Whatever takes longer than this hangs; a busy machine is much faster still.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// One answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The first answer in these bytes and how many bytes it takes, if all of it is there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let answer = Self { status, head, body: Vec::new() };
        if answer.header("transfer-encoding").is_some() {
            let (body, length) = chunks(&bytes[end..])?;
            return Some((Self { body, ..answer }, end + length));
        }
        let length = match answer.header("content-length") {
            Some(length) => length.parse().ok()?,
            None => 0,
        };
        let body = bytes.get(end..end + length)?.to_vec();
        Some((Self { body, ..answer }, end + length))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Which problem the gateway speaks of.
    pub(crate) fn code(&self) -> Option<String> {
        Some(self.json()["code"].as_str()?.to_owned())
    }
}

/// A body in chunks without trailers and how many bytes it takes, if its end is there.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let end = at + bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..end]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = bytes.get(end + 2..end + 4 + size)?;
        body.extend_from_slice(&chunk[..size]);
        at = end + 4 + size;
        if size == 0 {
            return Some((body, at));
        }
    }
}

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
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        let exchange = async {
            self.stream.write_all(request).await?;
            loop {
                if let Some((answer, length)) = Answer::parse(&self.read) {
                    self.read.drain(..length);
                    return Ok(answer);
                }
                if self.stream.read_buf(&mut self.read).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        timeout(BOUND, exchange).await.expect("the gateway hangs")
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    Connection::open(address).await?.ask(request).await
}

/// Asks again with the same key until the answer is final: neither an error of the connection nor
/// "try again".
pub(crate) async fn ask_until_final(address: SocketAddr, request: &[u8]) -> Answer {
    let retrying = async {
        loop {
            match ask(address, request).await {
                Ok(answer) if !is_passing(&answer) => return answer,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(BOUND, retrying).await.expect("no attempt ends")
}

/// What the status URL says about the operation that an answer speaks of.
pub(crate) async fn state(address: SocketAddr, answer: &Answer) -> String {
    let reference = answer.json()["operation"].as_str().unwrap().to_owned();
    let status = ask(address, &get(&format!("/.onceward/operations/{reference}"))).await.unwrap();
    status.json()["state"].as_str().unwrap_or_default().to_owned()
}

/// Whether the gateway itself says that the same key may have another answer soon.
pub(crate) fn is_passing(answer: &Answer) -> bool {
    answer.status >= 400 && answer.json()["retryable"] == true
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
