//! Rules 10 to 12: what an answer of the service means for a retry.

use axum::{Router, body::Body, routing::any};
use http::{Request, Response};
use onceward::{
    Effect, Ending, Outcome, Profile, Store as _,
    protocol::{Fence, Meaning},
    server::{Claim, Errors, IdempotencyBuilder},
};
use tower::{Layer as _, ServiceExt as _};

use crate::{
    fixture::{Fixture, HOUR, SECOND, answering, ask, payment, status_of, text, told},
    server_support::{Ledger, Pieces, broken, layer, send, store},
};

const REPEATABLE: Effect = Effect::Repeatable { within: HOUR };

/// What becomes of a retry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Retry {
    Replayed,
    RunsAgain,
    Unknown,
}
use Retry::{Replayed, RunsAgain, Unknown};

/// Sends twice to a service that answers with this status, and says what the retry got.
async fn retry_after(
    choose: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    answer: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> Retry {
    let fixture = Fixture::new(choose);
    let app = fixture.app(answering(&fixture.ledger, move |number| {
        let mut answer = answer();
        answer.headers_mut().insert("x-number", number.into());
        answer
    }));
    let first = send(&app, payment()).await;
    let status = first.status.as_u16();
    assert_eq!(told(&first), told(&first).replace(" replayed", ""), "a first answer is no replay");
    assert_eq!(first.headers["x-number"], "1", "the first client gets the answer of the service");
    let again = send(&app, payment()).await;
    let retry = match (told(&again).as_str(), again.is_replay(), fixture.ledger.len()) {
        ("409 outcome-unknown", false, 1) => Unknown,
        (_, true, 1) => Replayed,
        (_, false, 2) => RunsAgain,
        other => panic!("{status}: {other:?}"),
    };
    if retry != Unknown {
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{status}");
    }
    let dated = first.header("idempotency-completed").is_some();
    assert_eq!(dated, retry == Replayed, "{status}: only an answer that is kept has dates");
    retry
}

fn plain(status: u16) -> impl Fn() -> Response<Body> + Clone + Send + Sync + 'static {
    let body = if [204, 205, 304].contains(&status) { "" } else { "body" };
    move || text(status, body)
}

type Choice = fn(IdempotencyBuilder) -> IdempotencyBuilder;

const PROFILES: [(&str, Choice); 6] = [
    ("standard", |options| options),
    ("strict", |options| options.profile(Profile::Strict)),
    ("stripe", |options| options.profile(Profile::Stripe).errors(Errors::Problem)),
    ("standard, repeatable", |options| options.effect(REPEATABLE).profile(Profile::Standard)),
    ("strict, repeatable", |options| options.effect(REPEATABLE).profile(Profile::Strict)),
    ("rerun", |options| options.effect(REPEATABLE)),
];

#[tokio::test]
async fn rule_10_success_and_redirection_are_kept_in_every_profile() {
    for (profile, choose) in PROFILES {
        for status in [200, 201, 202, 204, 205, 206, 226, 299, 300, 301, 303, 304, 307, 308, 399] {
            assert_eq!(retry_after(choose, plain(status)).await, Replayed, "{profile}: {status}");
        }
    }
}

#[tokio::test]
async fn rule_11_refusals_are_kept_except_those_before_anything_was_done() {
    let released = [401, 403, 407, 408, 412, 421, 423, 425, 428, 429, 431];
    for (profile, choose) in PROFILES {
        for status in 400..=499 {
            let is_released = released.contains(&status) || (status == 400 && profile == "stripe");
            let expected = if is_released { RunsAgain } else { Replayed };
            assert_eq!(retry_after(choose, plain(status)).await, expected, "{profile}: {status}");
        }
    }
}

#[tokio::test]
async fn rule_11_a_conflict_of_the_service_is_kept_and_ours_is_not() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(answering(&fixture.ledger, |_| text(409, "sold out")));
    assert_eq!(ask(&app, payment()).await, "409 sold out");
    assert_eq!(ask(&app, payment()).await, "409 sold out replayed");
}

#[tokio::test]
async fn rule_12_server_errors_by_profile() {
    for (status, expected) in [
        // standard, strict, stripe; repeatable: standard, strict, rerun
        (500, [Replayed, Replayed, Replayed, Replayed, Replayed, RunsAgain]),
        (501, [Replayed, Replayed, Replayed, Replayed, Replayed, RunsAgain]),
        (502, [Unknown, Unknown, Replayed, Unknown, Unknown, RunsAgain]),
        (503, [RunsAgain, Unknown, Replayed, RunsAgain, Unknown, RunsAgain]),
        (504, [Unknown, Unknown, Replayed, Unknown, Unknown, RunsAgain]),
        (505, [Replayed, Replayed, Replayed, Replayed, Replayed, RunsAgain]),
        (529, [Replayed, Replayed, Replayed, Replayed, Replayed, RunsAgain]),
        (599, [Replayed, Replayed, Replayed, Replayed, Replayed, RunsAgain]),
        // No status of HTTP: nobody can say what it means.
        (600, [Unknown, Unknown, Unknown, Unknown, Unknown, RunsAgain]),
        (999, [Unknown, Unknown, Unknown, Unknown, Unknown, RunsAgain]),
    ] {
        for ((profile, choose), expected) in PROFILES.into_iter().zip(expected) {
            assert_eq!(retry_after(choose, plain(status)).await, expected, "{profile}: {status}");
        }
    }
}

