//! An upstream that is gone for a while, under load.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{
    gateway_support::{Call, Gateway, Link, Version, route},
    get, metric, safe, start,
    switched::{Mode, Switched},
};

const EVERY: Duration = Duration::from_millis(10);
const BEFORE: Duration = Duration::from_secs(1);
/// So long after the end nearly all must succeed.
const RECOVERED: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(3);

/// A request: when it was sent, and whether it went well.
type Sent = (Duration, bool);

#[tokio::test]
async fn a_five_second_outage_under_load() {
    outage(Duration::from_secs(5), Mode::Reset).await;
}

#[tokio::test]
#[ignore = "long: 45 s"]
async fn a_thirty_second_outage_under_load() {
    outage(Duration::from_secs(30), Mode::Reset).await;
}

#[tokio::test]
#[ignore = "long: 45 s"]
async fn a_thirty_second_outage_of_503s_under_load() {
    outage(Duration::from_secs(30), Mode::Status(503)).await;
}

async fn outage(length: Duration, mode: Mode) {
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
    let sent = load(&gateway, begun, BEFORE + length + RECOVERED + WATCHED).await;
    let attempts_in_outage = switching.await.unwrap();
    let (requests, attempts) = (sent.len(), upstream.count());
    let during = |from: Duration, to: Duration| {
        let within: Vec<_> = sent.iter().filter(|(at, _)| (from..to).contains(at)).collect();
        (within.len(), within.iter().filter(|(_, is_good)| *is_good).count())
    };
    let end = BEFORE + length;
    let (asked, _) = during(BEFORE, end);
    let (late, good) = during(end + RECOVERED, end + RECOVERED + WATCHED);
    let second = Duration::from_secs(1);
    let recovery = (0..10).find(|after| {
        let (asked, good) = during(end + second * *after, end + second * (*after + 1));
        good as f64 >= 0.99 * asked as f64
    });
    let refused = metric(&gateway, "onceward_gateway_turned_away_total{why=\"breaker\"}").await;
    eprintln!(
        "{requests} requests, {attempts} attempts; in the outage {asked} requests, \
         {attempts_in_outage} attempts; {refused} turned away; 99 % again in second {recovery:?} \
         after it; {good} of {late} good after 10 s"
    );
    assert!(attempts as f64 <= 1.10 * requests as f64, "{attempts} of {requests}");
    assert!(attempts_in_outage as f64 <= 1.10 * asked as f64, "{attempts_in_outage} of {asked}");
    assert!(late > 0 && good as f64 >= 0.99 * late as f64, "{good} of {late}");
}

/// A hundred requests a second, half of them with keys, whatever becomes of them.
async fn load(gateway: &Gateway, begun: Instant, length: Duration) -> Vec<Sent> {
    let mut running = Vec::new();
    let count = u32::try_from(length.as_millis() / EVERY.as_millis()).unwrap();
    for number in 0..count {
        sleep_until(begun + EVERY * number).await;
        let call = match number % 2 {
            0 => get("/safe/1"),
            _ => pay(number),
        };
        let (address, at) = (gateway.address, begun.elapsed());
        running.push(tokio::spawn(async move {
            let reply = Link::open(address, Version::Http1).await.send(&call).await;
            (at, reply.status < 300)
        }));
    }
    let mut sent = Vec::new();
    for one in running {
        sent.push(one.await.unwrap());
    }
    sent
}

fn pay(number: u32) -> Call {
    Call::post("/pay")
        .key(&format!("outage-{number}"))
        .header("x-api-key", "alice")
        .json(json!({"amount": number}))
}
