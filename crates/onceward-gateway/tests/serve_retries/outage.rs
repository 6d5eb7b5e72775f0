//! An upstream that is gone for a while, under load.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{
    gateway_support::{Call, Gateway, Link, Version, route},
    get, safe, start,
    switched::{Mode, Switched},
};

const EVERY: Duration = Duration::from_millis(10);
const BEFORE: Duration = Duration::from_secs(1);
/// So long after the end nearly all must succeed.
const RECOVERED: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(3);

/// A request: when it was sent, and whether it went well.
type Sent = (Duration, bool);

/// The same as the long ones, but it does not go on watching when nearly all have succeeded again.
#[tokio::test]
async fn a_five_second_outage_under_load() {
    let length = Duration::from_secs(5);
    let end = BEFORE + length;
    let sent = outage(length, Mode::Reset, |sent| is_recovered(sent, end)).await;
    assert!(is_recovered(&sent, end), "not within {RECOVERED:?}");
}

/// Whether at least 99 of the last hundred whose end is known, all sent after the outage, went well.
fn is_recovered(sent: &[Sent], end: Duration) -> bool {
    let mut after: Vec<&Sent> = sent.iter().filter(|(at, _)| *at >= end).collect();
    after.sort_unstable();
    let Some(last) = after.len().checked_sub(100) else { return false };
    after[last..].iter().filter(|(_, is_good)| *is_good).count() >= 99
}

#[tokio::test]
#[ignore = "long: 45 s"]
async fn a_thirty_second_outage_under_load() {
    watched_outage(Duration::from_secs(30), Mode::Reset).await;
}

#[tokio::test]
#[ignore = "long: 45 s"]
async fn a_thirty_second_outage_of_503s_under_load() {
    watched_outage(Duration::from_secs(30), Mode::Status(503)).await;
}

/// Ten seconds after its end nearly all succeed, and go on to.
async fn watched_outage(length: Duration, mode: Mode) {
    let sent = outage(length, mode, |_| false).await;
    let from = BEFORE + length + RECOVERED;
    let late = sent.iter().filter(|(at, _)| (from..from + WATCHED).contains(at));
    let (late, good) =
        late.fold((0, 0), |(late, good), (_, is_good)| (late + 1, good + usize::from(*is_good)));
    assert!(late > 0 && good as f64 >= 0.99 * late as f64, "{good} of {late}");
}

/// Everything that was sent before, in and after an outage, until nothing more is to be seen.
async fn outage(length: Duration, mode: Mode, is_over: impl Fn(&[Sent]) -> bool) -> Vec<Sent> {
    let upstream = Arc::new(Switched::start().await);
    let repeatable = "retry = \"standard\"\neffect = \"repeatable\"\nrerun_within = \"1h\"";
    let text = format!("{}{}", safe("retry = \"standard\""), route(repeatable));
    let gateway = start(&upstream, &text);
    let begun = Instant::now();
    let (from, to) = (begun + BEFORE, begun + BEFORE + length);
    let switching = {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            sleep_until(from).await;
            upstream.mode(mode);
            let before = upstream.count();
            sleep_until(to).await;
            upstream.mode(Mode::Good);
            upstream.count() - before
        })
    };
    let longest = BEFORE + length + RECOVERED + WATCHED;
    let sent = load(&gateway, begun, longest, is_over).await;
    let attempts_in_outage = switching.await.unwrap();
    let (requests, attempts) = (sent.len(), upstream.count());
    let during = |from: Duration, to: Duration| {
        let within: Vec<_> = sent.iter().filter(|(at, _)| (from..to).contains(at)).collect();
        (within.len(), within.iter().filter(|(_, is_good)| *is_good).count())
    };
    let end = BEFORE + length;
    let (asked, _) = during(BEFORE, end);
    let second = Duration::from_secs(1);
    let recovery = (0..10).find(|after| {
        let (asked, good) = during(end + second * *after, end + second * (*after + 1));
        good as f64 >= 0.99 * asked as f64
    });
    let refused = gateway.metric("onceward_gateway_rejected_total{reason=\"breaker\"}").await;
    eprintln!(
        "{requests} requests, {attempts} attempts; in the outage {asked} requests, \
         {attempts_in_outage} attempts; {refused} turned away; 99 % again in second {recovery:?} \
         after it"
    );
    assert!(attempts as f64 <= 1.10 * requests as f64, "{attempts} of {requests}");
    assert!(attempts_in_outage as f64 <= 1.10 * asked as f64, "{attempts_in_outage} of {asked}");
    sent
}

/// A hundred requests a second, half of them with keys, whatever becomes of them.
async fn load(
    gateway: &Gateway,
    begun: Instant,
    longest: Duration,
    is_over: impl Fn(&[Sent]) -> bool,
) -> Vec<Sent> {
    let ended: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let mut running = Vec::new();
    let count = u32::try_from(longest.as_millis() / EVERY.as_millis()).unwrap();
    for number in 0..count {
        sleep_until(begun + EVERY * number).await;
        if number % 20 == 0 && is_over(&ended.lock().unwrap()) {
            break;
        }
        let call = match number % 2 {
            0 => get("/safe/1"),
            _ => pay(number),
        };
        let (address, at, ended) = (gateway.address, begun.elapsed(), ended.clone());
        running.push(tokio::spawn(async move {
            let reply = Link::open(address, Version::Http1).await.send(&call).await;
            ended.lock().unwrap().push((at, reply.status < 300));
        }));
    }
    for one in running {
        one.await.unwrap();
    }
    let sent = ended.lock().unwrap();
    sent.clone()
}

fn pay(number: u32) -> Call {
    Call::post("/pay")
        .key(&format!("outage-{number}"))
        .header("x-api-key", "alice")
        .json(json!({"amount": number}))
}
