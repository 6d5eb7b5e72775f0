//! A message that fails: what becomes of it, of its aggregate, and of all others.

use std::{sync::Arc, time::Duration};

use onceward::{
    message::{InspectQueue, MessageState, NewMessage, RepairKind},
    outbox::{DeadLetters, OtherTopics, Relay, Sent},
};
use tokio::time::Instant;

use crate::{
    memory::MemoryQueue,
    support::{
        Recorder, bodies, counted, event, failed, has_state, oldest, quick, relay, repair, shown,
        start, until,
    },
};

fn empty() -> (MemoryQueue, Arc<dyn InspectQueue>) {
    let memory = MemoryQueue::new();
    (memory.clone(), Arc::new(memory))
}

/// A sink that says this of one body, as often as it is asked to, and accepts the rest.
fn saying(body: &'static str, times: u32, says: Sent) -> Recorder {
    Recorder::new(move |message, attempt| {
        let is_it = message.body == body.as_bytes() && attempt.number <= times;
        (Duration::ZERO, if is_it { says.clone() } else { Sent::Accepted })
    })
}

#[tokio::test(start_paused = true)]
async fn a_failing_message_stops_its_aggregate_and_nothing_else() {
    let (memory, queue) = empty();
    for number in 0..5 {
        memory.put(event("bad", number));
        memory.put(event("good", number));
    }
    let sink = saying("bad/1", 3, failed());
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are there", async || sink.accepted().len() == 10).await;
    running.stop().await;
    let each = sink.accepted_of_each();
    assert_eq!(each["bad"], bodies("bad", 0..5));
    assert_eq!(each["good"], bodies("good", 0..5));
    let seen = sink.seen();
    let tries: Vec<u32> =
        seen.iter().filter(|seen| seen.body == "bad/1").map(|seen| seen.attempt).collect();
    assert_eq!(tries, [1, 2, 3, 4]);
    let second = seen.iter().find(|seen| seen.body == "bad/1" && seen.attempt == 2).unwrap();
    let good = seen.iter().filter(|seen| seen.aggregate == "good");
    assert!(good.clone().all(|good| good.ended <= second.began), "they did not wait for it");
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_a_dead_letter_and_blocks_its_aggregate_until_it_is_sent_again() {
    let (memory, queue) = empty();
    let dead = memory.put(event("order-7", 0));
    let after = memory.put(event("order-7", 1));
    memory.put(event("order-8", 0));
    let sink = saying("order-7/0", 1, Sent::Refused { why: "422: no such customer".into() });
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is dead", async || has_state(&queue, dead, MessageState::Dead).await).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(sink.accepted(), ["order-8/0"]);
    let letter = shown(&queue, dead).await;
    assert_eq!((letter.attempts, letter.why.as_str()), (1, "422: no such customer"));
    assert!(has_state(&queue, after, MessageState::Waiting).await);

    // The operator's word: sent again, as a first attempt. The sink refuses it once more.
    repair(&queue, dead, RepairKind::Redrive).await;
    until("it was tried again", async || sink.seen().len() == 3).await;
    until("it is dead again", async || has_state(&queue, dead, MessageState::Dead).await).await;
    repair(&queue, dead, RepairKind::Discard).await;
    until("the next one is there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    assert_eq!(sink.accepted()[1], "order-7/1");
    assert!(has_state(&queue, dead, MessageState::Discarded).await);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_sent_again_goes_before_what_waited_behind_it() {
    let (memory, queue) = empty();
    let dead = memory.put(event("order-7", 0));
    memory.put(event("order-7", 1));
    let is_mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mended = is_mended.clone();
    let sink = Recorder::new(move |message, _| {
        let is_refused =
            message.body == b"order-7/0" && !mended.load(std::sync::atomic::Ordering::SeqCst);
        let refused = Sent::Refused { why: "404".into() };
        (Duration::ZERO, if is_refused { refused } else { Sent::Accepted })
    });
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is dead", async || has_state(&queue, dead, MessageState::Dead).await).await;
    memory.put(event("order-7", 2));
    is_mended.store(true, std::sync::atomic::Ordering::SeqCst);
    repair(&queue, dead, RepairKind::Redrive).await;
    until("all are there", async || sink.accepted().len() == 3).await;
    running.stop().await;
    assert_eq!(sink.accepted(), bodies("order-7", 0..3));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_skips_dead_letters_leaves_a_gap() {
    let (memory, queue) = empty();
    let dead = memory.put(event("order-7", 0));
    memory.put(event("order-7", 1));
    let sink = saying("order-7/0", 9, Sent::Refused { why: "422".into() });
    let options = oldest().dead_letters(DeadLetters::Skip);
    let builder = Relay::builder(queue.clone()).sink_with("billing", sink.clone(), options);
    let running = start(builder.rules(quick()).build().unwrap());
    until("the next one is there", async || sink.accepted() == ["order-7/1"]).await;
    running.stop().await;
    assert!(has_state(&queue, dead, MessageState::Dead).await);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_used_up_and_no_more_are_made() {
    let (memory, queue) = empty();
    let id = memory.put(event("order-7", 0));
    let sink = saying("order-7/0", 99, failed());
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is dead", async || has_state(&queue, id, MessageState::Dead).await).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    running.stop().await;
    assert_eq!(sink.seen().len(), 5, "as the rules say");
    let letter = shown(&queue, id).await;
    assert!(letter.attempts == 5 && letter.why.starts_with("500 ("), "{letter:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_of_an_endpoint_that_is_gone_is_held_until_an_operator_sends_it() {
    let (memory, queue) = empty();
    let held = memory.put(event("order-7", 0));
    memory.put(event("order-7", 1));
    memory.put(event("order-8", 0));
    let sink = Recorder::new({
        let first = std::sync::atomic::AtomicBool::new(true);
        move |message, _| {
            let is_gone = message.body == b"order-7/0"
                && first.swap(false, std::sync::atomic::Ordering::SeqCst);
            let gone = Sent::Gone { why: "410".into() };
            (Duration::ZERO, if is_gone { gone } else { Sent::Accepted })
        }
    });
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is held", async || has_state(&queue, held, MessageState::Held).await).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(sink.accepted(), ["order-8/0"]);
    repair(&queue, held, RepairKind::Redrive).await;
    until("all are there", async || sink.accepted().len() == 3).await;
    running.stop().await;
    assert_eq!(sink.accepted_of_each()["order-7"], bodies("order-7", 0..2));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_no_sink_takes_is_a_dead_letter_with_that_reason() {
    let (memory, queue) = empty();
    let message = NewMessage::new("invoice.written", "7").unwrap().aggregate("order-7").unwrap();
    let id = memory.put(message);
    memory.put(event("order-8", 0));
    let before = counted("onceward_relay_no_sink_total", &[]);
    let (first, second) = (Recorder::accepting(), Recorder::accepting());
    let builder = relay(&queue, &first).sink_with("shipping", second.clone(), oldest());
    let running = start(builder.build().unwrap());
    until("it is dead", async || has_state(&queue, id, MessageState::Dead).await).await;
    until("the others go on", async || second.accepted() == ["order-8/0"]).await;
    running.stop().await;
    let each = queue.show(id).await.unwrap();
    assert_eq!((each[0].why.as_str(), each[0].attempts), ("no sink takes this topic", 0));
    assert_eq!(each[1].state, MessageState::Delivered, "one sink says so for all");
    assert_eq!(first.accepted(), ["order-8/0"]);
    assert!(counted("onceward_relay_no_sink_total", &[]) > before);
}

#[tokio::test(start_paused = true)]
async fn a_relay_beside_others_passes_by_what_none_of_its_sinks_takes() {
    let (memory, queue) = empty();
    let id = memory.put(NewMessage::new("invoice.written", "7").unwrap());
    memory.put(event("order-8", 0));
    let sink = Recorder::accepting();
    let builder = relay(&queue, &sink).other_topics(OtherTopics::Pass);
    let running = start(builder.build().unwrap());
    until("the other one is there", async || sink.accepted() == ["order-8/0"]).await;
    until("it is passed by", async || has_state(&queue, id, MessageState::Delivered).await).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_an_answer_is_made_again_under_the_same_id() {
    let (memory, queue) = empty();
    let id = memory.put(event("order-7", 0));
    memory.put(event("order-7", 1));
    let sink = Recorder::new(|message, attempt| {
        let is_slow = message.body == b"order-7/0" && attempt.number == 1;
        (if is_slow { Duration::from_secs(60) } else { Duration::ZERO }, Sent::Accepted)
    });
    let began = Instant::now();
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    assert_eq!(sink.begun(), 3, "the first attempt was given up");
    assert_eq!((sink.seen()[0].id, sink.seen()[0].attempt), (id, 2));
    assert_eq!(sink.accepted(), bodies("order-7", 0..2));
    let took = began.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(7)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_costs_an_attempt_and_nothing_else() {
    let (memory, queue) = empty();
    memory.put(event("order-7", 0));
    memory.put(event("order-8", 0));
    let sink = Recorder::new(|message, attempt| {
        assert!(message.body != b"order-7/0" || attempt.number > 1, "a mistake of the sink's");
        (Duration::ZERO, Sent::Accepted)
    });
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    let again = sink.seen().into_iter().find(|seen| seen.aggregate == "order-7").unwrap();
    assert_eq!(again.attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_is_sent_at_its_time_and_blocks_nothing_until_then() {
    let (memory, queue) = empty();
    let hour = Duration::from_secs(3_600);
    let scheduled = memory.put(event("order-7", 0).not_before(memory.time().plus(hour)));
    memory.put(event("order-7", 1));
    let (sink, began) = (Recorder::accepting(), Instant::now());
    let running = start(relay(&queue, &sink).build().unwrap());
    until("the other one is there", async || sink.accepted() == ["order-7/1"]).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(has_state(&queue, scheduled, MessageState::Scheduled).await);
    until("it is there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    let took = began.elapsed();
    assert!(took >= hour && took < hour + Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_before_it_is_delivered_is_not_sent() {
    let (memory, queue) = empty();
    let soon = memory.time().plus(Duration::from_secs(30));
    let expired = memory.put(event("order-7", 0).expires_at(soon));
    let in_time = memory.put(event("order-8", 0).expires_at(soon));
    memory.put(event("order-7", 1));
    // It fails until its time is over, and then it is not tried again.
    let sink = saying(
        "order-7/0",
        99,
        Sent::Retry { after: Some(Duration::from_secs(31)), why: "503".into() },
    );
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is over", async || has_state(&queue, expired, MessageState::Expired).await).await;
    until("the next one is there", async || sink.accepted().len() == 2).await;
    running.stop().await;
    assert_eq!(sink.accepted(), ["order-8/0", "order-7/1"]);
    assert_eq!(sink.seen().len(), 3, "one attempt before it was over");
    assert!(has_state(&queue, in_time, MessageState::Delivered).await);
}

#[tokio::test(start_paused = true)]
async fn messages_are_kept_for_as_long_as_they_are_retained_and_dead_ones_for_longer() {
    let (memory, queue) = empty();
    let delivered = memory.put(event("order-7", 0));
    let dead = memory.put(event("order-8", 0));
    let sink = saying("order-8/0", 9, Sent::Refused { why: "422".into() });
    let retain = Duration::from_secs(1_200);
    let running = start(relay(&queue, &sink).retain(retain).build().unwrap());
    tokio::time::sleep(Duration::from_secs(1_190)).await;
    assert!(has_state(&queue, delivered, MessageState::Delivered).await);
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop().await;
    assert!(queue.show(delivered).await.unwrap().is_empty(), "its time is over");
    assert!(has_state(&queue, dead, MessageState::Dead).await);
}
