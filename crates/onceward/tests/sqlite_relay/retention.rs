//! Sinks that are down, new or removed, for as long as messages are kept and longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onceward::{
    message::{InspectQueue, SinkName},
    outbox::{Relay, Sent, SinkOptions},
};

use crate::{
    memory::MemoryQueue,
    support::{Recorder, bodies, event, oldest, quick, relay, start, until},
};

const RETAIN: Duration = Duration::from_secs(1_200);

/// A sweep every fifteen seconds, and a few more.
const SWEPT: Duration = Duration::from_secs(60);

fn empty() -> (MemoryQueue, Arc<dyn InspectQueue>) {
    let memory = MemoryQueue::new();
    (memory.clone(), Arc::new(memory))
}

fn name(text: &str) -> SinkName {
    SinkName::new(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_for_the_whole_retention_loses_nothing() {
    let (memory, queue) = empty();
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let sink = Recorder::new(move |_, _| {
        let refused = || Sent::SinkDown { after: None, why: "connection refused".into() };
        let sent = if down.load(Ordering::SeqCst) { refused() } else { Sent::Accepted };
        (Duration::ZERO, sent)
    });
    let well = Recorder::accepting();
    let mut ids = Vec::new();
    for number in 0..4 {
        for aggregate in 0..50 {
            ids.push(memory.put(event(&format!("order-{aggregate}"), number)));
        }
    }
    let builder = relay(&queue, &sink).sink_with("well", well.clone(), oldest());
    let running = start(builder.retain(RETAIN).build().unwrap());
    tokio::time::sleep(RETAIN * 3).await;
    assert!(sink.accepted().is_empty() && sink.begun() > 100, "it was asked again and again");
    assert_eq!(well.accepted().len(), 200, "another sink has got everything long ago");
    for id in &ids {
        assert_eq!(queue.show(*id).await.unwrap().len(), 2, "{id} is kept");
    }

    is_down.store(false, Ordering::SeqCst);
    until("all are there", async || sink.accepted().len() == 200).await;
    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..4), "once each, and in order");
    }
    assert!(sink.seen().iter().all(|seen| seen.attempt == 1), "no attempt was counted");
    tokio::time::sleep(SWEPT).await;
    running.stop().await;
    for id in ids {
        assert!(queue.show(id).await.unwrap().is_empty(), "now its time is over");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_sink_begins_with_what_commits_from_then_on_or_with_the_oldest() {
    let (memory, queue) = empty();
    for number in 0..3 {
        memory.put(event("order-7", number));
    }
    let first = Recorder::accepting();
    let running = start(relay(&queue, &first).retain(RETAIN).build().unwrap());
    until("the first sink has all", async || first.accepted().len() == 3).await;
    running.stop().await;

    let (new, old) = (Recorder::accepting(), Recorder::accepting());
    let builder = relay(&queue, &first).sink_with("new", new.clone(), SinkOptions::default());
    let builder = builder.sink_with("old", old.clone(), oldest());
    let running = start(builder.retain(RETAIN).build().unwrap());
    until("the oldest are there", async || old.accepted().len() == 3).await;
    memory.put(event("order-7", 3));
    let all = || [&first, &new, &old].map(|sink| sink.accepted().len());
    until("the next is there", async || all() == [4, 1, 4]).await;
    running.stop().await;
    assert_eq!(new.accepted_of_each()["order-7"], bodies("order-7", 3..4));
    assert_eq!(old.accepted_of_each()["order-7"], bodies("order-7", 0..4));
}

#[tokio::test(start_paused = true)]
async fn a_sink_without_relays_keeps_all_messages_until_it_is_removed() {
    let (memory, queue) = empty();
    let (gone, sink) = (Recorder::accepting(), Recorder::accepting());
    let builder = Relay::builder(queue.clone()).rules(quick()).retain(RETAIN);
    let running = start(builder.sink_with("gone", gone, oldest()).build().unwrap());
    until("it is known", async || queue.condition().await.unwrap().sinks.len() == 1).await;
    running.stop().await;

    let id = memory.put(event("order-7", 0));
    let running = start(relay(&queue, &sink).retain(RETAIN).build().unwrap());
    tokio::time::sleep(RETAIN * 3).await;
    assert_eq!(sink.accepted().len(), 1);
    assert_eq!(queue.show(id).await.unwrap().len(), 2, "it is kept for the sink that has no relay");
    assert!(queue.remove_sink(&name("gone")).await.unwrap());
    tokio::time::sleep(SWEPT).await;
    assert!(queue.show(id).await.unwrap().is_empty(), "nobody waits for it any more");
    running.stop().await;
}
