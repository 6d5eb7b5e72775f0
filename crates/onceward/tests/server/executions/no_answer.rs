//! Handlers that fail: what is not a whole answer is never a success.

use std::{
    fmt,
    sync::{Arc, Mutex},
    task::Poll,
};

use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use onceward::{
    Body, Effect, Profile, Status,
    server::{Errors, IdempotencyBuilder},
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use crate::{
    executions::charges::{
        Charges, NoAnswer, REPEATABLE, created, is_answer, is_replay, request, status,
    },
    server_support::{Ledger, Reply, is_problem, layer, memory},
};

#[tokio::test(start_paused = true)]
async fn no_complete_answer_is_an_unknown_outcome_and_never_a_success() {
    for no_answer in NoAnswer::ALL {
        for profile in [Profile::Standard, Profile::Strict, Profile::Stripe] {
            let chosen = |layer: IdempotencyBuilder| layer.profile(profile).errors(Errors::Problem);
            let charges = Charges::new(chosen, move |_| no_answer.answer());
            let first = charges.send().await;
            is_problem(&first, 504, "outcome-unknown");
            assert_eq!(first.json()["retryable"], false, "{no_answer:?}");
            assert!(first.header("idempotency-completed").is_none(), "{no_answer:?}");
            charges.stays_unknown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_complete_answer_of_a_repeatable_effect_is_run_again() {
    for no_answer in NoAnswer::ALL {
        let handler = move |number| async move {
            match number {
                1 => no_answer.answer().await,
                _ => created(number),
            }
        };
        let charges = Charges::new(|layer| layer.effect(REPEATABLE), handler);
        let first = charges.send().await;
        is_problem(&first, 502, "upstream-failed");
        assert_eq!(first.json()["retryable"], true, "{no_answer:?}");
        assert_eq!(status(&charges.store).await, Some(Status::FailedRetryable));
        is_answer(&charges.send().await, "charge 2");
        is_replay(&charges.send().await, "charge 2");
        assert_eq!((charges.ledger.len(), charges.engine.unsettled()), (2, 0), "{no_answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_error_is_no_answer_in_any_tower_service() {
    for (effect, (status, code), runs) in [
        (Effect::External, (504, "outcome-unknown"), 1),
        (REPEATABLE, (502, "upstream-failed"), 3),
        (Effect::Transactional, (502, "upstream-failed"), 3),
    ] {
        let ledger = Ledger::default();
        let made = ledger.clone();
        let service = service_fn(move |request: Request<Body>| {
            let made = made.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&body[..], b"{}", "the service is given the whole request");
                made.add("charge");
                Err::<Response<Body>, _>(Unreachable)
            }
        });
        let idempotency = layer(memory()).effect(effect).build().unwrap();
        let service = idempotency.layer(service);
        let request = || request().map(|_| Body::from("{}"));
        let first = send_to(&service, request()).await.unwrap();
        is_problem(&first, status, code);
        for _ in 0..2 {
            let retry = send_to(&service, request()).await.unwrap();
            assert_eq!(retry.code(), code, "{effect:?}");
        }
        assert_eq!(ledger.len(), runs, "{effect:?}");

        let mut unkeyed = request();
        unkeyed.headers_mut().remove("idempotency-key");
        let passed = send_to(&service, unkeyed).await;
        assert!(matches!(passed, Err(Unreachable)), "what is not covered passes untouched");
    }
}

/// Fails to become ready once; then it works.
#[derive(Clone)]
struct Overloaded {
    failed: Arc<Mutex<bool>>,
    ledger: Ledger,
}

impl Service<Request<Body>> for Overloaded {
    type Response = Response<Body>;
    type Error = Unreachable;
    type Future = std::future::Ready<Result<Response<Body>, Unreachable>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Unreachable>> {
        let had_failed = std::mem::replace(&mut *self.failed.lock().unwrap(), true);
        Poll::Ready(if had_failed { Ok(()) } else { Err(Unreachable) })
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.ledger.add("charge");
        std::future::ready(Ok(Response::new(Body::from("charged"))))
    }
}

#[tokio::test]
async fn a_service_that_never_saw_the_request_gives_the_key_free() {
    let (ledger, failed) = (Ledger::default(), Arc::default());
    let idempotency = layer(memory()).build().unwrap();
    let service = idempotency.layer(Overloaded { failed, ledger: ledger.clone() });
    let request = || request().map(|_| Body::from("{}"));
    is_problem(&send_to(&service, request()).await.unwrap(), 502, "upstream-failed");
    assert_eq!(send_to(&service, request()).await.unwrap().text(), "charged");
    assert!(send_to(&service, request()).await.unwrap().is_replay());
    assert_eq!(ledger.len(), 1);
}

#[derive(Debug)]
struct Unreachable;

async fn send_to<S, E>(service: &S, request: Request<Body>) -> Result<Reply, E>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = E> + Clone,
    E: fmt::Debug,
{
    let (head, body) = service.clone().oneshot(request).await?.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    Ok(Reply { status: head.status, headers: head.headers, body, trailers })
}
