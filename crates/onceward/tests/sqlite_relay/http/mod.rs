//! The sink of HTTP, against servers on loopback sockets.

mod effect;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderMap, StatusCode, header::LOCATION};
use onceward::{
    message::{InspectQueue, MessageId, MessageState, NewMessage},
    outbox::{HttpSink, HttpSinkError, Relay, Sink, Topic},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    file::File,
    support::{Running, counted, event, has_state, oldest, quick, shown, start, until},
};

type Answer = dyn Fn(usize, &HeaderMap) -> Response + Send + Sync;
type Seen = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A consumer that answers each request so, by its number.
#[derive(Clone)]
struct Consumer {
    seen: Seen,
    answer: Arc<Answer>,
}

impl Consumer {
    fn new(answer: impl Fn(usize, &HeaderMap) -> Response + Send + Sync + 'static) -> Self {
        Self { seen: Seen::default(), answer: Arc::new(answer) }
    }

    /// Serves on a free port, and gives its URL.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        self.serve_on(listener);
        url
    }

    fn serve_on(&self, listener: TcpListener) {
        let app = Router::new().route("/events", post(consume)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }

    fn seen(&self) -> Vec<(HeaderMap, Bytes)> {
        self.seen.lock().unwrap().clone()
    }
}

async fn consume(State(consumer): State<Consumer>, headers: HeaderMap, body: Bytes) -> Response {
    let number = {
        let mut seen = consumer.seen.lock().unwrap();
        seen.push((headers.clone(), body));
        seen.len()
    };
    (consumer.answer)(number, &headers)
}

fn relaying(queue: Arc<dyn InspectQueue>, sink: impl Sink) -> Running {
    let builder = Relay::builder(queue).rules(quick());
    start(builder.sink_with("billing", sink, oldest()).build().unwrap())
}

async fn becomes(queue: &Arc<dyn InspectQueue>, id: MessageId, state: MessageState) {
    until(state.as_str(), async || has_state(queue, id, state).await).await;
}

#[tokio::test]
async fn a_message_is_a_post_with_its_id_as_key() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let file = File::new();
    let plain = NewMessage::new("order.placed", "{\"order\":7}").unwrap();
    let plain = plain.aggregate("order-ä").unwrap().trace(TRACE);
    let own = event("order-8", 0)
        .header("Content-Type", "text/plain")
        .header("X-Two", "1")
        .header("X-Two", "2")
        .header("X-Tenant", "the message's")
        .header("Idempotency-Key", "another")
        .header("Content-Length", "3")
        .header("Onceward-Attempt", "9");
    let ids = file.put(&[plain, own]);
    let consumer = Consumer::new(|_, _| StatusCode::CREATED.into_response());
    let sink = HttpSink::new(&consumer.serve().await).unwrap();
    let sink = sink.header("authorization", "Bearer secret").unwrap();
    let sink = sink.header("x-tenant", "the sink's").unwrap();
    assert_eq!(format!("{sink:?}").find("secret"), None);
    let queue = file.queue();
    let running = relaying(queue.clone(), sink);
    for id in &ids {
        becomes(&queue, *id, MessageState::Delivered).await;
    }
    running.stop().await;
    let mut seen = consumer.seen();
    seen.sort_by_key(|(_, body)| body.first() != Some(&b'{'));
    let of = |place: usize, name: &str| {
        let all = seen[place].0.get_all(name).iter();
        all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
    };
    for (place, id) in ids.iter().enumerate() {
        assert_eq!(of(place, "idempotency-key"), [id.to_string()]);
        assert_eq!(of(place, "onceward-topic"), ["order.placed"]);
        assert_eq!(of(place, "onceward-attempt"), ["1"]);
        assert_eq!(of(place, "onceward-deadline"), ["5000"]);
        assert_eq!(of(place, "authorization"), ["Bearer secret"]);
        assert_eq!(of(place, "x-tenant"), ["the sink's"]);
    }
    assert_eq!(of(0, "onceward-aggregate"), ["order-ä"]);
    assert_eq!(of(0, "content-type"), ["application/json"]);
    assert_eq!(of(0, "traceparent"), [TRACE]);
    assert_eq!(seen[0].1, "{\"order\":7}");
    assert_eq!(of(1, "content-type"), ["text/plain"]);
    assert_eq!(of(1, "x-two"), ["1", "2"]);
    assert_eq!(of(1, "content-length"), [seen[1].1.len().to_string()]);
    assert!(of(1, "traceparent").is_empty());
}

