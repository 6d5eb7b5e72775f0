//! A route that charges, the ways in which its handler ends, and what its callers are told.

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body as AxumBody,
    http::{HeaderValue, Request, Response, StatusCode, header, request::Parts},
    response::IntoResponse as _,
    routing::post as on_post,
};
use http_body_util::BodyExt as _;
use onceward::{
    Effect, Ending, Engine, Outcome, Scope, Status, Store,
    protocol::Settled,
    server::{Claim, Idempotency, IdempotencyBuilder, InFlight},
    store::memory::MemoryStore,
};
use tokio::task::yield_now;

use crate::server_support::{
    self, Ledger, Pieces, Reply, broken, data, is_problem, layer, memory, post, send,
};

pub(crate) const LEASE: Duration = Duration::from_millis(100);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const REPEATABLE: Effect = Effect::Repeatable { within: HOUR };

/// As `layer`, on an engine that the test drives too.
pub(crate) fn layer_on(engine: &Engine) -> IdempotencyBuilder {
    Idempotency::builder(engine.clone(), |_: &Parts| Scope::of("caller", "anyone"))
        .in_flight(InFlight::Conflict)
}

pub(crate) fn request() -> Request<AxumBody> {
    post("/charges", "k", "{}")
}

pub(crate) fn preferring(preference: &'static str) -> Request<AxumBody> {
    let mut request = request();
    request.headers_mut().insert("prefer", HeaderValue::from_static(preference));
    request
}

pub(crate) async fn status(store: &impl Store) -> Option<Status> {
    server_support::status(store, "k").await
}

#[track_caller]
pub(crate) fn is_answer(reply: &Reply, text: &str) {
    assert_eq!((reply.status.as_u16(), reply.text()), (201, text), "{reply:?}");
}

#[track_caller]
pub(crate) fn is_replay(reply: &Reply, text: &str) {
    is_answer(reply, text);
    assert!(reply.is_replay(), "{reply:?}");
}

/// One route, its store and what it really did.
pub(crate) struct Charges {
    pub(crate) app: Router,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
}

impl Charges {
    /// A handler that is given its number, after its effect was written down.
    pub(crate) fn new<Fut>(
        choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
        handler: impl Fn(usize) -> Fut + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Response<AxumBody>> + Send,
    {
        let (store, ledger) = (memory(), Ledger::default());
        let made = ledger.clone();
        let handler = async move || handler(made.add("charge")).await;
        let idempotency = choose(layer(store.clone())).build().unwrap();
        let engine = idempotency.engine().clone();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        Self { app, store, engine, ledger }
    }

    pub(crate) async fn send(&self) -> Reply {
        send(&self.app, request()).await
    }

    /// The operation ended as unknown: nobody runs it again.
    pub(crate) async fn stays_unknown(&self) {
        assert_eq!(status(&self.store).await, Some(Status::Unknown));
        for _ in 0..2 {
            is_problem(&self.send().await, 409, "outcome-unknown");
        }
        assert_eq!((self.ledger.len(), self.engine.unsettled()), (1, 0));
    }
}

pub(crate) fn created(number: usize) -> Response<AxumBody> {
    (StatusCode::CREATED, format!("charge {number}")).into_response()
}

pub(crate) fn in_pieces(body: Pieces) -> Response<AxumBody> {
    (StatusCode::CREATED, AxumBody::new(body)).into_response()
}

/// The ways in which a handler gives no complete answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoAnswer {
    Panics,
    PanicsLater,
    PanicsInItsBody,
    BreaksOff,
    BreaksOffAtOnce,
    IsShorterThanSaid,
    IsLongerThanSaid,
}

impl NoAnswer {
    pub(crate) const ALL: [Self; 7] = [
        Self::Panics,
        Self::PanicsLater,
        Self::PanicsInItsBody,
        Self::BreaksOff,
        Self::BreaksOffAtOnce,
        Self::IsShorterThanSaid,
        Self::IsLongerThanSaid,
    ];

    pub(crate) async fn answer(self) -> Response<AxumBody> {
        let said = |length: u64, text: &'static str| {
            let mut response = in_pieces(Pieces::of([data(text)]));
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            response
        };
        match self {
            Self::Panics => panic!("a bug of the handler (expected by this test)"),
            Self::PanicsLater => {
                yield_now().await;
                panic!("a bug of the handler (expected by this test)")
            }
            Self::PanicsInItsBody => {
                let body = Pieces::of([data("half of the")]);
                in_pieces(body).map(|body| {
                    AxumBody::new(body.map_frame(|_| panic!("a bug of the body (expected)")))
                })
            }
            Self::BreaksOff => in_pieces(Pieces::of([data("half of the"), broken()])),
            Self::BreaksOffAtOnce => in_pieces(Pieces::of([broken()])),
            Self::IsShorterThanSaid => said(9, "charge 1"),
            Self::IsLongerThanSaid => said(7, "charge 1"),
        }
    }
}

/// A transaction of the user's: the effect and the end of the claim are one commit.
pub(crate) async fn commit(store: &Arc<MemoryStore>, ledger: &Ledger, claim: &Claim) {
    let outcome = Outcome::inline(201, b"committed".to_vec()).header("x-of", b"the commit");
    let engine = Engine::new(store.clone());
    let settled = engine.settle((**claim).clone(), Ending::Succeeded(outcome)).await.unwrap();
    assert!(matches!(settled, Settled::Stored { .. }), "{settled:?}");
    ledger.add("charge");
}
