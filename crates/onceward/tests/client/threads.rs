//! Statement 7 with 64 real threads, through the whole client.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onceward::{
    Body,
    client::Retry,
    retry::{Backoff, Breaker, Budget, Circuit, Rules},
};
use tower::{Layer as _, Service as _, service_fn};

const THREADS: u32 = 64;

/// Runs one client on 64 threads at once, each with a runtime of its own.
fn together(retry: &Retry, status: u16, calls: u32) -> u32 {
    let sent = Arc::new(AtomicU32::new(0));
    let start = Arc::new(Barrier::new(THREADS as usize));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (retry, sent, start) = (retry.clone(), sent.clone(), start.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                start.wait();
                runtime.unwrap().block_on(run(retry, sent, status, calls));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    sent.load(Ordering::SeqCst)
}

async fn run(retry: Retry, sent: Arc<AtomicU32>, status: u16, calls: u32) {
    let service = service_fn(move |_: Request<Body>| {
        sent.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::task::yield_now().await;
            let response = Response::builder().status(status).body(Full::<Bytes>::default());
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let mut client = retry.layer().layer(service);
    for _ in 0..calls {
        let request = Request::get("http://a.example/").body(Body::empty()).unwrap();
        let _ = client.call(request).await;
    }
}

#[test]
fn statement_7_a_budget_shared_by_64_threads_grants_what_it_has_and_no_more() {
    let budget = Budget { capacity: 100, start: 100, retry: 10, hinted: 5, success: 1 };
    let rules =
        Rules::standard().to_builder().budget(budget).without_breaker().backoff(Backoff::None);
    let retry = Retry::with(rules.build().unwrap()).priority(onceward::retry::Priority::HIGHEST);
    let calls = 50;
    let sent = together(&retry, 500, calls);
    assert_eq!(sent, THREADS * calls + 10, "ten retries were in the purse");
    let state = retry.target(&"http://a.example/".parse().unwrap());
    assert_eq!((state.budget, state.in_flight), (Some(0), 0));
}

#[test]
fn statement_7_a_half_open_breaker_shared_by_64_threads_lets_its_quota_through_and_no_more() {
    let breaker = Breaker {
        in_a_row: 1,
        hopeless: 1,
        trials: 3,
        // Far longer than 64 threads need to start.
        open: Duration::from_secs(2),
        ..Breaker::standard()
    };
    let rules = Rules::standard().to_builder().breaker(breaker).without_budget().build().unwrap();
    let retry = Retry::with(rules);
    let opening = together(&retry, 502, 1);
    assert!(opening <= THREADS, "it opened: {opening}");
    let circuit = || retry.target(&"http://a.example/".parse().unwrap()).circuit;
    let sent = together(&retry, 502, 1);
    assert!(sent == 0 || circuit() != Circuit::Open, "{sent} were sent while it was open");
    let bound = Instant::now() + Duration::from_secs(60);
    while circuit() != Circuit::HalfOpen {
        assert!(Instant::now() < bound, "it never half-opened");
        std::thread::sleep(Duration::from_millis(20));
    }
    let trials = together(&retry, 502, 1);
    assert!((1..=3).contains(&trials), "{trials} of a quota of 3");
}
