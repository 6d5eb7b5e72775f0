//! Statement 1, and what else the safety gate, the key and the report promise.

use std::time::Duration;

use http::{Request, header::HeaderValue};
use http_body_util::BodyExt as _;
use onceward::{
    Body, Incoming,
    client::{Report, Retry},
    retry::{Class, Stop, StopReason},
};

use crate::{
    fast::{impatient, post, report, retry, rules, send},
    server::{Server, Step},
};

/// Each of the failures that a write can meet.
fn failures() -> Vec<(&'static str, Step, Class)> {
    vec![
        ("time-out", Step::Silence, Class::Ambiguous),
        ("reset after send", Step::Reset, Class::Ambiguous),
        ("500", Step::status(500), Class::ServerFault),
        ("502", Step::status(502), Class::ServerFault),
        ("503", Step::status(503), Class::Overload),
        ("504", Step::status(504), Class::ServerFault),
        ("429", Step::status(429), Class::Overload),
    ]
}

/// Waits for nothing long, also when it is told of overload.
fn brief() -> Retry {
    let rules = rules().attempt_timeout(Duration::from_secs(1));
    Retry::with(rules.overload_base(Duration::from_millis(1)).build().unwrap())
}

#[tokio::test]
async fn statement_1_a_post_without_key_is_sent_exactly_once() {
    for (name, step, class) in failures() {
        let server = Server::script([step]).await;
        let result = send(&brief().without_keys(), post(&server.url("/charges"))).await;
        assert_eq!(server.observation().len(), 1, "{name}");
        assert_eq!(server.observation()[0].line("idempotency-key"), None);
        let report = report(&result);
        assert_eq!(report.attempts[0].class, class, "{name}");
        assert_eq!(report.stop.unwrap().reason(), StopReason::Unsafe, "{name}");
        // A gateway that had no answer itself leaves as much open as none.
        let doubt = class == Class::Ambiguous || ["502", "504"].contains(&name);
        assert_eq!(report.stop.unwrap().is_unknown(), doubt, "{name}");
        assert_eq!(result.is_ok(), class != Class::Ambiguous, "{name}: an answer is given back");
    }
}

#[tokio::test]
async fn statement_1_with_a_key_it_is_retried_with_byte_identical_key_and_body() {
    for (name, step, class) in failures() {
        let server = Server::script([step.clone(), step, Step::status(201)]).await;
        let response = send(&brief(), post(&server.url("/charges"))).await.unwrap();
        assert_eq!(response.status(), 201, "{name}");
        let observation = server.observation();
        assert_eq!(observation.len(), 3, "{name}");
        let key = observation[0].line("idempotency-key").unwrap();
        for (number, request) in observation.iter().enumerate() {
            assert_eq!(request.line("idempotency-key"), Some(key), "{name}");
            assert_eq!(request.body, b"{\"cents\":500}", "{name}");
            assert_eq!(
                request.line("onceward-attempt"),
                Some(&*(number + 1).to_string()),
                "{name}"
            );
            assert_eq!(request.line("onceward-priority"), Some("2"), "{name}");
            let deadline: u64 = request.line("onceward-deadline").unwrap().parse().unwrap();
            assert!((1..=1_000).contains(&deadline), "{name}: {deadline}");
        }
        let report: &Report = response.extensions().get().unwrap();
        assert_eq!((report.key(), report.stop), (Some(key), None), "{name}");
        let classes: Vec<_> = report.attempts.iter().map(|attempt| attempt.class).collect();
        assert_eq!(classes, [class, class, Class::Success], "{name}");
        assert!(report.attempts[0].wait.is_some() && report.attempts[2].wait.is_none());
    }
}

#[tokio::test]
async fn statement_1_an_answer_that_is_bound_is_not_retried() {
    for (name, value) in
        [("idempotent-replayed", "true"), ("idempotency-expires", "2026-11-17T00:00:00Z")]
    {
        for status in [500, 502, 503, 504, 429] {
            let server = Server::script([Step::with(status, name, value)]).await;
            let response = send(&brief(), post(&server.url("/charges"))).await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(server.observation().len(), 1, "{name} {status}");
            let report: &Report = response.extensions().get().unwrap();
            assert_eq!(report.stop, Some(Stop::Failed(StopReason::Answered)));
        }
    }
}