#[tokio::test]
async fn rule_12_a_503_frees_the_key_and_says_when_to_come_back() {
    for (said, expected) in [(None, "1"), (Some("7"), "7")] {
        let fixture = Fixture::new(|options| options);
        let app = fixture.app(answering(&fixture.ledger, move |number| {
            let mut answer = text(if number == 1 { 503 } else { 201 }, "body");
            if let Some(pause) = said.filter(|_| number == 1) {
                answer.headers_mut().insert("retry-after", pause.parse().unwrap());
            }
            answer
        }));
        let first = send(&app, payment()).await;
        assert_eq!(
            (told(&first).as_str(), first.header("retry-after")),
            ("503 body", Some(expected))
        );
        assert_eq!(status_of(&app, &first).await["state"], "released");
        assert_eq!(ask(&app, payment()).await, "201 body");
        assert_eq!(ask(&app, payment()).await, "201 body replayed");
        assert_eq!(fixture.ledger.len(), 2);
    }
}

/// A 503 that breaks off says nothing: a proxy may have begun to send it when the service was gone.
#[tokio::test]
async fn rule_12_only_a_whole_503_frees_the_key() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.app(answering(&fixture.ledger, |_| {
        text(503, Body::new(Pieces::of(["unav"]).then(broken())))
    }));
    assert_eq!(ask(&app, payment()).await, "504 outcome-unknown");
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_12_a_route_may_hold_500_or_know_what_was_not_applied() {
    for (status, held, listed) in [
        (500, Unknown, Replayed),
        (501, Unknown, Replayed),
        (503, Unknown, RunsAgain),
        (502, Unknown, Unknown),
        (529, Unknown, RunsAgain),
        (599, Unknown, Replayed),
    ] {
        let strict = |options: IdempotencyBuilder| options.profile(Profile::Strict);
        let holding = retry_after(|options| strict(options).hold_500(), plain(status)).await;
        assert_eq!(holding, held, "{status}");
        let believing = retry_after(IdempotencyBuilder::hold_500, plain(status)).await;
        let expected = if status == 503 { RunsAgain } else { held };
        assert_eq!(believing, expected, "{status}: standard holds all but a 503");
        let known = |options| strict(options).not_applied([503, 529]);
        assert_eq!(retry_after(known, plain(status)).await, listed, "{status}");
        let both = retry_after(|options| known(options).hold_500(), plain(status)).await;
        let expected = if listed == RunsAgain { RunsAgain } else { held };
        assert_eq!(both, expected, "{status}: what is known is not held");
    }
}

