//! The client against the server half: both ends of the contract.

use std::time::Duration;

use http::HeaderValue;
use http_body_util::BodyExt as _;
use onceward::{
    client::{Report, Retry},
    retry::{Class, Stop, StopReason},
};

use crate::{
    fast::{impatient, post, rules, send},
    server::{Server, Step},
    shop::Shop,
};

#[tokio::test]
async fn a_slow_answer_is_waited_for_under_the_same_key_and_lands_once() {
    // The first attempt is given up; the next ones meet a busy key, wait, and get the stored answer.
    let shop = Shop::open(Duration::from_millis(1_500)).await;
    let response = send(&impatient(), post(&shop.url())).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(response.headers()["idempotent-replayed"], "true");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "charge 1");
    assert_eq!(shop.effects(), 1);
    let first = &report.attempts[0];
    assert_eq!((first.class, report.stop), (Class::Ambiguous, None));
    assert!(report.attempts.len() >= 2);
}

#[tokio::test]
async fn a_202_of_ours_is_followed_until_it_has_ended() {
    let shop = Shop::open(Duration::from_millis(200)).await;
    let request = || {
        let mut request = post(&shop.url());
        request.headers_mut().insert("prefer", HeaderValue::from_static("respond-async"));
        request
    };
    let given_back = send(&impatient(), request()).await.unwrap();
    assert_eq!(given_back.status(), 202, "without `until_done`");
    let until_done = Retry::with(rules().until_done().build().unwrap());
    let response = send(&until_done, request()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "charge 2");
    assert_eq!(shop.effects(), 2);
    assert!(report.polls >= 1);
    let classes: Vec<_> = report.attempts.iter().map(|attempt| attempt.class).collect();
    assert_eq!(classes, [Class::Accepted, Class::Success]);
}

#[tokio::test]
async fn a_202_whose_operation_ends_unknown_or_never_says_so() {
    let accepted = |to: &str| {
        let lines = vec![("location", to.to_owned()), ("onceward-operation", "x".to_owned())];
        Step::Answer(202, lines, "")
    };
    let unknown = Step::Answer(200, vec![], "{\"state\":\"unknown\"}");
    let pending = Step::Answer(200, vec![], "{\"state\":\"in_progress\"}");
    let rules = rules().deadline(Duration::from_secs(2)).until_done().build().unwrap();
    let retry = Retry::with(rules);
    for (state, reason) in [(unknown, StopReason::Answered), (pending, StopReason::Deadline)] {
        let server = Server::script([accepted("/status"), state]).await;
        let response = send(&retry, post(&server.url("/charges"))).await.unwrap();
        assert_eq!(response.status(), 202);
        let report = response.extensions().get::<Report>().unwrap();
        assert_eq!(report.stop, Some(Stop::Unknown(reason)));
        let asked = &server.observation()[1];
        assert_eq!((&*asked.method, &*asked.path), ("GET", "/status"));
        assert_eq!(asked.line("idempotency-key"), None);
    }
    let server = Server::script([accepted("http://127.0.0.1:1/status")]).await;
    let response = send(&retry, post(&server.url("/charges"))).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), server.observation().len()),
        (202, 1),
        "not followed elsewhere"
    );
}