#[tokio::test]
async fn the_callers_own_key_wins() {
    let server = Server::script([Step::status(500), Step::status(200)]).await;
    let mut request = post(&server.url("/charges"));
    request.headers_mut().insert("idempotency-key", HeaderValue::from_static("\"order-7\""));
    let result = send(&retry(), request).await;
    let keys: Vec<_> = server
        .observation()
        .iter()
        .map(|observation| observation.line("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["\"order-7\"", "\"order-7\""]);
    assert_eq!(report(&result).key(), Some("order-7"));
}

#[tokio::test]
async fn a_connection_that_never_came_about_is_tried_again_even_without_key() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let result = send(&retry().without_keys(), post(&format!("http://{closed}/charges"))).await;
    let report = report(&result);
    assert_eq!(report.attempts.len(), 3);
    assert!(
        report.attempts.iter().all(|attempt| attempt.class == Class::NeverSent { reused: false })
    );
    assert_eq!(report.stop, Some(Stop::Failed(StopReason::Attempts)), "it did not happen");
    let text = result.unwrap_err().to_string();
    assert!(text.contains("3 attempts") && text.contains("did not happen"), "{text}");
}

#[tokio::test]
async fn an_unknown_outcome_is_told_with_what_to_do_and_without_the_key() {
    let server = Server::script([Step::Reset]).await;
    let error = send(&impatient(), post(&server.url("/charges"))).await.unwrap_err();
    assert!(error.is_unknown());
    let (text, key) = (error.to_string(), error.report().key().unwrap());
    assert!(text.contains("may have happened") && text.contains("same key"), "{text}");
    assert!(!text.contains(key), "the key itself is a secret of the caller's");
}

#[tokio::test]
async fn the_last_answer_is_given_back_with_why_it_stopped() {
    let server = Server::script([Step::Answer(500, vec![], "the server's own words")]).await;
    let response = send(&retry(), post(&server.url("/charges"))).await.unwrap();
    assert_eq!(response.status(), 500);
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(report.stop, Some(Stop::Failed(StopReason::Attempts)));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "the server's own words");
}

#[tokio::test]
async fn our_codes_are_read_from_the_answer_and_its_body_is_given_on() {
    let problem = vec![("content-type", "application/problem+json".to_owned())];
    let busy = Step::Answer(409, problem.clone(), "{\"code\":\"in-progress\"}");
    let unknown = Step::Answer(409, problem, "{\"code\":\"outcome-unknown\"}");
    let server = Server::script([busy.clone(), busy, unknown]).await;
    let response = send(&retry(), post(&server.url("/charges"))).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(report.stop, Some(Stop::Unknown(StopReason::Answered)));
    assert_eq!(server.observation().len(), 3);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "{\"code\":\"outcome-unknown\"}");
}

#[tokio::test]
async fn a_key_that_a_clock_may_have_forgotten_is_asked_again_and_never_known_to_have_failed() {
    let problem = vec![("content-type", "application/problem+json".to_owned())];
    let body = "{\"type\":\"urn:onceward:problem:clock-suspect\",\"code\":\"clock-suspect\",\
                \"retryable\":true,\"safe_new_key\":false}";
    let suspect = Step::Answer(503, problem, body);
    let server = Server::script([suspect.clone(), Step::status(201)]).await;
    let response = send(&retry(), post(&server.url("/charges"))).await.unwrap();
    assert_eq!(response.status(), 201);
    let keys: Vec<_> = server
        .observation()
        .iter()
        .map(|observation| observation.line("idempotency-key").map(str::to_owned))
        .collect();
    assert!(keys.len() == 2 && keys[0].is_some() && keys[0] == keys[1], "{keys:?}");

    let server = Server::script([suspect]).await;
    let response = send(&retry(), post(&server.url("/charges"))).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(
        report.stop,
        Some(Stop::Unknown(StopReason::Attempts)),
        "with a new key it may run twice"
    );
}

#[tokio::test]
async fn calls_on_behalf_of_a_retry_are_not_retried_and_inherit_time_and_priority() {
    let server = Server::script([Step::status(500)]).await;
    let mut headers = http::HeaderMap::new();
    headers.insert("onceward-attempt", HeaderValue::from_static("2"));
    headers.insert("onceward-deadline", HeaderValue::from_static("700"));
    headers.insert("onceward-priority", HeaderValue::from_static("3"));
    let incoming = Incoming::from(&headers);
    let mut request = post(&server.url("/charges"));
    request.extensions_mut().insert(incoming);
    for result in [
        send(&retry(), request).await,
        send(&retry().serving(incoming), post(&server.url("/"))).await,
    ] {
        assert_eq!(report(&result).stop, Some(Stop::Failed(StopReason::Nested)));
    }
    for observation in server.observation() {
        assert_eq!(observation.line("onceward-priority"), Some("3"));
        assert!(observation.line("onceward-deadline").unwrap().parse::<u64>().unwrap() <= 700);
    }
    assert_eq!(server.observation().len(), 2);
}

