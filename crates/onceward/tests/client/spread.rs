//! Statement 4: the waits of many calls are spread, at every attempt and also at the cap.

use std::{collections::HashSet, time::Duration};

use http::Request;
use onceward::{
    Body,
    client::{Report, Retry},
    retry::{Backoff, Limit, Rules},
};
use tower::{Layer as _, Service as _};

use crate::virtual_service::{Then, scripted};

const CALLS: usize = 1_000;
const ATTEMPTS: usize = 6;
const BASE: Duration = Duration::from_millis(100);
/// Reached at the fourth wait.
const CAP: Duration = Duration::from_millis(800);

/// The waits of one call, in order.
async fn waits(retry: Retry) -> Vec<Duration> {
    let (service, _) = scripted([Then::status(500)]);
    let request = Request::get("http://a.example/").body(Body::empty()).unwrap();
    let response = retry.layer().layer(service).call(request).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    report.attempts.iter().filter_map(|attempt| attempt.wait).collect()
}

/// The Kolmogorov–Smirnov distance to the uniform distribution up to `most`.
fn distance(mut samples: Vec<Duration>, most: Duration) -> f64 {
    samples.sort();
    let count = samples.len() as f64;
    let each = samples.iter().enumerate().map(|(index, wait)| {
        let expected = wait.as_secs_f64() / most.as_secs_f64();
        let (below, above) = (index as f64 / count, (index + 1) as f64 / count);
        (expected - below).abs().max((expected - above).abs())
    });
    each.fold(0.0, f64::max)
}

#[tokio::test(start_paused = true)]
async fn statement_4_a_thousand_concurrent_calls_are_spread_evenly_at_every_attempt() {
    let rules = Rules::standard()
        .to_builder()
        .attempts(ATTEMPTS as u32)
        .deadline(Duration::from_secs(60))
        .backoff(Backoff::Full { base: BASE, cap: CAP })
        .limit(Limit::Fixed(1_000_000))
        .without_budget()
        .without_breaker()
        .build()
        .unwrap();
    // Seeded, or one run in some hundred would fail by chance alone.
    let retry = Retry::with(rules).seeded(7);
    let calls: Vec<_> = (0..CALLS).map(|_| tokio::spawn(waits(retry.clone()))).collect();
    let mut sequences = Vec::new();
    for call in calls {
        sequences.push(call.await.unwrap());
    }
    for attempt in 0..ATTEMPTS - 1 {
        let bound = (BASE * (1 << attempt)).min(CAP);
        let samples = sequences.iter().map(|waits| waits[attempt]).collect();
        let distance = distance(samples, bound);
        assert!(distance < 0.05, "attempt {attempt}: D = {distance}");
    }
    let different: HashSet<_> = sequences.iter().collect();
    assert_eq!(different.len(), CALLS, "no two calls wait the same");
}

#[tokio::test(start_paused = true)]
async fn statement_4_two_clients_and_two_clones_of_one_never_share_a_sequence() {
    let one = Retry::standard();
    let all = [waits(one.clone()).await, waits(one.clone()).await, waits(Retry::standard()).await];
    assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2], "{all:?}");
}