/// Ways not to answer.
fn incomplete(way: &'static str) -> Response<Body> {
    match way {
        "panic" => panic!("as the test wants it"),
        "broken" => text(200, Body::new(Pieces::of(["rec"]).then(broken()))),
        "short" | "long" => {
            let mut answer = text(200, Body::new(Pieces::of(["receipt"])));
            let length = if way == "short" { 8 } else { 6 };
            answer.headers_mut().insert("content-length", length.into());
            answer
        }
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn rule_12_no_complete_answer_is_unknown_or_run_again() {
    for (profile, choose) in PROFILES {
        for way in ["panic", "broken", "short", "long"] {
            let fixture = Fixture::new(choose);
            let app = fixture.app(answering(&fixture.ledger, move |number| match number {
                1 => incomplete(way),
                _ => text(201, format!("receipt {number}")),
            }));
            let told = [ask(&app, payment()).await, ask(&app, payment()).await];
            let expected = match profile {
                "rerun" => ["502 upstream-failed", "201 receipt 2"],
                _ => ["504 outcome-unknown", "409 outcome-unknown"],
            };
            assert_eq!(told, expected, "{profile}: {way}");
            assert_eq!(fixture.ledger.len(), if profile == "rerun" { 2 } else { 1 });
        }
    }
}

#[tokio::test]
async fn rule_12_a_service_that_fails_has_not_answered() {
    let (idempotency, ledger) = (layer(store()).build().unwrap(), Ledger::default());
    let service = idempotency.layer(tower::service_fn({
        let ledger = ledger.clone();
        move |_: Request<onceward::Body>| {
            ledger.add("pay");
            async { Err::<Response<onceward::Body>, _>("the connection was reset") }
        }
    }));
    for status in [504, 409, 409] {
        let request = Request::post("/pay").header("idempotency-key", "k");
        let request = request.body(onceward::Body::from("{}")).unwrap();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
    }
    assert_eq!(ledger.len(), 1);
}

#[tokio::test]
async fn rule_12_runs_are_repeated_only_while_that_is_harmless() {
    let fixture = Fixture::new(|options| options.effect(REPEATABLE));
    let service = {
        let ledger = fixture.ledger.clone();
        any(async move |claim: Claim| {
            ledger.add("pay");
            text(500, format!("attempt {}", claim.attempt()))
        })
    };
    let app = fixture.app(service);
    let first = send(&app, payment()).await;
    assert_eq!(told(&first), "500 attempt 1");
    assert_eq!(status_of(&app, &first).await["state"], "failed_retryable");
    fixture.clock.advance(HOUR - SECOND);
    assert_eq!(ask(&app, payment()).await, "500 attempt 2");
    fixture.clock.advance(SECOND);
    assert_eq!(ask(&app, payment()).await, "409 outcome-unknown", "an hour after the first claim");
    assert_eq!(status_of(&app, &first).await["state"], "unknown");
    assert_eq!(fixture.ledger.len(), 2);
}

#[tokio::test]
async fn rule_12_a_transactional_effect_without_a_commit_did_not_happen() {
    let transactional = |options: IdempotencyBuilder| options.effect(Effect::Transactional);
    for status in [500, 502, 503, 504, 599] {
        assert_eq!(retry_after(transactional, plain(status)).await, RunsAgain, "{status}");
    }
    for (status, expected) in [(404, Replayed), (409, Replayed), (401, RunsAgain), (429, RunsAgain)]
    {
        assert_eq!(retry_after(transactional, plain(status)).await, expected, "{status}");
    }
    for status in [200, 201, 204, 302] {
        let fixture = Fixture::new(transactional);
        let app = fixture.app(answering(&fixture.ledger, plain_by_number(status)));
        for number in 1..=2 {
            assert_eq!(ask(&app, payment()).await, "500 not-committed", "{status}");
            assert_eq!(fixture.ledger.len(), number, "it may be run again");
        }
    }
    let fixture = Fixture::new(transactional);
    let app = fixture.app(answering(&fixture.ledger, |_| incomplete("broken")));
    assert_eq!(ask(&app, payment()).await, "502 upstream-failed");
    assert_eq!(ask(&app, payment()).await, "502 upstream-failed");
    assert_eq!(fixture.ledger.len(), 2);
}

fn plain_by_number(status: u16) -> impl Fn(usize) -> Response<Body> + Clone + Send + Sync {
    let plain = plain(status);
    move |_| plain()
}

#[tokio::test]
async fn rule_12_what_a_transactional_effect_committed_is_what_everybody_is_told() {
    for (committed, answered) in [(201, 201), (201, 500), (402, 200), (500, 201)] {
        let fixture = Fixture::new(|options| options.effect(Effect::Transactional));
        let (ledger, store) = (fixture.ledger.clone(), fixture.store.clone());
        let app = fixture.app(any(async move |claim: Claim| {
            ledger.add("pay");
            let outcome = Outcome::inline(committed, b"committed".to_vec()).header("x-a", b"1");
            let ending = match committed {
                201 => Ending::Succeeded(outcome),
                _ => Ending::FailedFinal(outcome),
            };
            let settlement = claim.settle(ending, Fence::from_random([7; 16]));
            store.swap(settlement.change()).await.unwrap();
            text(answered, "answered")
        }));
        let first = send(&app, payment()).await;
        assert_eq!(told(&first), format!("{committed} committed"));
        assert_eq!(first.header("x-a"), Some("1"));
        let retry = send(&app, payment()).await;
        assert_eq!(told(&retry), format!("{committed} committed replayed"));
        for name in ["idempotency-completed", "idempotency-expires"] {
            assert!(first.header(name).is_some() && first.header(name) == retry.header(name));
        }
        assert_eq!(fixture.ledger.len(), 1);
    }
}

#[tokio::test]
async fn rule_12_the_word_of_the_service_counts_more_than_its_status() {
    for (status, meaning, expected) in [
        (500, Meaning::Released, RunsAgain),
        (502, Meaning::FailedFinal, Replayed),
        (200, Meaning::Unknown, Unknown),
        (402, Meaning::FailedRetryable, RunsAgain),
        (429, Meaning::FailedFinal, Replayed),
        (503, Meaning::Succeeded, Replayed),
    ] {
        let answer = move || {
            let mut answer = text(status, "body");
            answer.extensions_mut().insert(meaning);
            answer
        };
        assert_eq!(retry_after(|options| options, answer).await, expected, "{status} {meaning:?}");
    }
}

#[tokio::test]
async fn rule_12_states_are_told_by_their_names() {
    for (status, state) in [
        (201, "succeeded"),
        (302, "succeeded"),
        (404, "failed_final"),
        (500, "failed_final"),
        (502, "unknown"),
        (429, "released"),
    ] {
        let fixture = Fixture::new(|options| options);
        let app: Router = fixture.app(answering(&fixture.ledger, plain_by_number(status)));
        let reply = send(&app, payment()).await;
        let document = status_of(&app, &reply).await;
        assert_eq!(document["state"], state, "{status}");
        let ended = state == "succeeded" || state == "failed_final";
        assert_eq!(document["status"], serde_json::json!(ended.then_some(status)));
    }
}
