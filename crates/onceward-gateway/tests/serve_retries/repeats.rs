//! What is sent to the upstream a second time, and what is not.

use crate::{
    gateway_support::{Call, Link, Pipe, Version, eventually, route, route_for},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state, warm_up,
};
use bytes::Bytes;
use hyper::body::Frame;

const RETRY: &str = "retry = \"standard\"";
const REPEATABLE: &str = "retry = \"standard\"\neffect = \"repeatable\"\nrerun_within = \"1h\"";

#[tokio::test]
async fn an_external_effect_is_not_repeated_after_a_reset() {
    let upstream = Switched::start().await;
    let text = format!("{}{}", route(RETRY), route_for("DELETE /pay", RETRY));
    let gateway = start(&upstream, &text);
    for (number, call) in [(1, pay("a")), (2, pay("b").retarget("DELETE", "/pay"))] {
        upstream.then([Mode::Reset]);
        assert_eq!(gateway.send(&call).await.problem(), (504, "outcome-unknown".into()));
        assert_eq!(gateway.send(&call).await.problem(), (409, "outcome-unknown".into()));
        assert_eq!(upstream.count(), number, "a method that is idempotent changes nothing of it");
    }
    let series = "onceward_gateway_upstream_given_up_total{reason=\"unsafe\"}";
    assert_eq!(gateway.metric(series).await, 2);
}

#[tokio::test]
async fn what_never_reached_the_upstream_is_sent_again() {
    let mut upstream = Switched::start().await;
    let text = format!("{}{}", keyless(""), route("retry = \"patient\""));
    let gateway = start(&upstream, &text);
    warm_up(&gateway, &get("/x/1"), 80).await;
    let before = upstream.count();
    let attempts = upstream_state(&gateway, "shared").await["attempts"].as_u64().unwrap();
    upstream.close().await;
    let paid = gateway.begin(&pay("a"));
    let tried =
        async || upstream_state(&gateway, "shared").await["attempts"].as_u64().unwrap() > attempts;
    eventually("it is tried", tried).await;
    upstream.reopen().await;
    let reply = paid.await.unwrap();
    assert_eq!((reply.status, upstream.count() - before), (201, 1), "{reply:?}");
    assert!(gateway.metric("onceward_gateway_upstream_attempts_total{kind=\"retry\"}").await >= 1);
    assert!(gateway.send(&pay("a")).await.is_replay());
}

#[tokio::test]
async fn a_status_that_says_that_nothing_was_done_is_tried_again() {
    let upstream = Switched::start().await;
    let text = format!(
        "{}{}",
        route(RETRY),
        route_for("POST /other", &format!("{RETRY}\nprofile = \"strict\""))
    );
    let gateway = start(&upstream, &text);
    upstream.then([Mode::Status(503)]);
    assert_eq!(gateway.send(&pay("a")).await.status, 201);
    let seen = upstream.seen();
    assert_eq!(seen.len(), 2);
    for name in ["idempotency-key", "onceward-key", "onceward-execution", "onceward-attempt"] {
        assert_eq!(seen[0].line(name), seen[1].line(name), "{name}");
    }
    // Where it is not believed, it may have been done.
    upstream.then([Mode::Status(503)]);
    let other = pay("b").retarget("POST", "/other");
    assert_eq!((gateway.send(&other).await.status, upstream.count()), (503, 3));
    assert_eq!(gateway.send(&other).await.problem(), (409, "outcome-unknown".into()));
}

#[tokio::test]
async fn a_repeatable_effect_is_repeated_with_the_same_key_and_body() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(REPEATABLE));
    upstream.then([Mode::Reset, Mode::Status(500)]);
    let reply = gateway.send(&pay("a")).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let seen = upstream.seen();
    assert_eq!(seen.len(), 3);
    for again in &seen[1..] {
        assert_eq!((&again.body, &again.path), (&seen[0].body, &seen[0].path));
        for name in ["idempotency-key", "onceward-key", "onceward-execution", "onceward-attempt"] {
            assert_eq!(again.line(name), seen[0].line(name), "{name}");
        }
    }
    assert_eq!(
        seen[0].line("onceward-attempt"),
        Some("1"),
        "the record's count, not the gateway's"
    );
    assert!(gateway.send(&pay("a")).await.is_replay());
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn what_the_profile_makes_final_is_not_repeated() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(&format!("{REPEATABLE}\nprofile = \"strict\"")));
    upstream.then([Mode::Status(500)]);
    assert_eq!(gateway.send(&pay("a")).await.status, 500);
    assert!(gateway.send(&pay("a")).await.is_replay());
    assert_eq!(upstream.count(), 1);
    // Under this profile a reset leaves it open, and the effect says that a repeat is harmless.
    upstream.then([Mode::Reset]);
    assert_eq!((gateway.send(&pay("b")).await.status, upstream.count()), (201, 3));
}

