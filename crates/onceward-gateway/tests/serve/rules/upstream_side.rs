//! Rules 13, 14 and 19: what goes to the upstream, and what is certain when it does not.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::{
    gateway_support::{
        Call, Gateway, Kind, Link, Plan, Upstream, Version, free_address, read_until, route,
        route_for, upstreams,
    },
    rules::pay,
};

#[tokio::test]
async fn rule_13_what_was_not_sent_releases_the_key() {
    for kind in [Kind::Python, Kind::Node] {
        let address = free_address().unwrap();
        let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
        for version in Version::BOTH {
            let reply = gateway.send_by(version, &pay("k")).await;
            assert_eq!(reply.problem(), (502, "upstream-unreachable".into()));
            assert!(reply.header("retry-after").is_some());
            let document = reply.json();
            assert_eq!(
                (&document["retryable"], &document["safe_new_key"]),
                (&json!(true), &json!(false))
            );
            let status = gateway.status_of(&reply, &pay("k")).await;
            assert_eq!(status.json()["state"], "released");
        }
        assert_eq!(gateway.send(&Call::post("/pay")).await.status, 502, "without a key, too");
        let Some(upstream) = Upstream::start_with(kind, address.port(), None) else { continue };
        assert_eq!(gateway.send(&pay("k")).await.status, 201);
        assert!(gateway.send(&pay("k")).await.is_replay());
        assert_eq!(upstream.count().await, 1);
        upstream.kill();
        assert!(gateway.send(&pay("k")).await.is_replay(), "a replay needs no upstream");
        let fresh = gateway.send(&pay("another")).await;
        assert_eq!(fresh.problem(), (502, "upstream-unreachable".into()));
    }
}

#[tokio::test]
async fn rule_13_a_connection_that_is_not_made_in_time_was_not_used() {
    // Whose queue is full does not answer; nothing is accepted here, ever.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        queue.push(stream.unwrap());
        assert!(queue.len() < 100, "the queue has no end");
    }
    let plan = Plan::new(&format!("http://{address}"), &route("timeout = \"300ms\""));
    let gateway = plan.start();
    for _ in 0..2 {
        let reply = gateway.send(&pay("k")).await;
        assert_eq!(reply.problem(), (502, "upstream-unreachable".into()));
        let status = gateway.status_of(&reply, &pay("k")).await;
        assert_eq!(status.json()["state"], "released");
    }
}

/// An upstream that is just closing what was idle for more than 1.2 s: it answers what comes sooner,
/// and hangs up without a word on what comes later.
async fn closing_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_while_fresh(stream));
        }
    });
    address
}

