//! What a relay shows of itself: metrics and traces.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    message::{InspectQueue, Message},
    outbox::{Attempt, DeliverySpan, Relay, Sent},
    telemetry,
};

use crate::{
    memory::MemoryQueue,
    support::{Recorder, counted, event, failed, oldest, quick, start, until},
};

#[tokio::test(start_paused = true)]
async fn what_a_relay_does_is_counted_for_each_sink() {
    let memory = MemoryQueue::new();
    for number in 0..3 {
        memory.put(event("order-7", number));
        memory.put(event("order-8", number));
    }
    memory.put(event("order-9", 0).not_before(memory.time().plus(Duration::from_secs(86_400))));
    let queue: Arc<dyn InspectQueue> = Arc::new(memory);
    let sink = Recorder::new(|message, attempt| {
        let sent = match message.body.as_slice() {
            b"order-7/1" if attempt.number == 1 => failed(),
            b"order-8/1" => Sent::Refused { why: "422".into() },
            _ => Sent::Accepted,
        };
        (Duration::from_millis(30), sent)
    });
    let builder = Relay::builder(queue).rules(quick());
    let relay = builder.sink_with("counted", sink.clone(), oldest()).build().unwrap();
    let moved = counted("onceward_relay_settlements_total", &[("result", "moved")]);
    let running = start(relay);
    until("all are there", async || sink.accepted().len() == 4).await;
    let sink_is = ("sink", "counted");
    let value = |name: &str| counted(name, &[sink_is]);
    assert_eq!(value("onceward_relay_lanes"), 64.0);
    tokio::time::sleep(Duration::from_secs(40)).await;
    let attempts =
        |result| counted("onceward_relay_attempts_total", &[sink_is, ("result", result)]);
    assert_eq!(["accepted", "failed", "refused", "down"].map(attempts), [4.0, 1.0, 1.0, 0.0]);
    let messages = |state| counted("onceward_relay_messages_total", &[sink_is, ("state", state)]);
    // One of order-8 waits behind its dead letter.
    let states = ["delivered", "waiting", "dead", "scheduled", "held", "expired"].map(messages);
    assert_eq!((states[0], states[2], states[3], states[4], states[5]), (4.0, 1.0, 1.0, 0.0, 0.0));
    assert!(states[1] >= 2.0, "{states:?}");
    let parked = |state| counted("onceward_relay_parked", &[sink_is, ("state", state)]);
    assert_eq!(["waiting", "dead", "scheduled", "held"].map(parked), [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(value("onceward_relay_lag"), 3.0);
    assert!((20.0..60.0).contains(&value("onceward_relay_oldest_seconds")));
    assert_eq!(value("onceward_relay_attempt_duration_seconds_count"), 6.0);
    let seconds = value("onceward_relay_attempt_duration_seconds_sum");
    assert!((0.17..0.3).contains(&seconds), "six of 30 ms: {seconds}");
    assert_eq!(value("onceward_relay_delay_seconds_count"), 4.0);
    assert!(value("onceward_relay_delay_seconds_sum") >= 0.12);
    assert!(counted("onceward_relay_stored_messages", &[]) > 0.0);
    assert!(counted("onceward_relay_settlements_total", &[("result", "moved")]) > moved);
    running.stop().await;
    assert_eq!(value("onceward_relay_lanes"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn every_metric_of_a_relay_is_documented_and_nothing_else_is() {
    let memory: Arc<dyn InspectQueue> = Arc::new(MemoryQueue::new());
    let sink = Recorder::accepting();
    let running = start(Relay::builder(memory).sink("documented", sink).build().unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop().await;
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `onceward_relay_"));
    let name_and_kind = |row: &str| {
        let (name, rest) = row.split_once("` | ").unwrap();
        format!("{name} {}", rest.split(" |").next().unwrap())
    };
    let documented: BTreeSet<String> = rows.map(name_and_kind).collect();
    let text = telemetry::prometheus();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE onceward_relay_"));
    assert_eq!(documented, shown.map(str::to_owned).collect());
}

const PRODUCER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A sink that remembers which trace it was given.
fn tracing_sink(seen: &Arc<Mutex<Vec<Option<String>>>>) -> Recorder {
    let seen = seen.clone();
    Recorder::new(move |_, attempt| {
        seen.lock().unwrap().push(attempt.traceparent.clone());
        (Duration::ZERO, if attempt.number == 1 { failed() } else { Sent::Accepted })
    })
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_span_that_continues_the_producers_trace() {
    let memory = MemoryQueue::new();
    memory.put(event("order-7", 0).trace(PRODUCER));
    let (traces, spans) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
    let sink = tracing_sink(&traces);
    let ended = spans.clone();
    let begin = move |message: &Message, attempt: &Attempt| {
        let parent = message.trace.clone().unwrap();
        let own = parent.replace("00f067aa0ba902b7", &format!("{:016x}", attempt.number));
        let (ended, number, name) = (ended.clone(), attempt.number, attempt.sink.to_string());
        DeliverySpan::new(own, move |sent: &Sent| {
            ended.lock().unwrap().push((name, number, parent, sent.clone()));
        })
    };
    let builder = Relay::builder(Arc::new(memory)).rules(quick()).spans(begin);
    let running = start(builder.sink_with("billing", sink.clone(), oldest()).build().unwrap());
    until("it is there", async || !sink.accepted().is_empty()).await;
    running.stop().await;
    let given: Vec<_> = traces.lock().unwrap().iter().flatten().cloned().collect();
    let own = |number| PRODUCER.replace("00f067aa0ba902b7", &format!("{number:016x}"));
    assert_eq!(given, [own(1), own(2)], "the sink passes on the span, of the same trace");
    let of = |number, sent| ("billing".to_owned(), number, PRODUCER.to_owned(), sent);
    assert_eq!(*spans.lock().unwrap(), [of(1, failed()), of(2, Sent::Accepted)]);
}

#[tokio::test(start_paused = true)]
async fn without_spans_the_producers_trace_is_passed_on() {
    let memory = MemoryQueue::new();
    memory.put(event("order-7", 0).trace(PRODUCER));
    memory.put(event("order-7", 1));
    let traces: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let sink = tracing_sink(&traces);
    let builder = Relay::builder(Arc::new(memory)).rules(quick());
    let running = start(builder.sink_with("billing", sink.clone(), oldest()).build().unwrap());
    until("both are there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    let producer = Some(PRODUCER.to_owned());
    assert_eq!(*traces.lock().unwrap(), [producer.clone(), producer, None, None]);
}