#[tokio::test]
async fn strangers_can_be_spared_our_headers() {
    let server = Server::script([Step::status(200)]).await;
    send(&retry().without_headers(), post(&server.url("/"))).await.unwrap();
    let headers = &server.observation()[0].headers;
    assert!(!headers.keys().any(|name| name.as_str().starts_with("onceward-")), "{headers:?}");
    assert!(headers.contains_key("idempotency-key"));
}

#[tokio::test]
async fn credentials_are_refreshed_once_and_the_key_stays() {
    let server = Server::script([Step::status(401), Step::status(200)]).await;
    let retry = retry().refresh(|uri| async move {
        assert_eq!(uri.path(), "/charges");
        // As of a whole request that was prepared: what is no credential stays as it is.
        Ok(http::HeaderMap::from_iter([
            (http::header::AUTHORIZATION, HeaderValue::from_static("Bearer new")),
            (http::header::HOST, HeaderValue::from_static("elsewhere.example")),
            (http::header::CONTENT_LENGTH, HeaderValue::from_static("1")),
            (http::HeaderName::from_static("idempotency-key"), HeaderValue::from_static("another")),
        ]))
    });
    let mut request = post(&server.url("/charges"));
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer old"));
    let response = send(&retry, request).await.unwrap();
    assert_eq!(response.status(), 200);
    let observation = server.observation();
    assert_eq!(observation[0].line("authorization"), Some("Bearer old"));
    assert_eq!(observation[1].line("authorization"), Some("Bearer new"));
    for same in ["idempotency-key", "host", "content-length"] {
        assert_eq!(observation[0].line(same), observation[1].line(same), "{same}");
    }

    let stubborn = Server::script([Step::status(401)]).await;
    let response = send(&retry, post(&stubborn.url("/charges"))).await.unwrap();
    assert_eq!((response.status().as_u16(), stubborn.observation().len()), (401, 2), "once a call");

    let failing = retry.refresh(|_| async { Err("no password".into()) });
    let response = send(&failing, post(&stubborn.url("/charges"))).await.unwrap();
    assert_eq!(report(&Ok(response)).stop, Some(Stop::Failed(StopReason::Unauthorised)));
}

#[tokio::test]
async fn a_fallback_is_marked_and_never_given_for_a_write_unless_asked() {
    let server = Server::script([Step::status(500)]).await;
    let retry = retry().fallback(|report| {
        assert!(report.stop.is_some());
        Some(http::Response::new("[]".into()))
    });
    let get = Request::get(server.url("/charges")).body(Body::empty()).unwrap();
    let response = send(&retry, get).await.unwrap();
    assert!(response.extensions().get::<Report>().unwrap().fallback);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "[]");
    let response = send(&retry, post(&server.url("/charges"))).await.unwrap();
    assert_eq!(response.status(), 500);
    let response = send(&retry.fallback_for_writes(), post(&server.url("/charges"))).await.unwrap();
    assert!(response.extensions().get::<Report>().unwrap().fallback);
}

#[tokio::test]
async fn a_place_in_flight_is_held_until_the_body_ends_and_given_back_by_every_end() {
    let server = Server::script([Step::TrickleBody("slow", Duration::from_millis(5))]).await;
    let retry = retry();
    let in_flight = || retry.target(&server.url("/").parse().unwrap()).in_flight;
    let get = || Request::get(server.url("/")).body(Body::empty()).unwrap();
    let response = send(&retry, get()).await.unwrap();
    assert_eq!(in_flight(), 1, "its body is still to come");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "slow");
    assert_eq!(in_flight(), 0);
    drop(send(&retry, get()).await.unwrap());
    assert_eq!(in_flight(), 0, "dropped unread");

    let silent = Server::script([Step::Silence]).await;
    let silent_url = silent.url("/");
    let get = Request::get(&silent_url).body(Body::empty()).unwrap();
    let cancelled = tokio::time::timeout(Duration::from_millis(50), send(&retry, get)).await;
    assert!(cancelled.is_err());
    assert_eq!(retry.target(&silent_url.parse().unwrap()).in_flight, 0, "the caller went away");
}
