//! How a relay ends, and what its options must be.

use std::{sync::Arc, time::Duration};

use onceward::{
    message::{InspectQueue, MessageState},
    outbox::{Relay, RelayBuildError, Sent, SinkOptions},
};
use tokio::time::Instant;

use crate::{
    memory::MemoryQueue,
    support::{Recorder, event, has_state, quick, relay, start, until},
};

#[tokio::test(start_paused = true)]
async fn at_shutdown_what_is_under_way_ends_and_is_written_down_and_nothing_else_begins() {
    let memory = MemoryQueue::new();
    for number in 0..5 {
        for aggregate in 0..200 {
            memory.put(event(&format!("order-{aggregate}"), number));
        }
    }
    let queue: Arc<dyn InspectQueue> = Arc::new(memory);
    let sink = Recorder::new(|_, _| (Duration::from_secs(3), Sent::Accepted));
    let running = start(relay(&queue, &sink).build().unwrap());
    until("some are under way", async || sink.begun() >= 64).await;
    let (begun, began) = (sink.begun(), Instant::now());
    running.stop().await;
    assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(sink.begun(), begun);
    assert_eq!(sink.accepted().len(), begun, "all that began have ended");
    for seen in sink.seen() {
        assert!(has_state(&queue, seen.id, MessageState::Delivered).await);
    }
    // Another relay gets the lanes at once, and sends the rest only.
    let next = Recorder::accepting();
    let began = Instant::now();
    let running = start(relay(&queue, &next).lease(Duration::from_secs(600)).build().unwrap());
    until("the rest is there", async || next.accepted().len() == 1_000 - begun).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn attempts_that_do_not_end_are_given_up_and_made_again_by_another_relay() {
    let memory = MemoryQueue::new();
    memory.put(event("order-7", 0));
    let queue: Arc<dyn InspectQueue> = Arc::new(memory);
    let sink = Recorder::new(|_, _| (Duration::from_secs(4), Sent::Accepted));
    let builder = relay(&queue, &sink).drain(Duration::from_secs(2));
    let running = start(builder.build().unwrap());
    until("it is under way", async || sink.begun() == 1).await;
    let began = Instant::now();
    running.stop().await;
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&took), "{took:?}");
    assert!(sink.seen().is_empty());
    let next = Recorder::accepting();
    let running = start(relay(&queue, &next).build().unwrap());
    until("it is there", async || next.accepted().len() == 1).await;
    running.stop().await;
    assert_eq!(next.seen()[0].attempt, 1, "what was not written down is not counted");
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_is_stopped_before_its_outbox_answers_ends() {
    let queue = crate::between::Between::over(Arc::new(MemoryQueue::new()), |_| {
        crate::between::Fault::Before
    });
    let running = start(relay(&queue, &Recorder::accepting()).build().unwrap());
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop().await;
}

fn build(
    change: impl FnOnce(onceward::outbox::RelayBuilder) -> onceward::outbox::RelayBuilder,
) -> RelayBuildError {
    let builder = Relay::builder(Arc::new(MemoryQueue::new()));
    change(builder).build().unwrap_err()
}

#[test]
fn what_does_not_fit_together_is_said_when_it_is_built() {
    let sink = Recorder::accepting;
    assert_eq!(build(|relay| relay), RelayBuildError::NoSink);
    let twice = build(|relay| relay.sink("billing", sink()).sink("billing", sink()));
    assert!(matches!(&twice, RelayBuildError::NamedTwice(name) if name.as_str() == "billing"));
    assert!(twice.to_string().contains("two sinks are called `billing`"), "{twice}");
    let unnamed = build(|relay| relay.sink("", sink()));
    assert!(matches!(unnamed, RelayBuildError::Name(_)), "{unnamed}");
    let none = SinkOptions::default().in_flight(0);
    let none = build(|relay| relay.sink_with("billing", sink(), none));
    assert!(matches!(none, RelayBuildError::NothingInFlight(_)), "{none}");
    for lease in [Duration::from_millis(999), Duration::from_secs(601)] {
        let lease = build(|relay| relay.sink("billing", sink()).lease(lease));
        assert!(lease.to_string().contains("1s to 600s"), "{lease}");
    }
    let many = build(|relay| {
        (0..=Relay::MAX_SINKS)
            .fold(relay, |relay, number| relay.sink(&format!("sink-{number}"), sink()))
    });
    assert!(matches!(many, RelayBuildError::TooManySinks(65)), "{many}");
}

#[test]
fn messages_are_kept_for_longer_than_their_delivery_may_take() {
    let day = Duration::from_secs(86_400);
    let short = build(|relay| relay.sink("billing", Recorder::accepting()).retain(day));
    let RelayBuildError::Retention { retain, longest, .. } = &short else { panic!("{short}") };
    let rules = Relay::rules();
    assert_eq!((*retain, *longest), (day, (rules.deadline() + rules.attempt_timeout()) * 20));
    assert!(
        short.to_string().contains("86400s") && short.to_string().contains("216300s"),
        "{short}"
    );
    let own = SinkOptions::default().rules(quick());
    let relay = Relay::builder(Arc::new(MemoryQueue::new())).retain(day);
    assert!(relay.sink_with("billing", Recorder::accepting(), own).build().is_ok());
}
