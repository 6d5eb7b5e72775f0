//! A sink that is down, or fails at everything: its messages wait where they are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onceward::{
    message::{InspectQueue, MessageFilter, MessageState},
    outbox::{Relay, Sent},
    retry::{Budget, Rules},
};

use crate::{
    memory::MemoryQueue,
    support::{Recorder, bodies, counted, event, failed, oldest, quick, relay, start, until},
};

const AGGREGATES: usize = 500;
const EACH: usize = 4;

fn filled() -> Arc<dyn InspectQueue> {
    let queue = MemoryQueue::new();
    for number in 0..EACH {
        for aggregate in 0..AGGREGATES {
            queue.put(event(&format!("order-{aggregate}"), number));
        }
    }
    Arc::new(queue)
}

/// A sink that says this while it is broken.
fn breaking(says: Sent) -> (Recorder, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = is_broken.clone();
    let sink = Recorder::new(move |_, _| {
        let is_broken = broken.load(Ordering::SeqCst);
        (Duration::from_millis(20), if is_broken { says.clone() } else { Sent::Accepted })
    });
    (sink, is_broken)
}

async fn parked(queue: &Arc<dyn InspectQueue>) -> u64 {
    let sink = queue.condition().await.unwrap().sinks.remove(0);
    sink.waiting + sink.dead + sink.held
}

fn assert_in_order(sink: &Recorder) {
    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..EACH));
    }
}

/// The usual rules, with a breaker, and waits of milliseconds.
fn breaker() -> Rules {
    let usual = Relay::rules();
    let breaker = onceward::retry::Breaker::standard();
    quick().to_builder().attempts(usual.attempts()).breaker(breaker).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_goes_down_is_asked_now_and_then_and_parks_nearly_nothing() {
    let queue = filled();
    let down = Sent::SinkDown { after: None, why: "connection refused".into() };
    let (sink, is_down) = breaking(down);
    let builder = Relay::builder(queue.clone()).rules(breaker());
    let running = start(builder.sink_with("down", sink.clone(), oldest()).build().unwrap());
    until("it has begun", async || sink.accepted().len() > 100).await;
    is_down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (accepted, asked) = (sink.accepted().len(), sink.begun());
    assert!(accepted < AGGREGATES * EACH, "it went down in the midst of them");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(sink.accepted().len(), accepted);
    let asked = sink.begun() - asked;
    assert!((10..200).contains(&asked), "in ten minutes it was asked {asked} times");
    let is_paused = || counted("onceward_relay_paused", &[("sink", "down")]) == 1.0;
    until("it is said to be paused", async || is_paused()).await;
    let parked = parked(&queue).await;
    assert!(parked < 200, "{parked} of {} are parked", AGGREGATES * EACH);

    is_down.store(false, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    until("all are there", async || sink.accepted().len() == AGGREGATES * EACH).await;
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
    assert!(!is_paused());
    running.stop().await;
    assert_in_order(&sink);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_asks_for_a_pause_gets_it() {
    let queue = filled();
    let after = Some(Duration::from_secs(120));
    let (sink, is_down) = breaking(Sent::SinkDown { after, why: "maintenance".into() });
    is_down.store(true, Ordering::SeqCst);
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it was asked", async || sink.begun() > 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = sink.begun();
    is_down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(115)).await;
    assert_eq!(sink.begun(), asked);
    until("all are there", async || sink.accepted().len() == AGGREGATES * EACH).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_takes_nothing_opens_its_breaker_and_parks_no_more() {
    let queue = filled();
    let (sink, is_broken) = breaking(Sent::Retry { after: None, why: "503".into() });
    is_broken.store(true, Ordering::SeqCst);
    let running = start(relay(&queue, &sink).rules(breaker()).build().unwrap());
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(sink.accepted().is_empty());
    let parked = parked(&queue).await;
    assert!(parked < 300, "{parked} of {} are parked", AGGREGATES * EACH);
    let filter = MessageFilter { state: Some(MessageState::Dead), ..MessageFilter::default() };
    assert!(queue.list(&filter).await.unwrap().messages.is_empty(), "and none has died");

    is_broken.store(false, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    until("all are there", async || sink.accepted().len() == AGGREGATES * EACH).await;
    assert!(began.elapsed() < Duration::from_secs(180), "{:?}", began.elapsed());
    running.stop().await;
    assert_in_order(&sink);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_spent_kills_no_message() {
    let queue = filled();
    let (sink, is_broken) = breaking(failed());
    is_broken.store(true, Ordering::SeqCst);
    let budget = Budget { capacity: 100, start: 0, ..Budget::standard() };
    let rules = quick().to_builder().attempts(1_000).budget(budget).build().unwrap();
    let builder = Relay::builder(queue.clone()).rules(rules).retain(Duration::from_secs(90_000));
    let running = start(builder.sink_with("billing", sink.clone(), oldest()).build().unwrap());
    until("each has failed", async || sink.begun() > AGGREGATES * 3).await;
    is_broken.store(false, Ordering::SeqCst);
    until("all are there", async || sink.accepted().len() == AGGREGATES * EACH).await;
    running.stop().await;
    assert_in_order(&sink);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_names_a_time_is_not_asked_before() {
    let queue = MemoryQueue::new();
    queue.put(event("order-7", 0));
    let sink = Recorder::new(|_, attempt| {
        let later = Sent::Retry { after: Some(Duration::from_secs(40)), why: "429".into() };
        (Duration::ZERO, if attempt.number == 1 { later } else { Sent::Accepted })
    });
    let running = start(relay(&(Arc::new(queue) as _), &sink).build().unwrap());
    until("it is there", async || !sink.accepted().is_empty()).await;
    running.stop().await;
    let seen = sink.seen();
    let waited = seen[1].began - seen[0].ended;
    assert!((Duration::from_secs(40)..Duration::from_secs(46)).contains(&waited), "{waited:?}");
}