#[tokio::test]
async fn answers_decide_what_becomes_of_a_message() {
    let file = File::new();
    let [accepted, refused, gone, failing, twice] =
        ["accepted", "refused", "gone", "failing", "twice"]
            .map(|name| file.put(&[event(name, 0)])[0]);
    let consumer = Consumer::new(|_, headers| {
        let attempt = headers["onceward-attempt"].to_str().unwrap();
        let problem = "{\"type\":\"urn:onceward:problem:key-reused\",\"code\":\"key-reused\"}";
        let json = [("content-type", "application/problem+json")];
        match (headers["onceward-aggregate"].to_str().unwrap(), attempt) {
            ("refused", _) => (StatusCode::UNPROCESSABLE_ENTITY, json, problem).into_response(),
            ("gone", _) => StatusCode::GONE.into_response(),
            ("failing", _) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            ("twice", "1" | "2") => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            _ => StatusCode::NO_CONTENT.into_response(),
        }
    });
    let queue = file.queue();
    let running = relaying(queue.clone(), HttpSink::new(&consumer.serve().await).unwrap());
    becomes(&queue, accepted, MessageState::Delivered).await;
    becomes(&queue, refused, MessageState::Dead).await;
    becomes(&queue, gone, MessageState::Held).await;
    becomes(&queue, failing, MessageState::Dead).await;
    becomes(&queue, twice, MessageState::Delivered).await;
    running.stop().await;
    assert_eq!(shown(&queue, refused).await.attempts, 1);
    assert_eq!(shown(&queue, gone).await.why, "410 Gone");
    let dead = shown(&queue, failing).await;
    assert_eq!(dead.attempts, 5);
    assert!(dead.why.starts_with("500 Internal Server Error ("), "{}", dead.why);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let file = File::new();
    let id = file.put(&[event("order-7", 0)])[0];
    let other = Consumer::new(|_, _| StatusCode::OK.into_response());
    let elsewhere = other.serve().await;
    let consumer = Consumer::new(move |_, _| {
        (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, elsewhere.clone())]).into_response()
    });
    let queue = file.queue();
    let running = relaying(queue.clone(), HttpSink::new(&consumer.serve().await).unwrap());
    becomes(&queue, id, MessageState::Dead).await;
    running.stop().await;
    assert!(other.seen().is_empty());
    assert!(shown(&queue, id).await.why.starts_with("307 Temporary Redirect"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_down_and_no_message_pays_for_it() {
    let file = File::new();
    let ids: Vec<_> =
        (0..20).map(|order| file.put(&[event(&format!("order-{order}"), 0)])[0]).collect();
    let address: SocketAddr = testbed::free_address().unwrap();
    let sink = HttpSink::new(&format!("http://{address}/events")).unwrap();
    let down =
        || counted("onceward_relay_attempts_total", &[("sink", "billing"), ("result", "down")]);
    let before = down();
    let queue = file.queue();
    let running = relaying(queue.clone(), sink);
    until("it was tried", async || down() >= before + 3.0).await;
    let consumer = Consumer::new(|_, _| StatusCode::OK.into_response());
    consumer.serve_on(TcpListener::bind(address).await.unwrap());
    for id in &ids {
        becomes(&queue, *id, MessageState::Delivered).await;
    }
    running.stop().await;
    let attempts =
        consumer.seen().into_iter().map(|(headers, _)| headers["onceward-attempt"].clone());
    assert_eq!(attempts.collect::<Vec<_>>(), vec!["1"; 20], "none of them was counted");
}

/// Reads a whole request with a body from a connection; `None`: it was closed.
async fn read_request(connection: &mut tokio::net::TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1)?.lines().next()?;
            if body.len() >= length.parse::<usize>().ok()? {
                return Some(text);
            }
        }
        let mut piece = [0; 4096];
        match connection.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(length) => read.extend_from_slice(&piece[..length]),
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_asked_for_again_under_the_same_key() {
    let file = File::new();
    let id = file.put(&[event("order-7", 0)])[0];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut connection).await.unwrap());
            // The first connection breaks when the request was read.
            if requests.len() == 2 {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                connection.write_all(answer).await.unwrap();
                return requests;
            }
        }
    });
    let queue = file.queue();
    let unknown =
        || counted("onceward_relay_attempts_total", &[("sink", "billing"), ("result", "unknown")]);
    let before = unknown();
    let running = relaying(queue.clone(), HttpSink::new(&url).unwrap());
    becomes(&queue, id, MessageState::Delivered).await;
    running.stop().await;
    let requests = server.await.unwrap();
    assert!(requests.iter().all(|request| request.contains(&format!("idempotency-key: {id}"))));
    assert!(requests[1].contains("onceward-attempt: 2"), "{}", requests[1]);
    assert!(unknown() > before);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_it_was_idle_costs_no_attempt() {
    let file = File::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut attempts = Vec::new();
        while attempts.len() < 30 {
            let (mut connection, _) = listener.accept().await.unwrap();
            // It answers as if it kept the connection, and closes it.
            if let Some(request) = read_request(&mut connection).await {
                attempts.push(request.contains("onceward-attempt: 1"));
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                connection.write_all(answer).await.unwrap();
            }
        }
        attempts
    });
    let queue = file.queue();
    let running = relaying(queue.clone(), HttpSink::new(&url).unwrap());
    for number in 0..30 {
        let id = file.put(&[event("order-7", number)])[0];
        becomes(&queue, id, MessageState::Delivered).await;
    }
    running.stop().await;
    assert_eq!(server.await.unwrap(), vec![true; 30]);
}

