//! A layered service that writes down every effect, ways to hold it up, and what callers are told.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    routing::{MethodRouter, any},
};
use http::{Request, Response, StatusCode};
use onceward::{
    Digest, Store as _,
    clock::ManualClock,
    protocol::{Found, Stored},
    server::{Idempotency, IdempotencyBuilder},
    store::memory::MemoryStore,
};
use tokio::task::JoinHandle;

use crate::server_support::{Gate, Ledger, Reply, layer, post, send};

pub(crate) const KEY: &str = "order-17";
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A layer on a memory store whose clock moves when told to, and the ledger of its service.
pub(crate) struct Fixture {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) ledger: Ledger,
    pub(crate) idempotency: Idempotency,
}

impl Fixture {
    pub(crate) fn new(choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
        let idempotency = choose(layer(store.clone())).build().unwrap();
        Self { clock, store, ledger: Ledger::default(), idempotency }
    }

    /// One service for `/pay`, and the status routes.
    pub(crate) fn app(&self, service: MethodRouter) -> Router {
        let covered = Router::new().route("/pay", service).layer(self.idempotency.clone());
        covered.merge(self.idempotency.status_routes())
    }

    /// A service that does it and says so.
    pub(crate) fn paying(&self) -> Router {
        self.app(answering(&self.ledger, |number| text(201, format!("receipt {number}"))))
    }

    /// A service that is held up after its effect, until the gate is opened.
    pub(crate) fn gated(&self, gate: &Gate) -> Router {
        let (ledger, gate) = (self.ledger.clone(), gate.clone());
        self.app(any(async move || {
            let number = ledger.add("pay");
            gate.pass().await;
            text(201, format!("receipt {number}"))
        }))
    }

    /// The record that an answer speaks of.
    pub(crate) async fn record(&self, reply: &Reply) -> Stored {
        let id: Digest = reply.header("onceward-operation").unwrap().parse().unwrap();
        let Found::Record(stored) = self.store.get(&id).await.unwrap() else {
            panic!("there is no record");
        };
        *stored
    }
}

/// A service that writes down an effect and answers by its number.
pub(crate) fn answering<F>(ledger: &Ledger, answer: F) -> MethodRouter
where
    F: Fn(usize) -> Response<Body> + Clone + Send + Sync + 'static,
{
    let ledger = ledger.clone();
    any(async move || answer(ledger.add("pay")))
}

pub(crate) fn text(status: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// The request that most tests are about.
pub(crate) fn payment() -> Request<Body> {
    post("/pay", KEY, "{\"cents\": 500}")
}

pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &[u8]) -> Request<Body> {
    let value = http::HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().append(name, value);
    request
}

pub(crate) fn preferring(preference: &str) -> Request<Body> {
    with(payment(), "prefer", preference.as_bytes())
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// Sends a request without waiting for its answer.
pub(crate) fn start(app: &Router, request: Request<Body>) -> JoinHandle<Reply> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, request).await })
}

/// On paused time: lets everybody else go as far as they can.
pub(crate) async fn settle_down() {
    tokio::time::sleep(Duration::from_micros(1)).await;
}

/// Status, retryable and `safe_new_key` of each code: the table of the contract.
const PROBLEMS: [(&str, &[u16], bool, bool); 24] = [
    ("key-missing", &[400], false, true),
    ("key-invalid", &[400], false, true),
    ("key-expired", &[400], false, false),
    ("scope-missing", &[401], false, true),
    ("key-reused", &[422, 409, 400], false, true),
    ("in-progress", &[409], true, false),
    ("outcome-unknown", &[409, 503, 504], false, false),
    ("result-unavailable", &[409], false, false),
    ("lease-lost", &[409], true, false),
    ("body-too-large", &[413], false, true),
    ("store-unavailable", &[503], true, false),
    ("clock-suspect", &[503], true, false),
    ("overloaded", &[503], true, false),
    ("too-many-open", &[429], true, false),
    ("retry-budget-exhausted", &[429], true, false),
    ("deadline-exceeded", &[504], true, false),
    ("not-committed", &[500], true, false),
    ("upstream-failed", &[502, 503, 504], true, false),
    ("upstream-unreachable", &[502], true, false),
    ("replay-forbidden", &[403], false, false),
    ("operation-not-found", &[404], false, false),
    ("route-missing", &[404], false, true),
    ("request-malformed", &[400], false, true),
    ("misconfigured", &[500], false, false),
];

/// An answer on one line, as in `201 receipt 1 replayed` or `409 in-progress`.
///
/// Whatever is told is checked: problem documents are whole, marker and dates are where they belong.
pub(crate) fn told(reply: &Reply) -> String {
    let status = reply.status.as_u16();
    let code = reply.code();
    if code.is_empty() {
        let marker = if reply.is_replay() { " replayed" } else { "" };
        return format!("{status} {}{marker}", String::from_utf8_lossy(&reply.body));
    }
    let problem = PROBLEMS.iter().find(|problem| problem.0 == code);
    let (_, statuses, retryable, safe_new_key) = problem.expect("a code of the contract");
    assert!(statuses.contains(&status), "{code}: {status}");
    let retryable = *retryable || (code == "outcome-unknown" && status == 503);
    let document = reply.json();
    let expected = serde_json::json!({
        "type": format!("urn:onceward:problem:{code}"),
        "title": code.replace('-', " "),
        "status": status,
        "code": code,
        "detail": document["detail"].as_str().filter(|detail| detail.len() > 20).expect("a detail"),
        "retryable": retryable,
        "safe_new_key": safe_new_key,
        "doc_url": document["doc_url"].as_str().filter(|url| url.starts_with("https://")),
    });
    let link = format!("<{}>; rel=\"describedby\"", document["doc_url"].as_str().unwrap());
    assert!(reply.header("link").unwrap().starts_with(&link), "{code}");
    assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{code}");
    let mut others = document.clone();
    let members = others.as_object_mut().unwrap();
    let (operation, cause) = (members.remove("operation"), members.remove("cause"));
    assert_eq!(others, expected);
    let says_why = cause.is_some_and(|cause| !cause.as_str().unwrap().is_empty());
    assert_eq!(says_why, code == "outcome-unknown" && status != 503, "{code}");
    assert_eq!(operation.as_ref().map(|value| value.as_str().unwrap()), operation_of(reply));
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{code}");
    for name in ["idempotent-replayed", "idempotency-expires", "idempotency-completed"] {
        assert_eq!(reply.header(name), None, "{code}: {name}");
    }
    format!("{status} {code}")
}

pub(crate) fn operation_of(reply: &Reply) -> Option<&str> {
    reply.header("onceward-operation")
}

pub(crate) async fn ask(app: &Router, request: Request<Body>) -> String {
    told(&send(app, request).await)
}

/// The status document of the operation that an answer speaks of.
pub(crate) async fn status_of(app: &Router, reply: &Reply) -> serde_json::Value {
    let path = format!("/.onceward/operations/{}", operation_of(reply).unwrap());
    let status = send(app, get(&path)).await;
    assert_eq!(status.status, 200, "{}", told(&status));
    status.json()
}
