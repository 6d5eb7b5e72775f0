//! Which statuses of the upstream are tried again after, how long is waited, and how long one attempt has.

use std::time::{Duration, Instant};

use crate::{
    gateway_support::{Call, route, route_for},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state,
};

const QUICK: &str = "retry = \"standard\"\nbackoff = \"none\"";
const REPEATABLE: &str = "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"strict\"";

#[tokio::test]
async fn a_lock_or_a_failure_with_a_hint_is_tried_again() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(QUICK));
    for (mode, status, sent) in [
        (Mode::Hinted(423), 200, 2),
        (Mode::Hinted(507), 200, 2),
        (Mode::Status(423), 423, 1),
        (Mode::Status(507), 507, 1),
        // Too many requests: that is between the upstream and one client.
        (Mode::Hinted(429), 429, 1),
    ] {
        let before = upstream.count();
        upstream.then([mode.clone()]);
        let reply = gateway.send(&get("/x/1")).await;
        assert_eq!((reply.status, upstream.count() - before), (status, sent), "{mode:?}");
    }
    upstream.then([Mode::Hinted(423)]);
    let post = gateway.send(&Call::post("/x/1").body("small")).await;
    assert_eq!(post.status, 423, "without a key a write is not repeated: {post:?}");
}

#[tokio::test]
async fn a_route_names_statuses_to_try_again_after_or_not() {
    let upstream = Switched::start().await;
    let named = format!("{QUICK}\nretry_status = [404, 429, 507]\nno_retry_status = [500, 503]");
    let text = format!("{}{}", keyless(&named), route(&format!("{named}\n{REPEATABLE}")));
    let gateway = start(&upstream, &text);
    for (status, sent) in [(404, 2), (429, 2), (507, 2), (502, 2), (500, 1), (503, 1), (403, 1)] {
        for call in [get("/x/1"), pay(&format!("k{status}"))] {
            let before = upstream.count();
            upstream.then([Mode::Status(status)]);
            let reply = gateway.send(&call).await;
            assert_eq!(upstream.count() - before, sent, "{status} {reply:?}");
            assert_eq!(reply.status < 300, sent == 2, "{status} {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_named_status_is_stored_when_no_attempt_is_left_or_none_is_safe() {
    let upstream = Switched::start().await;
    let named = format!("{QUICK}\nretry_status = [507]");
    let external = route_for("POST /external", &named);
    let gateway =
        start(&upstream, &format!("{}{external}", route(&format!("{named}\n{REPEATABLE}"))));
    let before = upstream.count();
    upstream.then([Mode::Status(507)]);
    let once = pay("external").retarget("POST", "/external");
    assert_eq!((gateway.send(&once).await.status, upstream.count() - before), (507, 1));
    assert!(gateway.send(&once).await.is_replay());
    upstream.then([Mode::Status(507), Mode::Status(507), Mode::Status(507)]);
    let before = upstream.count();
    assert_eq!((gateway.send(&pay("full")).await.status, upstream.count() - before), (507, 3));
    assert!(gateway.send(&pay("full")).await.is_replay());
}

/// The upstream looked at the request and refused it, each time: that leaves no doubt.
#[tokio::test]
async fn a_named_client_error_that_stays_is_what_its_route_makes_of_it() {
    let upstream = Switched::start().await;
    for profile in ["standard", "strict", "stripe"] {
        for (more, status, is_kept) in [
            ("", 409, true),
            ("final = [409]", 409, true),
            ("", 429, false),
            ("final = [429]", 429, true),
        ] {
            let effect = "effect = \"repeatable\"\nrerun_within = \"1h\"";
            let lines = format!("{QUICK}\n{effect}\nprofile = \"{profile}\"\n{more}");
            let gateway = start(&upstream, &route(&format!("{lines}\nretry_status = [409, 429]")));
            let before = upstream.count();
            upstream.then([Mode::Status(status), Mode::Status(status), Mode::Status(status)]);
            let reply = gateway.send(&pay("a")).await;
            assert_eq!((reply.status, upstream.count() - before), (status, 3), "{reply:?}");
            let again = gateway.send(&pay("a")).await;
            let expected = if is_kept { (status, true) } else { (201, false) };
            assert_eq!((again.status, again.is_replay()), expected, "{lines}: {again:?}");
        }
    }
}

#[tokio::test]
async fn a_keyed_write_meets_locks_and_failures_with_a_hint() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route(&format!("{QUICK}\n{REPEATABLE}")));
    // By this profile a 507 is the end: it is bound, whatever it asks for.
    for (status, sent, expected) in [(423, 2, 201), (507, 1, 507), (504, 2, 201)] {
        let before = upstream.count();
        upstream.then([Mode::Hinted(status)]);
        let reply = gateway.send(&pay(&format!("k{status}"))).await;
        assert_eq!((reply.status, upstream.count() - before), (expected, sent), "{reply:?}");
        assert!(gateway.send(&pay(&format!("k{status}"))).await.is_replay(), "{status}");
    }
    upstream.then([Mode::Hinted(423), Mode::Hinted(423), Mode::Hinted(423)]);
    let locked = gateway.send(&pay("locked")).await;
    assert_eq!(locked.status, 423, "{locked:?}");
    assert_eq!(gateway.send(&pay("locked")).await.status, 201, "nothing was done");
}

#[tokio::test]
async fn a_patient_route_makes_all_its_attempts_and_its_budget_is_as_large() {
    let upstream = Switched::start().await;
    let lines = "retry = \"patient\"\nattempts = 12\nbackoff = \"none\"";
    let gateway = start(&upstream, &keyless(lines));
    let budget = upstream_state(&gateway, "shared").await["budget"].clone();
    assert_eq!(budget, serde_json::json!({"left": 110, "capacity": 110}));
    upstream.mode(Mode::Reset);
    assert_eq!((gateway.send(&get("/x/1")).await.status, upstream.count()), (502, 12));
}

#[tokio::test]
async fn the_wait_between_attempts_is_the_routes() {
    let upstream = Switched::start().await;
    let lines = "retry = \"standard\"\nbackoff = \"fixed:200ms\"";
    let gateway = start(&upstream, &keyless(lines));
    upstream.then([Mode::Reset, Mode::Reset]);
    let begun = Instant::now();
    assert_eq!((gateway.send(&get("/x/1")).await.status, upstream.count()), (200, 3));
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_attempt_leaves_time_for_another() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("retry = \"standard\"\ntimeout = \"2s\""));
    upstream.then([Mode::Held(200)]);
    let reply = gateway.send(&get("/x/1")).await;
    assert_eq!((reply.status, upstream.count()), (200, 2), "{reply:?}");
}
