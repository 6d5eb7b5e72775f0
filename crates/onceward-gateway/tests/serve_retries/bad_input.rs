//! What an upstream or a client says that makes no sense, or takes for ever.

use crate::{
    gateway_support::route,
    get, keyless, pay, start,
    switched::{Mode, Switched},
};

#[tokio::test]
async fn a_hint_that_makes_no_sense_is_no_hint_and_a_long_one_ends_the_call() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("retry = \"standard\"\ntimeout = \"20s\""));
    for (number, hint) in
        ["soon", "-3", "Sun, 06 Nov 1994 08:49:37 GMT", "0"].into_iter().enumerate()
    {
        upstream.then([Mode::Busy(hint)]);
        assert_eq!(gateway.send(&get("/x/1")).await.status, 200, "{hint}");
        assert_eq!(upstream.count(), 2 * (number + 1), "{hint}");
    }
    for hint in ["1000000000000000000", "Fri, 31 Dec 2100 23:59:59 GMT"] {
        let before = upstream.count();
        upstream.then([Mode::Busy(hint)]);
        let reply = gateway.send(&get("/x/1")).await;
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (503, Some(hint)),
            "it is passed on"
        );
        assert_eq!(upstream.count() - before, 1, "{hint}");
    }
}

#[tokio::test]
async fn an_answer_that_trickles_ends_with_the_timeout() {
    let upstream = Switched::start().await;
    let lines =
        "retry = \"standard\"\neffect = \"repeatable\"\nrerun_within = \"1h\"\ntimeout = \"600ms\"";
    let gateway = start(&upstream, &route(lines));
    upstream.then([Mode::Trickle]);
    let reply = gateway.send(&pay("a")).await;
    assert_eq!(reply.problem(), (504, "upstream-failed".into()), "{reply:?}");
    assert_eq!(gateway.send(&pay("a")).await.status, 201, "and its key runs again");
    assert_eq!(upstream.count(), 2);
}

/// The claim is kept for as long as the route says, and no attempt outlasts it.
#[tokio::test]
async fn all_attempts_together_take_no_longer_than_the_timeout() {
    let upstream = Switched::start().await;
    let lines = "retry = \"patient\"\nattempt_timeout = \"200ms\"\ntimeout = \"1s\"\n\
                 effect = \"repeatable\"\nrerun_within = \"1h\"";
    let gateway = start(&upstream, &route(lines));
    upstream.mode(Mode::Held(201));
    let reply = gateway.send(&pay("a")).await;
    assert_eq!(reply.problem().1, "upstream-failed", "{reply:?}");
    assert!((2..=5).contains(&upstream.count()), "{}", upstream.count());
    let attempts: Vec<_> = upstream.seen().iter().map(|seen| seen.body.clone()).collect();
    assert!(attempts.iter().all(|body| *body == attempts[0]));
}
