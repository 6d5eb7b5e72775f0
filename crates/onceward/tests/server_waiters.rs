//! Many requests with one key at the server layer: who runs, who waits, and what waiting costs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod waiters_support;

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use onceward::{Body, server::Idempotency, store::memory::MemoryStore};
use peak_alloc::PeakAlloc;
use tokio::{
    sync::{Mutex, MutexGuard},
    task::{JoinHandle, yield_now},
    time::timeout,
};
use tower::Service;
use waiters_support::{Rig, assert_one_answer, read, request, send, stampede, ten_thousand_wait};

/// Counts the bytes of this test program that are allocated and not freed.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The heap is one for all threads: tests that ran beside each other would count each other.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    ONE_AT_A_TIME.lock().await
}

fn rig() -> Rig {
    Rig::new(MemoryStore::not_durable(), 0)
}

type Waiting = JoinHandle<Result<Response<Body>, Infallible>>;

/// Starts one execution and lets so many duplicates wait for it, each in a task of its own.
async fn waiting<S>(rig: &Rig, service: &S, key: &str, duplicates: usize) -> Vec<Waiting>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let expected = rig.swaps() + 1 + duplicates;
    let mut callers = Vec::with_capacity(1 + duplicates);
    for _ in 0..=duplicates {
        callers.push(tokio::spawn(service.clone().call(request(key))));
        // The first one claims before the others come, and no task is kept in a queue for long.
        yield_now().await;
    }
    rig.asked(expected).await;
    callers
}

/// Takes all answers, and then the place of the tasks.
async fn answered(callers: Vec<Waiting>) {
    let mut replies = Vec::with_capacity(callers.len());
    for caller in callers {
        replies.push(read(caller.await.unwrap()).await);
    }
    assert_one_answer(&replies);
}

/// What is counted for each duplicate: its request as the layer holds it (head, headers, a body of
/// 1 KiB), the layer's future with its place among the waiters and its timer, and the task of tokio
/// that drives it, which is not the layer's but comes with every request. What is there once, like
/// the first execution and the one who asks the store, is shared out among the duplicates.
#[tokio::test]
async fn a_waiting_duplicate_takes_less_than_4_kib() {
    const DUPLICATES: usize = 2_000;
    const KEYS: [&str; 2] = ["warms-up-what-is-kept", "counts"];

    let _alone = alone().await;
    let rig = rig();
    let service = rig.service();
    for key in KEYS {
        let before = HEAP.current_usage();
        let callers = waiting(&rig, &service, key, DUPLICATES).await;
        let each = (HEAP.current_usage() - before) / DUPLICATES;
        println!("{key}: {each} bytes for each waiting duplicate");
        assert!(each > 1024, "{each} bytes: not even the body is counted");
        assert!(each < 4096, "{each} bytes for each waiting duplicate");
        rig.end();
        answered(callers).await;
        if key == KEYS[1] {
            let left = HEAP.current_usage().saturating_sub(before);
            assert!(left < 16 << 10, "{left} bytes are still there after everybody was answered");
        }
    }
    assert_eq!(rig.executions(), KEYS.len());
}

#[tokio::test]
async fn duplicates_that_go_away_leave_nothing_behind() {
    const DUPLICATES: usize = 2_000;

    let _alone = alone().await;
    let rig = rig();
    let service = rig.service();
    let warm = waiting(&rig, &service, "warms-up", DUPLICATES).await;
    rig.end();
    answered(warm).await;

    let before = HEAP.current_usage();
    let mut callers = waiting(&rig, &service, "counts", DUPLICATES).await;
    for gone in callers.drain(1..) {
        gone.abort();
        let _ = gone.await;
    }
    callers.shrink_to_fit();
    // The one who asks the store for them finds out when it asks the next time.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = HEAP.current_usage().saturating_sub(before);
    assert!(left < 16 << 10, "{left} bytes are there while one execution runs");
    let asked = rig.gets();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(rig.gets(), asked, "nobody waits, so nobody asks");
    rig.end();
    answered(callers).await;
}

#[tokio::test]
async fn one_more_than_may_wait_is_told_at_once_and_takes_a_place_that_becomes_free() {
    let _alone = alone().await;
    let rig = rig();
    let mut service = rig.service();
    let mut callers = waiting(&rig, &service, "one", Idempotency::MAX_WAITERS).await;

    let told = timeout(Duration::from_secs(10), send(service.clone(), "one")).await;
    let told = told.expect("the others wait for 30 s, this one does not");
    assert_eq!(told.status.as_u16(), 409);
    let problem: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!(problem["code"], "in-progress");
    assert!(told.headers.contains_key("retry-after"), "{told:?}");

    // There is a place for somebody else as soon as one of them leaves.
    let gone = callers.pop().unwrap();
    gone.abort();
    let _ = gone.await;
    let asked = rig.swaps();
    callers.push(tokio::spawn(service.call(request("one"))));
    rig.asked(asked + 1).await;
    rig.end();
    answered(callers).await;
    assert_eq!(rig.executions(), 1);
}

#[tokio::test]
async fn who_waits_hears_when_the_one_who_asks_is_gone_with_its_runtime() {
    let _alone = alone().await;
    let rig = rig();
    let service = rig.service();
    let first = tokio::spawn(service.clone().call(request("one")));
    rig.asked(1).await;

    // Whoever comes first makes the task that asks the store, on its own runtime.
    let other = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let gone = other.spawn(service.clone().call(request("one")));
    rig.asked(2).await;
    let second = tokio::spawn(service.clone().call(request("one")));
    rig.asked(3).await;
    other.shutdown_background();
    assert!(gone.await.unwrap_err().is_cancelled());

    rig.end();
    let answers = async { [read(first.await.unwrap()).await, read(second.await.unwrap()).await] };
    let answers = timeout(Duration::from_secs(10), answers).await;
    assert_one_answer(&answers.expect("it would have waited for 30 s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_200_first_requests_at_once_one_runs() {
    let _alone = alone().await;
    for round in 0..20 {
        let rig = Rig::new(MemoryStore::not_durable(), 1);
        let replies = stampede(&rig, &format!("round-{round}"), 200).await;
        assert_eq!((rig.executions(), replies.len()), (1, 200));
        assert_one_answer(&replies);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_duplicates_get_the_one_answer() {
    let _alone = alone().await;
    ten_thousand_wait(MemoryStore::not_durable()).await;
}