async fn answer_while_fresh(mut stream: TcpStream) {
    let mut idle_since = Instant::now();
    loop {
        // The bodies of `pay` end so.
        let request = read_until(&mut stream, "}").await;
        if request.is_empty() || idle_since.elapsed() > Duration::from_millis(1200) {
            return;
        }
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
        idle_since = Instant::now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_a_keyed_request_never_meets_a_connection_that_is_being_closed() {
    let address = closing_upstream().await;
    let gateway = Plan::new(&format!("http://{address}"), &route("")).start();
    let mut unkeyed = 0;
    for (round, pause) in [100, 1400, 300, 1600, 1400].into_iter().enumerate() {
        let calls = (0..10).map(|call| gateway.begin(&pay(&format!("{round}-{call}"))));
        for call in calls.collect::<Vec<_>>() {
            let reply = call.await.unwrap();
            assert_eq!(reply.status, 201, "{reply:?}");
        }
        let plain = gateway.send(&pay("k").without_key()).await;
        unkeyed += usize::from(plain.problem() == (502, "upstream-failed".into()));
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    assert!(unkeyed > 0, "others use older connections, and some must have met this");
}

/// Bursts with pauses that are about as long as the upstream keeps a connection.
///
/// What comes first after a pause may meet a connection that is being closed; the rest is load.
async fn bursts(kind: Kind, rounds: u64, burst: u64) {
    const WORKERS: u64 = 50;
    let Some(upstream) = Upstream::start_with(kind, 0, Some("1.2")) else { return };
    let gateway = Gateway::start(&upstream, &route(""));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let address = gateway.address;
            tokio::spawn(async move {
                let mut link = Link::open(address, Version::Http2).await;
                for round in 0..rounds {
                    if round > 0 {
                        let pause_ms = 1140 + (worker * 7 + round * 3) % 120;
                        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    }
                    for call in 0..burst {
                        let reply = link.send(&pay(&format!("{worker}-{round}-{call}"))).await;
                        assert_eq!(reply.status, 201, "{kind:?}: {reply:?}");
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(upstream.count().await, WORKERS * rounds * burst);
}

/// More pauses than with the ten thousand, and so more of what may go wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_bursts_of_requests_to_upstreams_that_close_idle_connections() {
    tokio::join!(bursts(Kind::Python, 4, 4), bursts(Kind::Node, 4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ten thousand requests keep both cores busy for 14 s"]
async fn rule_13_ten_thousand_requests_to_upstreams_that_close_idle_connections() {
    tokio::join!(bursts(Kind::Python, 3, 34), bursts(Kind::Node, 3, 34));
}

#[tokio::test]
async fn rules_14_and_19_the_upstream_is_told_what_it_runs_and_nobody_else_can_say_it() {
    for upstream in upstreams() {
        let text = route("effect = \"repeatable\"\nrerun_within = \"1h\"");
        let gateway = Gateway::start(&upstream, &text);
        let call = pay("k")
            .header("onceward-execution", "forged")
            .header("onceward-key", "forged")
            .header("onceward-attempt", "7")
            .header("onceward-outcome", "forged")
            .header("onceward_key", "forged")
            .header("accept-encoding", "gzip, br");
        let mut executions = Vec::new();
        let mut derived = Vec::new();
        for (attempt, status) in [("1", 500), ("2", 201)] {
            let told = call.clone().told(json!({"status": status}));
            let reply = gateway.send(&told).await;
            assert_eq!(reply.status, status);
            assert_eq!(upstream.last_lines("idempotency-key").await, ["k"]);
            assert_eq!(upstream.last_lines("onceward-attempt").await, [attempt]);
            assert_eq!(upstream.last_lines("accept-encoding").await, ["identity"]);
            let execution = upstream.last_lines("onceward-execution").await;
            let reference = reply.header("onceward-operation").unwrap();
            assert!(execution[0].starts_with(&format!("{reference}.")), "{execution:?}");
            executions.extend(execution);
            derived.extend(upstream.last_lines("onceward-key").await);
            for name in ["onceward-outcome", "onceward_key"] {
                assert!(upstream.last_lines(name).await.is_empty(), "{name}");
            }
        }
        assert_eq!((executions.len(), derived.len()), (2, 2));
        assert_ne!(executions[0], executions[1]);
        assert_eq!(derived[0], derived[1], "the derived key is the operation's");
        assert_ne!(derived[0], "forged");
    }
}

#[tokio::test]
async fn rule_14_what_the_upstream_tells_the_gateway_is_not_for_clients() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let headers = json!([
        ["Onceward-Outcome", "final"],
        ["Onceward-Operation", "forged"],
        ["Onceward-Unprotected", "forged"],
        ["Idempotent-Replayed", "true"],
        ["Idempotency-Expires", "forged"],
        ["X-Kept", "1"],
    ]);
    let call = pay("k").told(json!({"headers": headers}));
    let (first, again) = (gateway.send(&call).await, gateway.send(&call).await);
    for reply in [&first, &again] {
        assert_eq!(reply.header("onceward-outcome"), None);
        assert_eq!(reply.header("onceward-unprotected"), None);
        assert_ne!(reply.header("onceward-operation"), Some("forged"));
        assert_ne!(reply.header("idempotency-expires"), Some("forged"));
        assert_eq!(reply.header("x-kept"), Some("1"));
    }
    assert_eq!((first.header("idempotent-replayed"), again.is_replay()), (None, true));
    let unkeyed = gateway.send(&call.without_key()).await;
    for name in ["onceward-outcome", "onceward-operation", "onceward-unprotected"] {
        assert_eq!(unkeyed.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn rule_14_no_store_ends_the_operation_without_its_answer() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let headers = json!([["Onceward-Outcome", "no-store"], ["Location", "/payments/7"]]);
    let call = pay("k").told(json!({"headers": headers, "body": "a card number"}));
    assert_eq!(gateway.send(&call).await.text(), "a card number");
    let again = gateway.send(&call).await;
    assert_eq!(again.problem(), (409, "result-unavailable".into()));
    assert_eq!(again.header("location"), Some("/payments/7"));
    assert_eq!(upstream.count().await, 1);
    for file in gateway.directory.path().read_dir().unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(13).any(|window| window == b"a card number"));
    }
}

#[tokio::test]
async fn rule_14_a_reference_is_made_an_answer_again() {
    for upstream in upstreams() {
        let rebuild = |status: u16, body: Value| {
            let headers = json!([["Content-Type", "application/json"], ["X-Other", "1"]]);
            let told = json!({"status": status, "headers": headers, "body": body.to_string()});
            let told = told.to_string();
            let query: String = form_urlencoded::byte_serialize(told.as_bytes()).collect();
            format!("do={}", query.replace('+', "%20"))
        };
        let lines = |status| {
            format!("rebuild = \"GET /payments/{{id}}?{}\"", rebuild(status, json!({"id": 7})))
        };
        let text = route_for("POST /pay", &lines(200)) + &route_for("POST /lost", &lines(404));
        let gateway = Gateway::start(&upstream, &text);
        let told = json!({"headers": [["Onceward-Resource", "payment/7 a"]], "body": "first"});
        let call = pay("k").told(told);
        assert_eq!(gateway.send(&call).await.text(), "first");
        let again = gateway.send(&call).await;
        assert_eq!((again.status, again.is_replay(), again.json()), (201, true, json!({"id": 7})));
        assert_eq!(again.header("content-type"), Some("application/json"));
        let seen = upstream.seen().await;
        let path = seen.last().unwrap()["path"].as_str().unwrap();
        assert!(path.starts_with("/payments/7%20a?"), "{path}");
        assert_eq!(upstream.last_lines("x-api-key").await, [""; 0], "no caller's lines go there");
        let lost = call.retarget("POST", "/lost");
        assert_eq!(gateway.send(&lost).await.status, 201);
        let again = gateway.send(&lost).await;
        assert_eq!(again.problem(), (409, "result-unavailable".into()));
        assert_eq!(upstream.count_at("/lost").await, 1);
    }
}