#[tokio::test]
async fn any_client_over_http_can_send() {
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};

    let file = File::new();
    let id = file.put(&[event("order-7", 0)])[0];
    let consumer = Consumer::new(|_, _| StatusCode::OK.into_response());
    let client: Client<_, onceward::Body> = Client::builder(TokioExecutor::new()).build_http();
    let sink = HttpSink::over(client, &consumer.serve().await).unwrap();
    let queue = file.queue();
    let running = relaying(queue.clone(), sink);
    becomes(&queue, id, MessageState::Delivered).await;
    running.stop().await;
    assert_eq!(consumer.seen().len(), 1);
}

#[test]
fn topics_are_taken_by_name_or_by_prefix() {
    let sink = HttpSink::new("http://localhost/").unwrap();
    let takes = |sink: &HttpSink<_>, topic: &str| sink.takes(&Topic::new(topic).unwrap());
    assert!(takes(&sink, "anything"));
    let sink = sink.topics(["order.*", "refund.requested"]);
    let taken = [
        "order.placed",
        "order.",
        "refund.requested",
        "orders.placed",
        "refund",
        "refund.requested.twice",
    ];
    let taken = taken.map(|topic| takes(&sink, topic));
    assert_eq!(taken, [true, true, true, false, false, false]);
}

#[test]
fn what_is_no_url_or_header_is_refused_and_no_secret_is_shown() {
    for url in [
        "",
        "billing",
        "/events",
        "ftp://billing/events",
        "http://",
        "https://ada:secret@billing.example/events?token=secret",
        "http://billing example/secret",
    ] {
        let error = HttpSink::new(url).unwrap_err();
        assert!(matches!(error, HttpSinkError::Url(_)), "{url}");
        let text = error.to_string();
        assert!(text.contains("http://") && !text.contains("secret"), "{text}");
    }
    for (name, value) in [
        ("x y", "1"),
        ("x", "a\nb"),
        ("Idempotency-Key", "1"),
        ("host", "other"),
        ("onceward-attempt", "1"),
        ("transfer-encoding", "chunked"),
    ] {
        let sink = HttpSink::new("https://billing.example/events").unwrap();
        let error = sink.header(name, value).unwrap_err();
        assert_eq!(error, HttpSinkError::Header(name.to_owned()));
    }
}
