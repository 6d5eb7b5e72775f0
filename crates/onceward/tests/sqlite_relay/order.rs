//! In order per aggregate, side by side otherwise.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use onceward::{message::InspectQueue, outbox::Sent};
use tokio::time::Instant;

use crate::{
    memory::MemoryQueue,
    support::{Recorder, bodies, event, oldest, quick, relay, start, until},
};

const AGGREGATES: usize = 30;
const EACH: usize = 12;

fn filled() -> Arc<dyn InspectQueue> {
    let queue = MemoryQueue::new();
    for number in 0..EACH {
        for aggregate in 0..AGGREGATES {
            queue.put(event(&format!("order-{aggregate}"), number));
        }
    }
    Arc::new(queue)
}

fn slow() -> Recorder {
    Recorder::new(|_, _| (Duration::from_millis(fastrand::u64(1..50)), Sent::Accepted))
}

#[tokio::test(start_paused = true)]
async fn an_aggregate_is_in_order_and_aggregates_go_side_by_side() {
    let (queue, sink) = (filled(), slow());
    let began = Instant::now();
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are there", async || sink.seen().len() == AGGREGATES * EACH).await;
    running.stop().await;

    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..EACH));
    }
    let mut ends: BTreeMap<String, Instant> = BTreeMap::new();
    for seen in sink.seen() {
        let before = ends.insert(seen.aggregate, seen.ended);
        assert!(before.is_none_or(|before| before <= seen.began), "one at a time");
    }
    assert!(sink.most_at_once() > AGGREGATES / 2, "{}", sink.most_at_once());
    let one_after_the_other = Duration::from_millis(25) * (AGGREGATES * EACH) as u32;
    assert!(began.elapsed() < one_after_the_other / 4, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_more_are_in_flight_than_the_sink_may_have() {
    let (queue, sink) = (filled(), slow());
    let options = oldest().in_flight(3);
    let builder = onceward::outbox::Relay::builder(queue).rules(quick());
    let running = start(builder.sink_with("billing", sink.clone(), options).build().unwrap());
    until("all are there", async || sink.seen().len() == AGGREGATES * EACH).await;
    running.stop().await;
    assert_eq!(sink.most_at_once(), 3);
    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..EACH));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_quicker_than_the_next_question() {
    let memory = MemoryQueue::new();
    let queue: Arc<dyn InspectQueue> = Arc::new(memory.clone());
    let sink = Recorder::accepting();
    let relay = relay(&queue, &sink).build().unwrap();
    let waker = relay.waker();
    let running = start(relay);
    // Nothing happens for so long that it asks ten times a second only.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut quickest = [Duration::MAX; 2];
    for number in 0..20 {
        tokio::time::sleep(Duration::from_millis(1_013)).await;
        let began = Instant::now();
        memory.put(event("order-7", number));
        if number % 2 == 1 {
            waker.wake();
        }
        while sink.seen().len() == number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed();
        assert!(took <= Duration::from_millis(110), "also without a wake: {took:?}");
        if number % 2 == 1 {
            assert!(took <= Duration::from_millis(10), "{took:?}");
        }
        quickest[number % 2] = quickest[number % 2].min(took);
    }
    running.stop().await;
}
