//! Hedges through the layer, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onceward::{
    Body,
    client::{Report, Retry},
    retry::{Class, Hedge, Rules},
};
use tower::{Layer as _, Service as _, service_fn};

const FAST: Duration = Duration::from_millis(10);

/// Counts requests whose future was dropped before it ended.
struct Dropped(Arc<AtomicU32>, bool);

impl Dropped {
    fn ended(&mut self) {
        self.1 = true;
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// How the late request and the one beside it are answered.
#[derive(Clone, Copy)]
struct Race {
    first: (u16, Duration),
    hedge: (u16, Duration),
}

/// Warms a client up with fast answers, then runs one race; gives the status, the report and how many
/// requests were dropped.
async fn race(method: &str, race: Race) -> (u16, Report, u32, u32) {
    let (dropped, sent) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (given_up, count) = (dropped.clone(), sent.clone());
    let service = service_fn(move |_: Request<Body>| {
        let (status, after) = match count.fetch_add(1, Ordering::SeqCst) {
            ..200 => (200, FAST),
            200 => race.first,
            _ => race.hedge,
        };
        let mut dropped = Dropped(given_up.clone(), false);
        async move {
            tokio::time::sleep(after).await;
            dropped.ended();
            let response = Response::builder().status(status).body(Full::<Bytes>::default());
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let rules = Rules::standard().to_builder().hedge(Hedge::standard()).build().unwrap();
    let retry = Retry::with(rules);
    let mut client = retry.layer().layer(service);
    let request = || {
        Request::builder().method(method).uri("http://a.example/").body(Body::from("x")).unwrap()
    };
    for _ in 0..200 {
        client.call(request()).await.unwrap();
    }
    let response = client.call(request()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    let target = retry.target(&"http://a.example/".parse().unwrap());
    assert_eq!(target.in_flight, 0, "losers have landed");
    let (dropped, sent) = (dropped.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
    (response.status().as_u16(), report, dropped, sent - 200)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn a_hedge_overtakes_a_late_request_and_the_loser_is_dropped() {
    for method in ["GET", "PUT", "POST"] {
        let (status, report, dropped, sent) =
            race(method, Race { first: (200, millis(3_000)), hedge: (201, FAST) }).await;
        assert_eq!((status, dropped, sent), (201, 1, 2), "{method}");
        assert!(report.is_hedged());
        assert!(report.total < millis(100), "{method}: {:?}", report.total);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_hedge_never_changes_what_the_first_request_gives() {
    for bad in [503, 500, 409, 412, 401, 404] {
        let (status, report, dropped, sent) =
            race("DELETE", Race { first: (200, millis(1_000)), hedge: (bad, FAST) }).await;
        assert_eq!((status, dropped, sent), (200, 0, 2), "{bad}");
        assert_eq!(report.stop, None, "{bad}");
        assert_eq!(report.attempts.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_request_fails_the_hedge_is_waited_for() {
    let (status, report, dropped, sent) =
        race("GET", Race { first: (500, millis(50)), hedge: (200, millis(500)) }).await;
    assert_eq!((status, dropped, sent), (200, 0, 2));
    let classes: Vec<_> = report.attempts.iter().map(|attempt| attempt.class).collect();
    assert_eq!(classes, [Class::ServerFault, Class::Success]);
    assert!(report.attempts[1].hedge);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_the_hedge_may_have_caused_is_not_believed_while_it_runs() {
    for (method, status) in [("DELETE", 404), ("POST", 409), ("PUT", 412), ("POST", 422)] {
        let (taken, report, dropped, _) =
            race(method, Race { first: (status, millis(50)), hedge: (200, millis(500)) }).await;
        assert_eq!((taken, dropped, report.stop), (200, 0, None), "{method} {status}");
        let (taken, report, ..) =
            race(method, Race { first: (status, millis(50)), hedge: (500, millis(500)) }).await;
        assert_eq!(taken, status, "{method}");
        assert!(report.stop.unwrap().is_unknown(), "{method} {status}: the hedge may have run");
        let (_, report, ..) =
            race(method, Race { first: (status, millis(50)), hedge: (status, millis(500)) }).await;
        assert!(!report.stop.unwrap().is_unknown(), "{method} {status}: both were refused");
    }
    let (_, report, ..) =
        race("GET", Race { first: (401, millis(50)), hedge: (500, millis(500)) }).await;
    assert!(!report.stop.unwrap().is_unknown(), "a read changes nothing");
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_is_taken_when_it_comes_first() {
    let (status, _, dropped, sent) =
        race("GET", Race { first: (200, millis(50)), hedge: (201, millis(500)) }).await;
    assert_eq!((status, dropped, sent), (200, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_key_is_never_hedged() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = sent.clone();
    let service = service_fn(move |_: Request<Body>| {
        let slow = count.fetch_add(1, Ordering::SeqCst) >= 200;
        async move {
            tokio::time::sleep(if slow { millis(3_000) } else { FAST }).await;
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let rules = Rules::standard().to_builder().hedge(Hedge::standard()).build().unwrap();
    let mut client = Retry::with(rules).without_keys().layer().layer(service);
    for _ in 0..201 {
        client
            .call(Request::post("http://a.example/").body(Body::from("x")).unwrap())
            .await
            .unwrap();
    }
    assert_eq!(sent.load(Ordering::SeqCst), 201);
}
