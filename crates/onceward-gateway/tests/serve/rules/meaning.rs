//! Rules 7, 8 and 10 to 12: whether it is the same request, and what an answer means.

use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};

use crate::{
    gateway_support::{Call, Gateway, Link, Pipe, Reply, Upstream, Version, route, upstreams},
    rules::pay,
};

#[tokio::test]
async fn rule_7_the_meaning_of_a_request_counts_and_not_its_spelling() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let call = |path: &str, body: &str| {
        let call = Call::post(path).key("k").header("x-api-key", "alice");
        call.header("content-type", "application/json").body(body.to_owned())
    };
    gateway.send(&call("/pay?a=1&b=2", r#"{"x": 1, "y": "\u0041"}"#)).await;
    for version in Version::BOTH {
        let respelled = call("/pay?b=2&a=1", r#"{"y":"A","x":1}"#);
        assert!(gateway.send_by(version, &respelled).await.is_replay());
        for (path, body) in [
            ("/pay?a=1&b=3", r#"{"x": 1, "y": "A"}"#),
            ("/pay?a=1&b=2", r#"{"x": 2, "y": "A"}"#),
            ("/pay?a=1&b=2", r#"{"x": 1, "y": "A"#),
        ] {
            let reply = gateway.send_by(version, &call(path, body)).await;
            assert_eq!(reply.problem(), (422, "key-reused".into()), "{path} {body}");
        }
    }
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_7_the_whole_body_counts_also_when_it_comes_in_pieces() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let mut body = vec![b'x'; 700_000];
    let call = Call::post("/pay").key("k").header("x-api-key", "alice");
    assert_eq!(gateway.send(&call.clone().body(body.clone())).await.status, 201);
    for version in Version::BOTH {
        let (sender, pipe) = Pipe::new();
        for piece in body.chunks(50_000) {
            sender.send(Frame::data(Bytes::copy_from_slice(piece))).await.unwrap();
        }
        drop(sender);
        let response = Link::open(gateway.address, version).await.stream(&call, pipe).await;
        assert!(Reply::read(response.unwrap()).await.unwrap().is_replay());
    }
    *body.last_mut().unwrap() = b'y';
    let changed = gateway.send(&call.body(body)).await;
    assert_eq!(changed.problem(), (422, "key-reused".into()));
    assert_eq!(upstream.count().await, 1);
    assert_eq!(upstream.seen().await[0]["size"], 700_000);
}

#[tokio::test]
async fn rule_7_headers_count_where_the_route_says_so() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("fingerprint_headers = [\"x-currency\"]"));
    let call = pay("k").header("x-currency", "EUR").header("x-other", "1");
    gateway.send(&call).await;
    let other = call.clone().without("x-other");
    assert!(gateway.send(&other).await.is_replay());
    let changed = call.without("x-currency").header("x-currency", "USD");
    assert_eq!(gateway.send(&changed).await.status, 422);
}

#[tokio::test]
async fn rule_8_another_request_is_refused_also_while_the_first_runs_and_learns_nothing() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("mismatch = 409"));
    let running = gateway.begin(&pay("k").told(json!({"gate": "g", "body": "secret"})));
    upstream.arrival(1).await;
    let other = pay("k").json(json!({"amount": 6}));
    assert_eq!(gateway.send(&other).await.problem(), (409, "key-reused".into()));
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().text(), "secret");
    let after = gateway.send(&other).await;
    assert_eq!(after.problem(), (409, "key-reused".into()));
    assert!(!after.text().contains("secret"));
    assert_eq!(upstream.count().await, 1);
}

/// What a retry is told.
#[derive(Debug, PartialEq, Eq)]
enum Retry {
    Replayed,
    RunAgain,
    Unknown,
}
use Retry::{Replayed, RunAgain, Unknown};

/// Each case: what the upstream does, what the first client is told, what a retry is told.
async fn each_means(lines: &str, cases: &[(Value, (u16, &str), Retry)]) {
    for upstream in upstreams() {
        let gateway = Gateway::start(&upstream, &route(lines));
        for (index, (told, first, retry)) in cases.iter().enumerate() {
            let call = pay(&format!("key-{index}"));
            let case = format!("{:?}, {lines:?}, {told}", upstream.kind);
            let reply = gateway.send(&call.clone().told(told.clone())).await;
            assert_eq!(reply.problem(), (first.0, first.1.to_owned()), "{case}");
            assert!(!reply.is_replay());
            let again = gateway.send(&call).await;
            let means = match again.problem() {
                _ if again.is_replay() => Replayed,
                (201, _) => RunAgain,
                (409, code) if code == "outcome-unknown" => Unknown,
                other => panic!("{other:?}: {case}"),
            };
            assert_eq!(means, *retry, "{case}");
            if again.is_replay() {
                assert_eq!((again.status, &again.body), (reply.status, &reply.body), "{case}");
            }
            let runs = if *retry == RunAgain { 2 } else { 1 };
            assert_eq!(upstream.count_of(&format!("key-{index}")).await, runs, "{case}");
        }
    }
}

fn status(status: u16) -> Value {
    json!({ "status": status })
}

#[tokio::test]
async fn rule_12_the_default_believes_a_503() {
    let pause = json!({"status": 503, "headers": [["Retry-After", "7"]]});
    let cases = [
        (status(503), (503, ""), RunAgain),
        (pause.clone(), (503, ""), RunAgain),
        (status(500), (500, ""), Replayed),
        (status(502), (502, ""), Unknown),
        (status(504), (504, ""), Unknown),
        (json!({"cut": 3, "status": 503}), (504, "outcome-unknown"), Unknown),
    ];
    each_means("", &cases).await;
    each_means("profile = \"standard\"", &cases).await;
    let cases = [
        (status(503), (503, ""), RunAgain),
        (status(500), (500, ""), Unknown),
        (status(529), (529, ""), RunAgain),
    ];
    each_means("on_500 = \"hold\"\nnot_applied = [529]", &cases).await;
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    for (key, told, expected) in [("a", status(503), "1"), ("b", pause, "7")] {
        let reply = gateway.send(&pay(key).told(told)).await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some(expected)));
    }
}

