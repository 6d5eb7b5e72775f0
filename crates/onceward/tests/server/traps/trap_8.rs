//! Trap 8: whose key it is, and who may see what became of it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::Request,
    http::{StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post as on_post,
};
use onceward::{Scope, server::Idempotency};

use crate::server_support::{Ledger, Reply, memory, post, send};

/// Who asks, as authentication found out.
#[derive(Clone)]
struct Caller(&'static str);

/// Two tokens are Alice's: one of them is the refreshed one.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
    let caller = match token {
        Some("Bearer alice-1" | "Bearer alice-2") => Caller("alice"),
        Some("Bearer bob-1") => Caller("bob"),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Payments of several callers, with the gates that stand before and behind the layer.
struct Gated {
    app: Router,
    ledger: Ledger,
    revoked: Arc<Mutex<Vec<&'static str>>>,
    /// What the handler answers before it does anything, or 0.
    refusal: Arc<AtomicU16>,
}

impl Gated {
    fn new() -> Self {
        let (ledger, refusal) = (Ledger::default(), Arc::new(AtomicU16::new(0)));
        let (made, refuse) = (ledger.clone(), refusal.clone());
        let handler = async move |body: Bytes| match refuse.load(Ordering::SeqCst) {
            0 => {
                let number = made.add(String::from_utf8(body.to_vec()).unwrap());
                (StatusCode::CREATED, format!("charge {number}")).into_response()
            }
            status => StatusCode::from_u16(status).unwrap().into_response(),
        };
        let revoked = Arc::new(Mutex::new(Vec::new()));
        let without_rights = revoked.clone();
        let scope = |request: &Parts| {
            let Caller(name) = request.extensions.get().ok_or("not signed in")?;
            Scope::of("caller", name).map_err(|_| "not a name")
        };
        let idempotency = Idempotency::builder(memory(), scope)
            .authorize_replay(move |request| {
                let Caller(name) = request.extensions.get().unwrap();
                let is_allowed = !without_rights.lock().unwrap().contains(name);
                async move { is_allowed }
            })
            .build()
            .unwrap();
        let app = Router::new()
            .route("/charges", on_post(handler))
            .layer(idempotency)
            .layer(middleware::from_fn(authenticate));
        Self { app, ledger, revoked, refusal }
    }

    async fn send(&self, token: &str, key: &str, body: &'static str) -> Reply {
        let mut request = post("/charges", key, body);
        let token = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, token);
        send(&self.app, request).await
    }
}

#[tokio::test]
async fn trap_8_scope_and_gates() {
    every_caller_has_its_own_keys().await;
    a_revoked_caller_sees_nothing_and_runs_nothing().await;
    a_refusal_before_the_work_does_not_bind_the_key().await;
    keys_are_compared_as_strings().await;
}

async fn every_caller_has_its_own_keys() {
    let payments = Gated::new();
    let alice = payments.send("alice-1", "k", "5").await;
    let bob = payments.send("bob-1", "k", "5").await;
    assert_eq!((alice.text(), bob.text()), ("charge 1", "charge 2"), "one execution each");
    assert!(!bob.is_replay());
    // Also what would be a mismatch for Alice is none for Bob.
    let other = payments.send("bob-1", "k2", "6").await;
    let alice = payments.send("alice-1", "k2", "7").await;
    assert_eq!((other.text(), alice.text()), ("charge 3", "charge 4"));
    let refreshed = payments.send("alice-2", "k", "5").await;
    assert!(refreshed.is_replay() && refreshed.text() == "charge 1", "{refreshed:?}");
    let stranger = payments.send("mallory-1", "k", "5").await;
    assert_eq!((stranger.status.as_u16(), stranger.text()), (401, ""));
    assert_eq!(payments.ledger.len(), 4);
}

async fn a_revoked_caller_sees_nothing_and_runs_nothing() {
    let payments = Gated::new();
    payments.send("alice-1", "k", "5").await;
    payments.revoked.lock().unwrap().push("alice");
    for token in ["alice-1", "alice-2"] {
        let reply = payments.send(token, "k", "5").await;
        assert_eq!((reply.status.as_u16(), &*reply.code()), (403, "replay-forbidden"));
        assert!(!reply.is_replay() && !reply.text().contains("charge 1"), "{reply:?}");
        assert!(!reply.headers.contains_key("idempotency-completed"), "{reply:?}");
    }
    payments.revoked.lock().unwrap().clear();
    let replay = payments.send("alice-1", "k", "5").await;
    assert!(replay.is_replay() && replay.text() == "charge 1", "{replay:?}");
    assert_eq!(payments.ledger.len(), 1);
}

async fn a_refusal_before_the_work_does_not_bind_the_key() {
    for status in [401, 403, 407, 408, 412, 421, 423, 425, 428, 429, 431] {
        let payments = Gated::new();
        payments.refusal.store(status, Ordering::SeqCst);
        for _ in 0..2 {
            let refused = payments.send("alice-1", "k", "5").await;
            assert_eq!(refused.status, status, "refused each time anew");
            assert!(!refused.is_replay() && refused.header("idempotency-completed").is_none());
        }
        // Not even to what was asked for.
        payments.refusal.store(0, Ordering::SeqCst);
        let charged = payments.send("alice-1", "k", "6").await;
        assert_eq!((charged.status.as_u16(), charged.text()), (201, "charge 1"), "after {status}");
        assert_eq!(payments.send("alice-1", "k", "5").await.code(), "key-reused");
        assert_eq!(payments.ledger.len(), 1);
    }
}

async fn keys_are_compared_as_strings() {
    let payments = Gated::new();
    assert_eq!(payments.send("alice-1", "k", "5").await.text(), "charge 1");
    assert!(payments.send("alice-1", "\"k\"", "5").await.is_replay(), "a structured string");
    let upper = payments.send("alice-1", "K", "5").await;
    assert!(!upper.is_replay() && upper.text() == "charge 2", "another key: {upper:?}");
    assert_eq!(payments.ledger.len(), 2);
}