/// A first attempt that may have been carried out keeps the key, whatever a second one is told.
#[tokio::test]
async fn a_refusal_after_a_doubtful_attempt_does_not_free_the_key() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(REPEATABLE));
    for (key, modes) in
        [("a", [Mode::Reset, Mode::Status(429)]), ("b", [Mode::Status(502), Mode::Status(403)])]
    {
        let status = if key == "a" { 429 } else { 403 };
        upstream.then(modes);
        let reply = gateway.send(&pay(key)).await;
        assert_eq!(reply.status, status, "{reply:?}");
        let state = gateway.status_of(&reply, &pay(key)).await.json();
        assert_eq!(state["state"], "failed_retryable", "{state}");
        let other = gateway.send(&pay(key).body("{\"amount\": 6}")).await;
        assert_eq!(other.problem(), (422, "key-reused".into()));
    }
}

#[tokio::test]
async fn a_503_after_a_doubtful_attempt_does_not_free_the_key() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(&format!("{REPEATABLE}\nprofile = \"standard\"")));
    upstream.then([Mode::Reset, Mode::Status(503), Mode::Status(503)]);
    let reply = gateway.send(&pay("a")).await;
    assert_eq!((reply.status, upstream.count()), (503, 3), "{reply:?}");
    let again = gateway.send(&pay("a")).await;
    assert_eq!(again.problem(), (409, "outcome-unknown".into()));
    assert_eq!(again.json()["cause"], "connection lost after the request was sent");
    // Without doubt the key is free, however often the retry budget lets it be tried.
    upstream.then([Mode::Status(503), Mode::Status(503), Mode::Status(503)]);
    let reply = gateway.send(&pay("b")).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(gateway.status_of(&reply, &pay("b")).await.json()["state"], "released");
}

/// The route's own lists speak of one attempt, too.
#[tokio::test]
async fn a_listed_status_after_a_doubtful_attempt_neither_frees_nor_binds_the_key() {
    let upstream = Switched::start().await;
    let lists = "profile = \"standard\"\nreleased = [404]\nfinal = [429]";
    let gateway = start(&upstream, &route(&format!("{REPEATABLE}\n{lists}")));
    for status in [404, 429] {
        let key = format!("doubtful-{status}");
        upstream.then([Mode::Reset, Mode::Status(status)]);
        let reply = gateway.send(&pay(&key)).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(gateway.send(&pay(&key)).await.problem(), (409, "outcome-unknown".into()));
        upstream.then([Mode::Status(status)]);
        let certain = gateway.send(&pay(&format!("certain-{status}"))).await;
        let state = gateway.status_of(&certain, &pay("certain")).await.json();
        let expected = if status == 404 { "released" } else { "failed_final" };
        assert_eq!(state["state"], expected, "{state}");
    }
}

#[tokio::test]
async fn without_a_key_the_method_decides() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(RETRY));
    for (method, sent) in [("GET", 2), ("HEAD", 2), ("PUT", 2), ("DELETE", 2), ("POST", 1)] {
        let before = upstream.count();
        upstream.then([Mode::Reset]);
        let body = if ["PUT", "POST"].contains(&method) { "small" } else { "" };
        let reply = gateway.send(&Call::new(method, "/x/1").body(body)).await;
        assert_eq!(upstream.count() - before, sent, "{method}");
        let seen = upstream.seen();
        assert!(seen[before..].iter().all(|seen| seen.body == body && seen.method == method));
        let expected = if sent == 1 {
            (502, "upstream-failed".to_owned())
        } else {
            (reply.status, String::new())
        };
        assert_eq!(reply.problem(), expected, "{method}");
        if sent == 2 {
            assert!(reply.status < 300, "{method}: {reply:?}");
            let attempts: Vec<_> =
                seen[before..].iter().map(|one| one.line("onceward-attempt")).collect();
            assert_eq!(attempts, [None, Some("2")], "a layer behind sees that it is a retry");
        }
    }
}

