//! What a route says instead of an upstream that has no good answer.

use crate::{
    get, safe, start,
    switched::{Mode, Switched},
};

const LINES: &str =
    "fallback = { status = 203, body = \"[]\", content_type = \"application/json\" }";

#[tokio::test]
async fn it_stands_in_for_what_failed_and_says_so() {
    let mut upstream = Switched::start().await;
    let gateway = start(&upstream, &safe(LINES));
    let good = gateway.send(&get("/safe/1")).await;
    assert_eq!((good.status, good.header("onceward-fallback")), (200, None));
    upstream.then([Mode::Status(404)]);
    let missing = gateway.send(&get("/safe/1")).await;
    assert_eq!((missing.status, missing.header("onceward-fallback")), (404, None), "an answer");
    for mode in [Mode::Reset, Mode::Status(500), Mode::Busy("1")] {
        upstream.then([mode.clone()]);
        let reply = gateway.send(&get("/safe/1")).await;
        assert_eq!((reply.status, reply.text()), (203, "[]"), "{mode:?}");
        assert_eq!(reply.header("onceward-fallback"), Some("true"));
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    upstream.close().await;
    let reply = gateway.send(&get("/safe/1").retarget("HEAD", "/safe/1")).await;
    assert_eq!((reply.status, reply.header("onceward-fallback")), (203, Some("true")));
    assert_eq!(gateway.send(&get("/other")).await.problem(), (502, "upstream-unreachable".into()));
    assert_eq!(gateway.metric("onceward_gateway_fallbacks_total").await, 4);
}

#[tokio::test]
async fn it_stands_in_while_the_breaker_is_open() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &safe(LINES));
    // The breaker stays open for as long as it may.
    upstream.mode(Mode::Busy("5"));
    for _ in 0..60 {
        assert_eq!(gateway.send(&get("/safe/1")).await.status, 203);
    }
    assert_eq!(upstream.count(), 55, "the last ones did not go there");
    let expired = gateway.send(&get("/safe/1").header("onceward-deadline", "0")).await;
    assert_eq!(expired.problem(), (504, "deadline-exceeded".into()), "nobody waits for it");
}
