//! The load: so many connections, each with one request under way, and a look at every answer.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    Failure,
    gateway::exchange::{self, Extent, Kind, Rendered},
};

/// How many connections there are, all kept open.
pub(crate) const CONNECTIONS: usize = 64;

/// How many stored answers are asked for again.
pub(crate) const KNOWN_KEYS: u64 = 512;

/// How long one answer may take before the run is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Whom to ask what.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
}

/// When a turn counts.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) opens: Instant,
    pub(crate) closes: Instant,
}

/// What was answered, all of it rightly.
#[derive(Default)]
pub(crate) struct Answered {
    /// All requests of the turn, those before the window opened included.
    pub(crate) all: u64,
    /// How long those took that ended within the window.
    pub(crate) took: Vec<Duration>,
}

/// Where the keys of requests come from.
#[derive(Clone)]
pub(crate) struct Keys {
    /// What all keys of this run begin with.
    run: u64,
    next: Arc<AtomicU64>,
}

impl Keys {
    /// Keys that no other run has.
    pub(crate) fn new() -> Self {
        Self { run: fastrand::u64(1..), next: Arc::new(AtomicU64::new(KNOWN_KEYS)) }
    }

    fn next(&self, kind: Kind) -> u128 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let number = if kind == Kind::Replay { number % KNOWN_KEYS } else { number };
        u128::from(self.run) << 64 | u128::from(number)
    }
}

/// Asks without a pause until the window closes; whoever has asked by then waits for the answer.
pub(crate) async fn ask(
    question: Question,
    keys: &Keys,
    connections: usize,
    window: Window,
) -> Result<Answered, Failure> {
    let mut asking = JoinSet::new();
    for _ in 0..connections {
        let connection = Connection::new(question).await?;
        asking.spawn(connection.ask_until(question.kind, keys.clone(), window));
    }
    let mut answered = Answered::default();
    while let Some(ended) = asking.join_next().await {
        let one = ended??;
        answered.all += one.all;
        answered.took.extend(one.took);
    }
    answered.took.sort_unstable();
    Ok(answered)
}

/// Asks once with each of the keys that are asked for again later.
pub(crate) async fn store_answers(question: Question, keys: &Keys) -> Result<(), Failure> {
    let next = Arc::new(AtomicU64::new(0));
    let mut asking = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut connection, next) = (Connection::new(question).await?, next.clone());
        let run = u128::from(keys.run) << 64;
        asking.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= KNOWN_KEYS {
                    return Ok::<_, String>(());
                }
                connection.exchange(run | u128::from(number)).await?;
            }
        });
    }
    while let Some(ended) = asking.join_next().await {
        ended??;
    }
    Ok(())
}

/// How often a service has run, as it says itself.
pub(crate) async fn executions(counter: SocketAddr) -> Result<u64, Failure> {
    let mut stream = TcpStream::connect(counter).await?;
    let request = format!("GET /count HTTP/1.1\r\nhost: {counter}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err("the count of executions broke off".into());
        }
        if let Some(extent) = Extent::of(&bytes)
            && bytes.len() >= extent.whole
        {
            return Ok(std::str::from_utf8(&bytes[extent.head..extent.whole])?.trim().parse()?);
        }
    }
}

/// One connection and what goes over it.
struct Connection {
    stream: TcpStream,
    request: Rendered,
    received: Vec<u8>,
    expected: Vec<u8>,
}

impl Connection {
    async fn new(question: Question) -> Result<Self, Failure> {
        let stream = TcpStream::connect(question.address).await?;
        stream.set_nodelay(true)?;
        let request = Rendered::new(question.kind, question.address, question.path);
        let expected = exchange::answer();
        Ok(Self { stream, request, received: Vec::with_capacity(8 << 10), expected })
    }

    async fn ask_until(
        mut self,
        kind: Kind,
        keys: Keys,
        window: Window,
    ) -> Result<Answered, String> {
        let mut answered = Answered::default();
        let mut begin = Instant::now();
        while begin < window.closes {
            self.exchange(keys.next(kind)).await?;
            let end = Instant::now();
            answered.all += 1;
            if window.opens <= end && end < window.closes {
                answered.took.push(end - begin);
            }
            begin = end;
        }
        Ok(answered)
    }

    /// One request and its answer, which must be the right one.
    async fn exchange(&mut self, number: u128) -> Result<(), String> {
        let broken = |error: std::io::Error| format!("a connection broke: {error}");
        self.stream.write_all(self.request.with_key(number)).await.map_err(broken)?;
        self.received.clear();
        let extent = loop {
            // No timer for each answer: the whole turn has one.
            if self.stream.read_buf(&mut self.received).await.map_err(broken)? == 0 {
                return Err(self.wrong("the connection was closed"));
            }
            if let Some(extent) = Extent::of(&self.received)
                && self.received.len() >= extent.whole
            {
                break extent;
            }
        };
        let is_right = self.received.starts_with(b"HTTP/1.1 200 ")
            && self.received[extent.head..] == self.expected[..];
        if is_right { Ok(()) } else { Err(self.wrong("another answer than expected")) }
    }

    fn wrong(&self, what: &str) -> String {
        let shown = &self.received[..self.received.len().min(600)];
        format!("{what}: {:?}", String::from_utf8_lossy(shown))
    }
}

/// The same, given up if it does not end.
pub(crate) async fn within<T>(
    length: Duration,
    asking: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(length + ANSWER_TIMEOUT, asking).await {
        Ok(asked) => asked,
        Err(_) => Err(format!("an answer took longer than {} s", ANSWER_TIMEOUT.as_secs()).into()),
    }
}