#[tokio::test]
async fn rules_10_to_12_profile_strict() {
    let cases = [
        (status(200), (200, ""), Replayed),
        (status(204), (204, ""), Replayed),
        (status(303), (303, ""), Replayed),
        (status(400), (400, ""), Replayed),
        (status(409), (409, ""), Replayed),
        (status(401), (401, ""), RunAgain),
        (status(408), (408, ""), RunAgain),
        (status(429), (429, ""), RunAgain),
        (status(500), (500, ""), Replayed),
        (status(507), (507, ""), Replayed),
        (status(502), (502, ""), Unknown),
        (status(503), (503, ""), Unknown),
        (status(504), (504, ""), Unknown),
        (json!({"hang_up": true}), (504, "outcome-unknown"), Unknown),
        (json!({"cut": 3}), (504, "outcome-unknown"), Unknown),
        (json!({"cut": 3, "framing": "chunked"}), (504, "outcome-unknown"), Unknown),
        (json!({"cut": 0, "status": 500}), (504, "outcome-unknown"), Unknown),
        (json!({"framing": "close"}), (201, ""), Replayed),
    ];
    each_means("profile = \"strict\"", &cases).await;
}

#[tokio::test]
async fn rule_12_a_time_out_is_unknown() {
    let cases = [
        (json!({"delay": 30}), (504, "outcome-unknown"), Unknown),
        (json!({"pause": 30}), (504, "outcome-unknown"), Unknown),
    ];
    each_means("timeout = \"500ms\"", &cases).await;
}

#[tokio::test]
async fn rule_12_strict_may_hold_a_500_and_know_what_is_not_applied() {
    let cases = [
        (status(500), (500, ""), Unknown),
        (status(501), (501, ""), Unknown),
        (status(503), (503, ""), RunAgain),
        (status(502), (502, ""), Unknown),
    ];
    let lines = "profile = \"strict\"\non_500 = \"hold\"\nnot_applied = [503]";
    each_means(lines, &cases).await;
}

#[tokio::test]
async fn rules_11_and_12_a_route_says_which_statuses_free_the_key_and_which_are_final() {
    let lines = "released = [404, 409]\nfinal = [429, 502, 503]";
    let cases = [
        (status(404), (404, ""), RunAgain),
        (status(409), (409, ""), RunAgain),
        (status(429), (429, ""), Replayed),
        (status(502), (502, ""), Replayed),
        (status(503), (503, ""), Replayed),
        (status(402), (402, ""), Replayed),
        (status(403), (403, ""), RunAgain),
        (status(504), (504, ""), Unknown),
        // The service says more than the route.
        (json!({"status": 409, "headers": [["Onceward-Outcome", "final"]]}), (409, ""), Replayed),
        (
            json!({"status": 429, "headers": [["Onceward-Outcome", "retryable"]]}),
            (429, ""),
            RunAgain,
        ),
        (json!({"cut": 3, "status": 409}), (504, "outcome-unknown"), Unknown),
        (json!({"cut": 3, "status": 429}), (504, "outcome-unknown"), Unknown),
    ];
    each_means(lines, &cases).await;
    each_means(&format!("{lines}\nprofile = \"strict\""), &cases).await;
}

#[tokio::test]
async fn rule_12_profile_stripe() {
    let cases = [
        (status(500), (500, ""), Replayed),
        (status(503), (503, ""), Replayed),
        (status(429), (429, ""), RunAgain),
        (json!({"hang_up": true}), (504, "outcome-unknown"), Unknown),
        (status(400), (400, ""), RunAgain),
        (status(409), (409, ""), Replayed),
        (json!({"cut": 3}), (504, "outcome-unknown"), Unknown),
    ];
    each_means("profile = \"stripe\"\nerrors = \"problem\"", &cases).await;
}

#[tokio::test]
async fn rule_12_profile_rerun() {
    let cases = [
        (status(201), (201, ""), Replayed),
        (status(404), (404, ""), Replayed),
        (status(500), (500, ""), RunAgain),
        (status(503), (503, ""), RunAgain),
        (json!({"hang_up": true}), (502, "upstream-failed"), RunAgain),
        (json!({"cut": 3}), (502, "upstream-failed"), RunAgain),
    ];
    each_means("effect = \"repeatable\"\nrerun_within = \"1h\"", &cases).await;
}

#[tokio::test]
async fn rule_14_the_word_of_the_upstream_overrides() {
    let says = |status: u16, word: &str| {
        let headers = json!([["Onceward-Outcome", word]]);
        json!({"status": status, "headers": headers})
    };
    let cases = [
        (says(503, "final"), (503, ""), Replayed),
        (says(429, "final"), (429, ""), Replayed),
        (says(200, "unknown"), (200, ""), Unknown),
        (says(200, "anything"), (200, ""), Replayed),
        (says(503, "retryable"), (503, ""), RunAgain),
    ];
    each_means("", &cases).await;
    let cases = [
        (says(503, "retryable"), (503, ""), RunAgain),
        (says(404, "retryable"), (404, ""), RunAgain),
    ];
    each_means("effect = \"repeatable\"\nrerun_within = \"1h\"", &cases).await;
}