#[tokio::test]
async fn a_body_that_was_not_kept_is_sent_once() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(RETRY));
    upstream.then([Mode::Reset]);
    let large = Call::new("PUT", "/x/1").body(vec![b'a'; (64 << 10) + 1]);
    assert_eq!((gateway.send(&large).await.status, upstream.count()), (502, 1));
    upstream.then([Mode::Reset]);
    let (sender, body) = Pipe::new();
    sender.send(Frame::data(Bytes::from_static(b"of unknown length"))).await.unwrap();
    drop(sender);
    let mut link = Link::open(gateway.address, Version::Http1).await;
    let answer = link.stream(&Call::new("PUT", "/x/1"), body).await.unwrap();
    let seen = (answer.status().as_u16(), upstream.count());
    assert_eq!(seen, (201, 3), "a small one is there before it is sent, and is sent again");
    let series = "onceward_gateway_upstream_given_up_total{reason=\"body_gone\"}";
    assert_eq!(gateway.metric(series).await, 1);
}

#[tokio::test]
async fn a_request_that_is_itself_a_retry_is_tried_once() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(RETRY));
    upstream.then([Mode::Reset]);
    let retry = get("/x/1").header("onceward-attempt", "2");
    assert_eq!((gateway.send(&retry).await.status, upstream.count()), (502, 1));
    assert_eq!(upstream.seen()[0].line("onceward-attempt"), Some("2"));
    let series = "onceward_gateway_upstream_given_up_total{reason=\"nested\"}";
    assert_eq!(gateway.metric(series).await, 1);
}

#[tokio::test]
async fn without_retry_everything_is_tried_once() {
    let upstream = Switched::start().await;
    let effect = "effect = \"repeatable\"\nrerun_within = \"1h\"";
    let gateway = start(&upstream, &format!("{}{}", route(effect), keyless("")));
    upstream.then([Mode::Reset, Mode::Reset]);
    assert_eq!(gateway.send(&pay("a")).await.problem(), (502, "upstream-failed".into()));
    assert_eq!(gateway.send(&get("/x/1")).await.problem(), (502, "upstream-failed".into()));
    assert_eq!(upstream.count(), 2);
}

/// It is the client's answer, however soon it may ask again.
#[tokio::test]
async fn a_conflict_with_a_hint_is_not_repeated() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", route(REPEATABLE), keyless(RETRY)));
    upstream.then([Mode::Taken("0")]);
    let put = gateway.send(&Call::new("PUT", "/x/1").body("small")).await;
    assert_eq!((put.status, upstream.count()), (409, 1), "{put:?}");
    upstream.then([Mode::Taken("0")]);
    let paid = gateway.send(&pay("a")).await;
    assert_eq!((paid.status, upstream.count()), (409, 2), "{paid:?}");
    assert!(gateway.send(&pay("a")).await.is_replay(), "rule 11: it is stored");
    // After an attempt that may be running still it may mean just that.
    upstream.then([Mode::Reset, Mode::Taken("0")]);
    assert_eq!((gateway.send(&pay("b")).await.status, upstream.count()), (201, 5));
    upstream.then([Mode::Reset, Mode::Taken("0"), Mode::Taken("0")]);
    assert_eq!((gateway.send(&pay("c")).await.status, upstream.count()), (409, 8), "but no longer");
}

#[tokio::test]
async fn a_conflict_after_a_doubtful_attempt_does_not_bind_the_key() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(REPEATABLE));
    upstream.then([Mode::Reset, Mode::Status(409)]);
    let reply = gateway.send(&pay("a")).await;
    assert_eq!(reply.status, 409, "{reply:?}");
    let state = gateway.status_of(&reply, &pay("a")).await.json();
    assert_eq!(state["state"], "failed_retryable", "{state}");
    assert_eq!(gateway.send(&pay("a")).await.status, 201, "it is asked again");
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn whoever_waits_for_its_retry_gives_its_place_back() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(&format!("{RETRY}\nlimit = 1")));
    for mode in [Mode::Reset, Mode::Status(503)] {
        let before = upstream.count();
        upstream.then([mode]);
        assert_eq!(gateway.send(&get("/x/1")).await.status, 200);
        assert_eq!(upstream.count() - before, 2);
    }
}

#[tokio::test]
async fn whoever_waits_for_another_attempt_gives_its_place_back() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(&format!("{REPEATABLE}\nlimit = 1")));
    upstream.then([Mode::Reset, Mode::Taken("0")]);
    assert_eq!((gateway.send(&pay("a")).await.status, upstream.count()), (201, 3));
}
