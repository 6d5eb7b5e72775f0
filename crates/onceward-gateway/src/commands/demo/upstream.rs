//! The upstream: a payments API as most are written, which recognises no repeats and does
//! not always feel well.

use std::{
    error::Error,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::{Frame, SizeHint};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use uuid::Uuid;

use super::{
    ledger::{Asker, Ended, Ledger, Work},
    port::Port,
};

/// Who calls, in this demo. A real service does not believe such a header: it takes the caller from
/// an identity that its authentication has verified.
pub(super) const CALLER: &str = "x-api-key";

/// How long the upstream is away when it goes away.
const AWAY: Duration = Duration::from_millis(60);

pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    pub(super) ledger: Ledger,
    is_calm: Arc<AtomicBool>,
    serving: JoinHandle<io::Result<()>>,
}

impl Upstream {
    pub(super) fn start() -> io::Result<Self> {
        let (port, is_calm) = (Port::free()?, Arc::new(AtomicBool::new(false)));
        let (address, ledger) = (port.address, Ledger::default());
        let listener = port.listen()?;
        let listener =
            Flaky { listener: Some(listener), port, away_at: soon(), is_calm: is_calm.clone() };
        let payments = Payments { ledger: ledger.clone(), is_calm: is_calm.clone() };
        let routes = Router::new()
            .route("/charges", post(charge).get(charges))
            .route("/reconcile", post(reconcile))
            .with_state(payments);
        let serving = tokio::spawn(axum::serve(listener, routes).into_future());
        Ok(Self { address, ledger, is_calm, serving })
    }

    /// No mischief from now on. It may still be away, for the last time.
    pub(super) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Waits until it is back, after `calm_down`.
    pub(super) async fn is_back(&self) {
        while TcpStream::connect(self.address).await.is_err() {
            sleep(AWAY / 4).await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// From time to time it goes away and its port refuses connections.
struct Flaky {
    port: Port,
    listener: Option<TcpListener>,
    away_at: Instant,
    is_calm: Arc<AtomicBool>,
}

impl axum::serve::Listener for Flaky {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            let Some(listener) = &self.listener else {
                sleep(AWAY).await;
                self.listener = self.port.listen().ok();
                self.away_at = soon();
                continue;
            };
            tokio::select! {
                // A client that is connected already comes first: nothing cuts it off.
                biased;
                accepted = listener.accept() => match accepted {
                    Ok((stream, client)) => {
                        let _ = stream.set_nodelay(true);
                        return (stream, client);
                    }
                    Err(_) => sleep(Duration::from_millis(10)).await,
                },
                () = sleep_until(self.away_at) => match self.is_calm.load(Ordering::Relaxed) {
                    true => self.away_at = soon(),
                    false => self.listener = None,
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.address)
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(fastrand::u64(400..=900))
}

#[derive(Clone)]
struct Payments {
    ledger: Ledger,
    is_calm: Arc<AtomicBool>,
}

#[derive(Deserialize)]
struct NewCharge {
    customer: String,
    cents: u32,
}

#[derive(Deserialize)]
struct Question {
    execution: String,
}

impl Payments {
    /// Takes the money, in as long as a card network needs.
    async fn take(self, work: Work, new: NewCharge) -> Response {
        if self.happens(3) {
            return (StatusCode::SERVICE_UNAVAILABLE, "not now; nothing was done").into_response();
        }
        work.begin();
        self.card_network().await;
        let charge = json!({
            "id": format!("ch_{}", Uuid::now_v7().simple()),
            "customer": new.customer,
            "cents": new.cents,
        });
        let answer = Bytes::from(charge.to_string());
        work.charge(new.cents, answer.clone());
        // The money is gone; its receipt is still on the way.
        self.card_network().await;
        if self.happens(1) {
            work.break_off();
            return (StatusCode::CREATED, axum::body::Body::new(BrokenOff(answer))).into_response();
        }
        (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], answer).into_response()
    }

    /// Mostly quick, sometimes much slower than a customer likes to wait.
    async fn card_network(&self) {
        let slow = self.happens(3);
        let took_ms = if slow { fastrand::u64(60..=160) } else { fastrand::u64(1..=6) };
        sleep(Duration::from_millis(took_ms)).await;
    }

    fn happens(&self, percent: u8) -> bool {
        !self.is_calm.load(Ordering::Relaxed) && fastrand::u8(..100) < percent
    }
}

async fn charge(
    State(payments): State<Payments>,
    headers: HeaderMap,
    Json(new): Json<NewCharge>,
) -> Result<Response, NotSignedIn> {
    let text = |name| text(&headers, name).map(str::to_owned);
    let asker = Asker {
        key: text("idempotency-key").unwrap_or_default(),
        caller: text(CALLER).ok_or(NotSignedIn)?,
        execution: text("onceward-execution"),
        via: text("x-forwarded-host"),
    };
    let Some(work) = payments.ledger.enter(asker) else {
        let late = "too late: the API has said that this never happened; nothing was done";
        return Ok((StatusCode::SERVICE_UNAVAILABLE, late).into_response());
    };
    // Like most services it goes on when its client is gone.
    let taken = tokio::spawn(payments.take(work, new)).await;
    Ok(taken.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()))
}

/// Tells a gateway what became of an execution whose end it has not seen.
async fn reconcile(
    State(payments): State<Payments>,
    Json(question): Json<Question>,
) -> Json<Value> {
    Json(match payments.ledger.end_of(&question.execution) {
        Ended::Applied(answer) => json!({"outcome": "applied", "response": {
            "status": StatusCode::CREATED.as_u16(),
            "headers": [["content-type", "application/json"]],
            "body_base64": Base64::encode_string(&answer),
        }}),
        Ended::Never => json!({"outcome": "never"}),
        Ended::Unknown => json!({"outcome": "unknown"}),
    })
}

async fn charges(
    State(payments): State<Payments>,
    headers: HeaderMap,
) -> Result<Json<Value>, NotSignedIn> {
    let caller = text(&headers, CALLER).ok_or(NotSignedIn)?;
    let charged = payments.ledger.charged();
    let own: Vec<_> = charged.iter().filter(|charge| charge.caller == caller).collect();
    let total: u64 = own.iter().map(|charge| u64::from(charge.cents)).sum();
    let list = own.iter().map(|charge| serde_json::from_slice(&charge.answer).unwrap_or_default());
    let list: Vec<Value> = list.collect();
    Ok(Json(json!({"count": list.len(), "total_cents": total, "charges": list})))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// An answer whose connection breaks before it is whole.
struct BrokenOff(Bytes);

impl http_body::Body for BrokenOff {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Err("it broke off".into())))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[derive(Debug)]
struct NotSignedIn;

impl fmt::Display for NotSignedIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("say who you are: X-Api-Key: any-name")
    }
}

impl IntoResponse for NotSignedIn {
    fn into_response(self) -> Response {
        (StatusCode::UNAUTHORIZED, self.to_string()).into_response()
    }
}
