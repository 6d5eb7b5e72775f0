//! Whose fault it was: what a client does is not held against the upstream, nor against other clients.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::json;

use crate::{
    gateway_support::{Call, Gateway, Link, Pipe, Version, eventually, raw, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state,
};

const ROOM: &str = "GET,HEAD,PUT,POST,DELETE /x/{*rest}";

async fn circuit(gateway: &Gateway) -> String {
    upstream_state(gateway, "shared").await["circuit"].as_str().unwrap().to_owned()
}

/// One client's bad requests end retries, and stop nobody.
#[tokio::test]
async fn complete_500s_do_not_open_the_breaker() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", keyless(""), route("")));
    upstream.mode(Mode::Status(500));
    let mut link = Link::open(gateway.address, Version::Http1).await;
    for _ in 0..120 {
        assert_eq!(link.send(&get("/x/bug")).await.status, 500);
    }
    assert_eq!(circuit(&gateway).await, "guarded");
    upstream.mode(Mode::Good);
    assert_eq!(gateway.send(&pay("a")).await.status, 201);
    assert_eq!(upstream.count(), 121);
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_says_nothing_about_the_upstream() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("timeout = \"1s\""));
    let mut clients = Vec::new();
    for _ in 0..7 {
        let (sender, body) = Pipe::new();
        sender.send(Frame::data(Bytes::from_static(b"a little"))).await.unwrap();
        let mut link = Link::open(gateway.address, Version::Http1).await;
        clients.push(tokio::spawn(async move {
            let answer = link.stream(&Call::post("/x/1"), body).await.unwrap();
            drop(sender);
            answer.status().as_u16()
        }));
    }
    for client in clients {
        assert_eq!(client.await.unwrap(), 504);
    }
    assert_eq!(circuit(&gateway).await, "closed");
    // One that has everything and does not answer is another matter.
    upstream.mode(Mode::Held(201));
    let clients: Vec<_> =
        (0..7).map(|_| gateway.begin(&Call::post("/x/1").body("all of it"))).collect();
    for client in clients {
        assert_eq!(client.await.unwrap().status, 504);
    }
    assert_eq!(circuit(&gateway).await, "guarded");
}

/// A write is waited for although its client is in a hurry, so the time was the upstream's.
#[tokio::test]
async fn a_write_that_hangs_counts_whatever_time_its_client_gave() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("timeout = \"1s\""));
    upstream.mode(Mode::Held(201));
    let call = Call::post("/x/1").body("all of it").header("onceward-deadline", "700");
    let clients: Vec<_> = (0..5).map(|_| gateway.begin(&call)).collect();
    for client in clients {
        assert_eq!(client.await.unwrap().status, 504);
    }
    assert_eq!(upstream.count(), 5);
    assert_eq!(circuit(&gateway).await, "guarded");
}

#[tokio::test]
async fn what_a_client_broke_off_is_no_success_of_the_upstream() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(""));
    let before = upstream_state(&gateway, "shared").await["budget"].clone();
    let broken = "POST /x/any HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\nno number\r\n";
    upstream.mode(Mode::Status(503));
    for _ in 0..4 {
        assert_eq!(gateway.send(&get("/x/1")).await.status, 503);
    }
    let answer = raw(gateway.address, broken).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(upstream_state(&gateway, "shared").await["budget"], before);
    assert_eq!(circuit(&gateway).await, "closed");
    assert_eq!(gateway.send(&get("/x/1")).await.status, 503);
    assert_eq!(circuit(&gateway).await, "guarded", "the fifth in a row");
}

/// Clients that do not read must not take the places of all others.
#[tokio::test]
async fn an_answer_that_nobody_reads_holds_a_place_only_where_a_limit_was_chosen() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("limit = 2"));
    upstream.then([Mode::Trickle, Mode::Trickle]);
    let mut links = Vec::new();
    for path in ["/elsewhere", "/x/1"] {
        let mut link = Link::open(gateway.address, Version::Http1).await;
        let (end, body) = Pipe::new();
        drop(end);
        let answer = link.stream(&Call::post(path), body).await.unwrap();
        assert_eq!(answer.status().as_u16(), 201);
        links.push((link, answer));
    }
    assert_eq!(upstream_state(&gateway, "unmatched").await["in_flight"], 0);
    assert_eq!(upstream_state(&gateway, ROOM).await["in_flight"], 1);
    drop(links);
    eventually("it has landed", async || upstream_state(&gateway, ROOM).await["in_flight"] == 0)
        .await;
}

/// Rule 15: also a second attempt is not begun when the claim's time is over.
#[tokio::test]
async fn nothing_is_begun_after_max_run() {
    let upstream = Switched::start().await;
    let lines = "retry = \"standard\"\nnot_applied = [503]\nlease = \"2s\"\nmax_run = \"2s\"";
    let gateway = start(&upstream, &route(lines));
    upstream.then([Mode::Busy("3")]);
    let reply = gateway.send(&pay("a")).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(upstream.count(), 1, "the wait would have outlasted the claim");
    assert_eq!(gateway.send(&pay("a")).await.status, 201, "and its key was freed");
}

#[tokio::test]
async fn nothing_is_begun_under_a_claim_that_was_lost() {
    let upstream = Switched::start().await;
    let lines = "retry = \"standard\"\nnot_applied = [503]\nlease = \"1s\"\nmax_run = \"30s\"";
    let gateway = start(&upstream, &route(lines));
    upstream.then([Mode::Busy("4")]);
    let paying = gateway.begin(&pay("a"));
    upstream.arrival(1).await;
    let execution = upstream.seen()[0].line("onceward-execution").unwrap().to_owned();
    let (operation, _) = execution.split_once('.').unwrap();
    let release = Call::post(&format!("/v1/operations/{operation}/release"));
    let release = release.json(json!({"reason": "a test", "force": true}));
    let released = gateway.ask(&release).await;
    assert_eq!(released.status, 200, "{released:?}");
    let reply = paying.await.unwrap();
    assert_eq!(reply.problem(), (409, "lease-lost".into()), "{reply:?}");
    assert_eq!(upstream.count(), 1, "somebody else may be running it");
}
