//! Statements 2 and 3, in virtual time.

use std::time::Duration;

use http::Request;
use onceward::{
    Body, Incoming,
    client::{Report, Retry, Within},
    retry::{Class, Rules, Stop, StopReason},
};
use testbed::Pieces;
use tokio::time::Instant;
use tower::{Layer as _, Service as _};

use crate::virtual_service::{Then, scripted};

const DEADLINE: Duration = Duration::from_secs(10);
const SLACK: Duration = Duration::from_millis(5);

/// Sends one GET; gives its report and how long it took.
async fn send(
    retry: &Retry,
    script: impl IntoIterator<Item = Then>,
) -> (Report, Duration, Vec<Duration>) {
    let (service, begun) = scripted(script);
    let start = Instant::now();
    let request = Request::get("http://a.example/").body(Body::empty()).unwrap();
    let result = retry.layer().layer(service).call(request).await;
    let took = start.elapsed();
    let report = match result {
        Ok(response) => response.extensions().get::<Report>().unwrap().clone(),
        Err(error) => error.report().clone(),
    };
    (report, took, begun.all().into_iter().map(|at| at - start).collect())
}

/// Many attempts, so that only the deadline ends them.
fn persistent() -> Rules {
    Rules::standard()
        .to_builder()
        .attempts(1_000)
        .without_budget()
        .without_breaker()
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn statement_2_no_attempt_starts_at_or_after_the_deadline_and_the_call_returns_by_then() {
    for seed in 0..200 {
        let after = Duration::from_millis(seed * 41 % 5_000);
        let status = [500, 503, 429, 504][seed as usize % 4];
        let retry = Retry::with(persistent()).seeded(seed);
        let (report, took, begun) = send(&retry, [Then::status(status).after(after)]).await;
        assert!(begun.iter().all(|at| *at < DEADLINE), "{seed}: {begun:?}");
        assert!(took <= DEADLINE + SLACK, "{seed}: {took:?}");
        assert_eq!(report.stop.unwrap().reason(), StopReason::Deadline, "{seed}");
        assert!(!begun.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn statement_2_a_silent_server_is_given_up_at_the_deadline() {
    let retry = Retry::with(persistent());
    let (report, took, begun) = send(&retry, [Then::status(200).after(DEADLINE * 100)]).await;
    assert!(took <= DEADLINE + SLACK, "{took:?}");
    assert!(begun.len() >= 3, "attempts of 4 s each");
    assert_eq!(report.stop, Some(Stop::Failed(StopReason::Deadline)), "a GET cannot have happened");
}

#[tokio::test(start_paused = true)]
async fn statement_2_a_hint_beyond_the_deadline_returns_at_once_with_the_hint() {
    for hint in [10, 11, 3_600, u64::MAX] {
        let (report, took, begun) = send(&Retry::standard(), [Then::status(503).hint(hint)]).await;
        assert!(took <= SLACK, "{hint}: {took:?}");
        assert_eq!(report.stop, Some(Stop::Failed(StopReason::Deadline)));
        assert_eq!(report.hint, Some(Duration::from_secs(hint)));
        assert_eq!(begun.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn statement_2_a_request_can_have_less_time_than_the_rules_give() {
    let (service, begun) = scripted([Then::status(500).after(Duration::from_millis(300))]);
    let start = Instant::now();
    let request = Request::get("http://a.example/").extension(Within(Duration::from_secs(1)));
    let result = Retry::with(persistent())
        .layer()
        .layer(service)
        .call(request.body(Body::empty()).unwrap())
        .await;
    assert!(start.elapsed() <= Duration::from_secs(1) + SLACK);
    assert!(begun.all().iter().all(|at| *at - start < Duration::from_secs(1)));
    drop(result);
}

#[tokio::test(start_paused = true)]
async fn statement_3_no_wait_is_shorter_than_the_servers_hint() {
    for seed in 0..300 {
        let hint = seed % 4 + 1;
        let status = [503, 429, 500, 409][seed as usize % 4];
        let retry = Retry::standard().seeded(seed);
        let script = [Then::status(status).hint(hint), Then::status(200)];
        let (report, _, begun) = send(&retry, script).await;
        let hint = Duration::from_secs(hint);
        assert_eq!(begun.len(), 2, "{seed}: {report:?}");
        let wait = begun[1] - begun[0];
        assert!(wait >= hint, "{seed}: {wait:?}");
        let most = hint + hint / 10;
        assert!(
            status != 409 && status != 500 || wait <= most.max(Duration::from_millis(60)) + SLACK,
            "{seed}: {wait:?}"
        );
        assert!(report.attempts[0].wait.unwrap() >= hint);
    }
}

/// A client all of whose connections are taken.
#[derive(Clone)]
struct NeverReady;

impl tower::Service<Request<Body>> for NeverReady {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<http::Response<Body>, std::convert::Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), std::convert::Infallible>> {
        std::task::Poll::Pending
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        panic!("it was never ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_never_ready_has_sent_nothing() {
    let request = Request::post("http://a.example/").body(Body::empty()).unwrap();
    let mut client = Retry::standard().without_keys().layer().layer(NeverReady);
    let error = client.call(request).await.unwrap_err();
    let classes: Vec<_> = error.report().attempts.iter().map(|attempt| attempt.class).collect();
    assert_eq!(classes, [Class::NeverSent { reused: false }; 3]);
    assert!(!error.is_unknown());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for_longer_than_the_call_has() {
    let own = |request: &mut Request<Pieces>| {
        request.extensions_mut().insert(Within(Duration::from_millis(100)));
    };
    let inherited = |request: &mut Request<Pieces>| {
        let lines = [("onceward-deadline".parse().unwrap(), "100".parse().unwrap())];
        let incoming = Incoming::from(&http::HeaderMap::from_iter(lines));
        request.extensions_mut().insert(incoming);
    };
    for set in [&own as &dyn Fn(&mut Request<Pieces>), &inherited] {
        let (service, begun) = scripted([Then::status(200)]);
        let start = Instant::now();
        let mut request =
            Request::put("http://a.example/").body(Pieces::stuck().promising(10)).unwrap();
        set(&mut request);
        let error = Retry::standard().layer().layer(service).call(request).await.unwrap_err();
        assert_eq!(error.report().stop, Some(Stop::Failed(StopReason::Deadline)));
        assert!(start.elapsed() <= Duration::from_millis(100) + SLACK, "{:?}", start.elapsed());
        assert!(begun.all().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_during_the_wait_does_not_pay_for_the_retry() {
    let retry = Retry::standard();
    let (service, begun) = scripted([Then::status(503).hint(3)]);
    let request = Request::get("http://a.example/").body(Body::empty()).unwrap();
    let mut client = retry.layer().layer(service);
    let left = tokio::time::timeout(Duration::from_secs(1), client.call(request)).await;
    assert!(left.is_err() && begun.all().len() == 1, "it left while the call waited");
    let state = retry.target(&"http://a.example/".parse().unwrap());
    assert_eq!((state.budget, state.in_flight), (Some(30), 0));
}
