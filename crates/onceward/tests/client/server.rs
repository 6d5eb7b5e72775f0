//! A small HTTP/1.1 server on a real socket that does what a script says, and remembers every request.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::HeaderMap;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What the server does with one request that it has read to the end.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Answers with this status, these header lines and this body.
    Answer(u16, Vec<(&'static str, String)>, &'static str),
    /// Sends a reset.
    Reset,
    /// Says nothing, and keeps the connection.
    Silence,
    /// Sends the head byte by byte, without end.
    TrickleHead,
    /// Sends a head that promises more than it sends, then closes.
    CutShort,
    /// Sends its head at once and its body byte by byte.
    TrickleBody(&'static str, Duration),
}

impl Step {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, vec![], "")
    }

    pub(crate) fn with(status: u16, name: &'static str, value: impl Into<String>) -> Self {
        Self::Answer(status, vec![(name, value.into())], "")
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Observation {
    pub(crate) fn line(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|line| line.to_str().unwrap())
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    observation: Arc<Mutex<Vec<Observation>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Does one step for each request, the last one for all further ones.
    pub(crate) async fn script(steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let observation = Arc::new(Mutex::new(Vec::new()));
        let steps = Arc::new(Mutex::new(steps.into_iter().collect::<VecDeque<_>>()));
        let shared = observation.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, steps.clone(), shared.clone()));
            }
        });
        Self { address, observation, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn observation(&self) -> Vec<Observation> {
        self.observation.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    steps: Arc<Mutex<VecDeque<Step>>>,
    observation: Arc<Mutex<Vec<Observation>>>,
) {
    let mut unread = Vec::new();
    while let Some(request) = read(&mut stream, &mut unread).await {
        observation.lock().unwrap().push(request);
        let step = {
            let mut steps = steps.lock().unwrap();
            if steps.len() > 1 { steps.pop_front().unwrap() } else { steps[0].clone() }
        };
        if !act(&mut stream, step).await {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn act(stream: &mut TcpStream, step: Step) -> bool {
    match step {
        Step::Answer(status, lines, body) => {
            let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in lines {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.is_ok()
        }
        Step::Reset => {
            stream.set_zero_linger().unwrap();
            false
        }
        Step::Silence => {
            std::future::pending::<()>().await;
            false
        }
        Step::TrickleHead => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx-slow: ").await;
            while stream.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            false
        }
        Step::CutShort => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
            false
        }
        Step::TrickleBody(body, pause) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).await;
            for byte in body.bytes() {
                tokio::time::sleep(pause).await;
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
            }
            true
        }
    }
}

async fn read(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Observation> {
    let end = loop {
        if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8(unread.drain(..end + 4).collect()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let name = http::HeaderName::try_from(name).unwrap();
        headers.append(name, value.trim().parse().unwrap());
    }
    let body = match headers.get("content-length") {
        Some(length) => {
            let length: usize = length.to_str().unwrap().parse().unwrap();
            while unread.len() < length {
                more(stream, unread).await?;
            }
            unread.drain(..length).collect()
        }
        None if headers.contains_key("transfer-encoding") => chunked(stream, unread).await?,
        None => Vec::new(),
    };
    Some(Observation { method, path, headers, body })
}

async fn chunked(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = unread.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            more(stream, unread).await?;
        };
        let line = String::from_utf8(unread.drain(..end + 2).collect()).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        while unread.len() < length + 2 {
            more(stream, unread).await?;
        }
        body.extend(unread.drain(..length));
        unread.drain(..2);
        if length == 0 {
            return Some(body);
        }
    }
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 4096];
    let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
    unread.extend_from_slice(&buffer[..length]);
    Some(())
}
