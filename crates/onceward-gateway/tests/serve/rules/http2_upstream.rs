//! Rule 13 with HTTP/2 and TLS: upstreams that say, or prove, that they saw nothing.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use crate::{
    gateway_support::{Certificates, Gateway, Link, Pipe, Plan, Reply, Version, route},
    rules::pay,
};

/// Speaks both versions; says which in the answer, and ends it with a trailer.
struct Upstream {
    address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Upstream {
    async fn start(tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let (tls, counter) = (tls.map(|config| TlsAcceptor::from(Arc::new(config))), count.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, counter) = (tls.clone(), counter.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, counter).await,
                        Some(tls) => {
                            // Who does not trust us goes away here.
                            let Ok(stream) = tls.accept(stream).await else { return };
                            serve(stream, counter).await;
                        }
                    }
                });
            }
        });
        Self { address, count }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

async fn serve<S>(stream: S, count: Arc<AtomicU64>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let (parts, body) = request.into_parts();
            let collected = body.collect().await?;
            let said = collected.trailers().map_or(0, HeaderMap::len);
            let size = collected.to_bytes().len() + 1000 * said;
            let host = parts.headers.contains_key("host");
            let forwarded = parts.headers["x-forwarded-host"].to_str().unwrap();
            let text = format!("{:?} {number} {size} {host} {forwarded}", parts.version);
            let sum = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from(size))]);
            let body = Full::new(Bytes::from(text));
            let body = body.with_trailers(async { Some(Ok(sum)) });
            let response = Response::builder().status(201).header("trailer", "x-sum").body(body);
            Ok::<_, hyper::Error>(response.unwrap())
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn assert_runs_once(gateway: &Gateway, upstream: &Upstream, spoken: &str, host: bool) {
    for version in Version::BOTH {
        let key = format!("{version:?}");
        let first = gateway.send_by(version, &pay(&key)).await;
        let said = format!("{spoken} {} 12 {host} {}", upstream.count(), gateway.address);
        assert_eq!((first.status, first.text()), (201, &*said), "{first:?}");
        let again = gateway.send_by(version, &pay(&key)).await;
        assert!(again.is_replay() && again.body == first.body, "{again:?}");
        if version == Version::Http2 && spoken == "HTTP/2.0" {
            assert_eq!(first.trailers.unwrap()["x-sum"], "12");
            assert_eq!(again.trailers.unwrap()["x-sum"], "12");
        }
    }
    let unkeyed = gateway.send(&pay("k").without_key()).await;
    assert!(unkeyed.text().starts_with(spoken), "{unkeyed:?}");
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn an_upstream_may_speak_http2_in_the_clear() {
    let upstream = Upstream::start(None).await;
    let gateway = Plan::new(&format!("h2c://{}", upstream.address), &route("")).start();
    assert_runs_once(&gateway, &upstream, "HTTP/2.0", false).await;
}

#[tokio::test]
async fn only_announced_and_harmless_trailers_reach_it() {
    let upstream = Upstream::start(None).await;
    let gateway = Plan::new(&format!("h2c://{}", upstream.address), &route("")).start();
    let said = ["x-sum", "x-user", "onceward-key", "x-forwarded-for", "x-forwarded_for"];
    for (announced, expected) in
        [("", 0), ("x-sum", 1), ("x-sum, onceward-key, x-forwarded-for", 1)]
    {
        for call in [pay(&format!("k{expected}{}", announced.len())), pay("").without_key()] {
            let call = match announced {
                "" => call,
                _ => call.header("trailer", announced),
            };
            let mut link = Link::open(gateway.address, Version::Http2).await;
            let (pieces, body) = Pipe::new();
            pieces.send(Frame::data(Bytes::from_static(b"{}"))).await.unwrap();
            let lines = said.map(|name| (name.parse().unwrap(), HeaderValue::from_static("1")));
            pieces.send(Frame::trailers(HeaderMap::from_iter(lines))).await.unwrap();
            drop(pieces);
            let reply = Reply::read(link.stream(&call, body).await.unwrap()).await.unwrap();
            let size = reply.text().split(' ').nth(2).unwrap().to_owned();
            assert_eq!(size, (2 + 1000 * expected).to_string(), "{announced:?}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn an_upstream_may_have_tls_with_either_version() {
    for (scheme, spoken, host) in [("https", "HTTP/1.1", true), ("h2", "HTTP/2.0", false)] {
        let directory = tempfile::tempdir().unwrap();
        if Certificates::make(directory.path(), &[]).is_none() {
            return;
        }
        let upstream = Upstream::start(Some(Certificates::server(directory.path()))).await;
        let plan = || Plan::new(&format!("{scheme}://{}", upstream.address), &route(""));

        let authority = directory.path().join("ca.pem");
        let trusting = plan().variable("SSL_CERT_FILE", authority.to_str().unwrap()).start();
        assert_runs_once(&trusting, &upstream, spoken, host).await;

        let wrong = directory.path().join("wrong");
        std::fs::create_dir(&wrong).unwrap();
        Certificates::make(&wrong, &[]).unwrap();
        let wrong = wrong.join("ca.pem");
        let wary = plan().variable("SSL_CERT_FILE", wrong.to_str().unwrap()).start();
        let reply = wary.send(&pay("k")).await;
        assert_eq!(reply.problem(), (502, "upstream-unreachable".into()));
        assert_eq!(wary.status_of(&reply, &pay("k")).await.json()["state"], "released");
        assert_eq!(upstream.count(), 3, "nothing was sent to somebody else");
    }
}

/// What an upstream says to the first request, in frames of HTTP/2.
#[derive(Clone, Copy, Debug)]
enum Word {
    Reset(u32),
    /// The last id that counts, and why.
    GoAway(u32, u32),
    HangUp,
}

impl Word {
    /// RFC 9113, sections 6.4 and 6.8. The first request of a client is number 1.
    fn frame(self) -> Vec<u8> {
        let numbers = |numbers: &[u32]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
        };
        match self {
            Self::Reset(reason) => [vec![0, 0, 4, 3, 0], numbers(&[1, reason])].concat(),
            Self::GoAway(last, reason) => {
                [vec![0, 0, 8, 7, 0], numbers(&[0, last, reason])].concat()
            }
            Self::HangUp => Vec::new(),
        }
    }
}

/// Says this to everybody, and hangs up a little later.
async fn curt_upstream(word: Word) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(say(stream, word));
        }
    });
    address
}

