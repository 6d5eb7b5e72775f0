//! Rule 27: of all that would run, only so many may be retries of clients.

use crate::{
    gateway_support::{Call, Gateway, Reply, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
};

/// At the same time, so that all of them are within ten seconds.
async fn send_all(gateway: &Gateway, calls: impl IntoIterator<Item = Call>) -> Vec<Reply> {
    let running: Vec<_> = calls.into_iter().map(|call| gateway.begin(&call)).collect();
    let mut replies = Vec::new();
    for one in running {
        replies.push(one.await.unwrap());
    }
    replies
}

fn again(call: Call) -> Call {
    call.header("onceward-attempt", "2")
}

#[tokio::test]
async fn without_a_key_the_client_says_that_it_is_a_retry() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless("retry_share = 0.2"));
    let first = send_all(&gateway, (0..60).map(|_| get("/x/1"))).await;
    assert!(first.iter().all(|reply| reply.status == 200));
    let retries = send_all(&gateway, (0..40).map(|_| again(get("/x/1")))).await;
    let admitted = retries.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(admitted, 15, "15 of 75 are a fifth");
    let refused = retries.iter().find(|reply| reply.status != 200).unwrap();
    assert_eq!(refused.problem(), (429, "retry-budget-exhausted".into()));
    let pause: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&pause), "{pause}");
    assert_eq!(gateway.send(&get("/x/1")).await.status, 200, "a first attempt is never refused");
    assert_eq!(gateway.send(&again(get("/else"))).await.status, 200, "nor where there is no crowd");
    assert_eq!(upstream.count(), 60 + 15 + 2);
    let series = "onceward_gateway_rejected_total{reason=\"retry_share\"}";
    assert_eq!(gateway.metric(series).await, 25);
}

#[tokio::test]
async fn with_a_key_only_what_would_run_is_refused() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &route("retry_share = 0.1\nnot_applied = [503]"));
    // One that was released: its repeat is a retry, whatever its client says.
    upstream.then([Mode::Status(503)]);
    assert_eq!(gateway.send(&pay("released")).await.status, 503);
    let first = send_all(&gateway, (0..60).map(|number| pay(&format!("k{number}")))).await;
    assert!(first.iter().all(|reply| reply.status == 201));
    let retries = send_all(&gateway, (0..20).map(|number| again(pay(&format!("r{number}"))))).await;
    let admitted = retries.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(admitted, 6, "6 of 67 are less than a tenth, 7 of 68 are more");
    let number = retries.iter().position(|reply| reply.status != 201).unwrap();
    assert_eq!(retries[number].problem(), (429, "retry-budget-exhausted".into()));
    let operation = &retries[number].json()["operation"];
    assert_eq!(operation.as_str(), retries[number].header("onceward-operation"), "it is named");
    let state = gateway.status_of(&retries[number], &pay(&format!("r{number}"))).await.json();
    assert_eq!(state["state"], "released", "its key is free");
    assert_eq!(
        gateway.send(&pay("released")).await.problem(),
        (429, "retry-budget-exhausted".into())
    );

    let replays = send_all(&gateway, (0..60).map(|number| again(pay(&format!("k{number}"))))).await;
    assert!(replays.iter().all(Reply::is_replay), "a replay is never refused");
    assert_eq!(gateway.send(&pay("new")).await.status, 201, "nor is a first attempt");
}
