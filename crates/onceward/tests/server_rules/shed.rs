//! Rules 27 and 28: retries above their share, and work that nobody waits for any more.

use std::{ops::RangeInclusive, time::Duration};

use axum::{Router, body::Body, extract::Request as Asked, routing::any};
use http::Request;
use onceward::{Incoming, Store as _, protocol::Found, retry::Priority, server::OptionsError};

use crate::{
    fixture::{Fixture, ask, payment, preferring, start, status_of, text, told, with},
    server_support::{Gate, layer, post, send, store},
};

fn keyed(key: &str) -> Request<Body> {
    post("/pay", key, "")
}

fn unkeyed() -> Request<Body> {
    Request::post("/pay").body(Body::empty()).unwrap()
}

fn again(request: Request<Body>) -> Request<Body> {
    with(request, "onceward-attempt", b"2")
}

fn within(request: Request<Body>, millis: &str) -> Request<Body> {
    with(request, "onceward-deadline", millis.as_bytes())
}

/// How many of these are run; the others are refused as the contract says.
async fn run(app: &Router, requests: impl Iterator<Item = Request<Body>>) -> usize {
    let mut run = 0;
    for request in requests {
        let reply = send(app, request).await;
        if reply.status == 201 {
            run += 1;
            continue;
        }
        assert_eq!(told(&reply), "429 retry-budget-exhausted");
        let pause: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&pause), "{pause}");
    }
    run
}

#[tokio::test(start_paused = true)]
async fn rule_27_without_a_key_the_client_says_that_it_is_a_retry() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    assert_eq!(run(&app, (0..60).map(|_| unkeyed())).await, 60);
    assert_eq!(run(&app, (0..40).map(|_| again(unkeyed()))).await, 15, "15 of 75 are a fifth");
    assert_eq!(run(&app, [unkeyed()].into_iter()).await, 1, "a first attempt is never refused");
    assert_eq!(fixture.ledger.len(), 60 + 15 + 1);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(run(&app, [again(unkeyed())].into_iter()).await, 1, "where there is no crowd");
}

#[tokio::test(start_paused = true)]
async fn rule_27_with_a_key_only_what_would_run_is_refused_and_its_key_is_free() {
    let fixture = Fixture::new(|options| options.retry_share(0.1).not_applied([503]));
    let ledger = fixture.ledger.clone();
    let app = fixture.app(any(async move || match ledger.add("pay") {
        1 => text(503, "not now"),
        number => text(201, format!("receipt {number}")),
    }));
    assert_eq!(ask(&app, keyed("released")).await, "503 not now");
    assert_eq!(run(&app, (0..60).map(|number| keyed(&format!("k{number}")))).await, 60);
    let retries = (0..20).map(|number| again(keyed(&format!("r{number}"))));
    assert_eq!(run(&app, retries).await, 6, "6 of 67 are less than a tenth, 7 of 68 are more");
    // It was given back: its repeat is a retry, whatever its client says.
    let refused = send(&app, keyed("released")).await;
    assert_eq!(told(&refused), "429 retry-budget-exhausted");
    assert_eq!(status_of(&app, &refused).await["state"], "released");
    for number in 0..60 {
        let replayed = send(&app, again(keyed(&format!("k{number}")))).await;
        assert!(replayed.is_replay(), "{}", told(&replayed));
    }
    assert_eq!(run(&app, [keyed("new")].into_iter()).await, 1);
    assert_eq!(fixture.ledger.len(), 1 + 60 + 6 + 1);
}

#[tokio::test(start_paused = true)]
async fn rule_27_the_share_is_a_choice() {
    let fixture = Fixture::new(|options| options.retry_share(1.0));
    let app = fixture.paying();
    assert_eq!(run(&app, (0..200).map(|_| again(unkeyed()))).await, 200);
    for share in [-0.1, 1.1, f64::NAN] {
        let error = layer(store()).retry_share(share).build().unwrap_err();
        let OptionsError::Option { option, .. } = error else { panic!("{error}") };
        assert_eq!(option, "retry_share");
    }
}

#[tokio::test]
async fn rule_28_expired_work_is_refused_before_it_runs_and_claims_nothing() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    assert_eq!(ask(&app, within(unkeyed(), "0")).await, "504 deadline-exceeded");
    let refused = send(&app, within(payment(), "0")).await;
    assert_eq!(told(&refused), "504 deadline-exceeded");
    let id = refused.header("onceward-operation").unwrap().parse().unwrap();
    assert_eq!(fixture.store.get(&id).await.unwrap(), Found::Nothing, "nothing was claimed");
    assert_eq!(fixture.ledger.len(), 0);
    assert_eq!(ask(&app, within(payment(), "60000")).await, "201 receipt 1");
    assert_eq!(ask(&app, within(payment(), "0")).await, "201 receipt 1 replayed");
    for garbage in ["soon", "-1", ""] {
        assert_eq!(ask(&app, within(payment(), garbage)).await, "201 receipt 1 replayed");
    }
}

/// A duplicate that waited becomes the runner when the key is given back, unless its client has gone.
#[tokio::test(start_paused = true)]
async fn rule_28_work_that_expired_while_it_waited_is_not_run() {
    let fixture = Fixture::new(|options| options.not_applied([503]));
    let (ledger, gate) = (fixture.ledger.clone(), Gate::closed());
    let held = gate.clone();
    let app = fixture.app(any(move || {
        let (number, held) = (ledger.add("pay"), held.clone());
        async move {
            if number > 1 {
                return text(201, format!("receipt {number}"));
            }
            held.pass().await;
            text(503, "not now")
        }
    }));
    let first = start(&app, payment());
    gate.reached().await;
    let gone = start(&app, within(preferring("wait=5"), "100"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    assert_eq!(told(&first.await.unwrap()), "503 not now");
    assert_eq!(told(&gone.await.unwrap()), "504 deadline-exceeded");
    assert_eq!(fixture.ledger.len(), 1);
    assert_eq!(ask(&app, payment()).await, "201 receipt 2", "its key is free");
}

/// A handler's own calls have no more time than its client.
#[tokio::test(start_paused = true)]
async fn rule_28_a_handler_sees_how_much_time_is_left() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(any(async |request: Asked| {
        let incoming = request.extensions().get::<Incoming>().copied().unwrap();
        let left: RangeInclusive<u128> = 1..=1_500;
        assert!(left.contains(&incoming.remaining().unwrap().as_millis()));
        assert_eq!((incoming.attempt, incoming.priority), (3, Some(Priority::LOW)));
        text(201, "in time")
    }));
    let request = with(within(payment(), "1500"), "onceward-attempt", b"3");
    assert_eq!(ask(&app, with(request, "onceward-priority", b"1")).await, "201 in time");
}