async fn say(mut stream: TcpStream, word: Word) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&SETTINGS).await.unwrap();
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    stream.write_all(&word.frame()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn rule_13_what_an_upstream_disowns_was_not_done() {
    const REFUSED_STREAM: u32 = 7;
    let address = curt_upstream(Word::Reset(REFUSED_STREAM)).await;
    let gateway = Plan::new(&format!("h2c://{address}"), &route("")).start();
    let reply = gateway.send(&pay("k")).await;
    assert_eq!(reply.problem(), (502, "upstream-unreachable".into()));
    assert_eq!(reply.json()["retryable"], json!(true));
    let status = gateway.status_of(&reply, &pay("k")).await;
    assert_eq!(status.json()["state"], "released");
}

/// Answers what comes on its second connection, and nothing on its first.
async fn deaf_at_first() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (deaf, _) = listener.accept().await.unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::new(AtomicU64::new(0))));
        }
        drop(deaf);
    });
    address
}

#[tokio::test]
async fn a_connection_that_does_not_answer_is_not_used_again() {
    let address = deaf_at_first().await;
    let text = route("timeout = \"500ms\"");
    let gateway = Plan::new(&format!("h2c://{address}"), &text).start();
    assert_eq!(gateway.send(&pay("k")).await.problem(), (504, "outcome-unknown".into()));
    assert_eq!(gateway.send(&pay("other")).await.status, 201);
}

#[tokio::test]
async fn rule_13_what_an_upstream_does_not_disown_is_unknown() {
    const INTERNAL_ERROR: u32 = 2;
    const CANCEL: u32 = 8;
    let words = [
        Word::Reset(INTERNAL_ERROR),
        Word::Reset(CANCEL),
        Word::GoAway(0, 0),
        Word::GoAway(0, INTERNAL_ERROR),
        Word::GoAway(1, 0),
        Word::GoAway(1, INTERNAL_ERROR),
        Word::HangUp,
    ];
    for word in words {
        let address = curt_upstream(word).await;
        let gateway = Plan::new(&format!("h2c://{address}"), &route("")).start();
        let reply = gateway.send(&pay("k")).await;
        assert_eq!(reply.problem(), (504, "outcome-unknown".into()), "{word:?}");
        let again = gateway.send(&pay("k")).await;
        assert_eq!(again.problem(), (409, "outcome-unknown".into()), "{word:?}");
    }
}
