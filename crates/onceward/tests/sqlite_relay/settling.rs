//! What a relay makes of an outbox that fails, and of answers that are lost.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use onceward::{
    message::{InspectQueue, MessageState, RepairKind, RepairMessage, SinkName},
    outbox::Sent,
};

use crate::{
    between::{Between, Call, Fault},
    memory::MemoryQueue,
    support::{Recorder, bodies, counted, event, failed, has_state, relay, repair, start, until},
};

fn filled(each: usize) -> MemoryQueue {
    let queue = MemoryQueue::new();
    for number in 0..each {
        for aggregate in 0..50 {
            queue.put(event(&format!("order-{aggregate}"), number));
        }
    }
    queue
}

fn assert_once_each(sink: &Recorder, each: usize) {
    let ids: BTreeSet<_> = sink.seen().iter().map(|seen| (seen.id, seen.attempt)).collect();
    assert_eq!(ids.len(), sink.seen().len(), "no attempt was made twice");
    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..each));
    }
}

#[tokio::test(start_paused = true)]
async fn settlements_whose_answers_are_lost_are_made_once_and_nothing_is_sent_twice() {
    for fault in [Fault::Before, Fault::After, Fault::Hang] {
        let memory = filled(4);
        let mut settlements = 0;
        let queue = Between::over(Arc::new(memory), move |call| {
            settlements += usize::from(call == Call::Settle);
            // Two of three go wrong.
            if call == Call::Settle && !settlements.is_multiple_of(3) { fault } else { Fault::None }
        });
        // Half of the messages fail once, so that there are parked ones in the settlements.
        let sink = Recorder::new(|message, attempt| {
            let fails = attempt.number == 1 && message.id.as_bytes()[0].is_multiple_of(2);
            (Duration::ZERO, if fails { failed() } else { Sent::Accepted })
        });
        let running = start(relay(&queue, &sink).build().unwrap());
        until("all are there", async || sink.accepted().len() == 200).await;
        until("all is written", async || {
            let condition = queue.condition().await;
            condition.is_ok_and(|condition| condition.sinks[0].lag == 0)
        })
        .await;
        running.stop().await;
        assert_once_each(&sink, 4);
    }
    assert!(counted("onceward_relay_settlements_total", &[("result", "failed")]) > 0.0);
    assert!(counted("onceward_relay_calls_failed_total", &[("call", "settle")]) > 0.0);
}

#[tokio::test(start_paused = true)]
async fn an_outbox_that_is_away_for_longer_than_a_lease_stops_everything_and_loses_nothing() {
    let memory = filled(40);
    let is_away = Arc::new(AtomicBool::new(false));
    let away = is_away.clone();
    let queue = Between::over(Arc::new(memory), move |_| {
        if away.load(Ordering::SeqCst) { Fault::Before } else { Fault::None }
    });
    let sink = Recorder::new(|_, _| (Duration::from_millis(20), Sent::Accepted));
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it has begun", async || sink.seen().len() > 200).await;
    is_away.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let sent = sink.begun();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(sink.begun(), sent, "without a lease nothing is sent");
    is_away.store(false, Ordering::SeqCst);
    until("all are there", async || sink.accepted().len() == 2_000).await;
    until("all is written", async || queue.condition().await.unwrap().sinks[0].lag == 0).await;
    running.stop().await;
    assert_once_each(&sink, 40);
}

#[tokio::test(start_paused = true)]
async fn an_outbox_that_refuses_a_settlement_raises_an_alarm_and_holds_the_lane() {
    let memory = filled(4);
    let refuses = Arc::new(AtomicBool::new(true));
    let refused = refuses.clone();
    let queue = Between::over(Arc::new(memory), move |call| {
        let is_refused = call == Call::Settle && refused.load(Ordering::SeqCst);
        if is_refused { Fault::Unusable } else { Fault::None }
    });
    let raised = || counted("onceward_alarms_total", &[("event", "relay_not_settled")]);
    let (sink, before) = (Recorder::accepting(), raised());
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are sent", async || sink.accepted().len() == 200).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let alarms = raised() - before;
    assert!((1.0..=64.0).contains(&alarms), "once for each lane, however long it takes: {alarms}");
    assert_eq!(sink.begun(), 200, "nothing is sent twice meanwhile");
    refuses.store(false, Ordering::SeqCst);
    until("all is written", async || queue.condition().await.unwrap().sinks[0].lag == 0).await;
    running.stop().await;
    assert_once_each(&sink, 4);
}

#[tokio::test(start_paused = true)]
async fn every_call_may_fail_now_and_then() {
    for fault in [Fault::Before, Fault::After] {
        let memory = filled(6);
        let mut random = fastrand::Rng::with_seed(7);
        let queue =
            Between::over(
                Arc::new(memory),
                move |_| {
                    if random.u8(..) < 50 { fault } else { Fault::None }
                },
            );
        let sink = Recorder::accepting();
        let running = start(relay(&queue, &sink).lease(Duration::from_secs(60)).build().unwrap());
        until("all are there", async || sink.accepted().len() == 300).await;
        running.stop().await;
        assert_once_each(&sink, 6);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operators_step_in_between_costs_nothing() {
    let memory = MemoryQueue::new();
    let dead = memory.put(event("order-7", 0));
    let inner: Arc<dyn InspectQueue> = Arc::new(memory.clone());
    let (redriven, stores) = (Arc::new(AtomicUsize::new(0)), inner.clone());
    let count = redriven.clone();
    // While a page of the lane is sent, the operator changes the dead letter.
    let sink = Recorder::new(move |message, _| {
        if message.body == b"order-7/0" {
            return (Duration::ZERO, Sent::Refused { why: "422".into() });
        }
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            let (sink, reason) = (SinkName::new("billing").unwrap(), String::new());
            let repair =
                RepairMessage { id: dead, sink, kind: RepairKind::Discard, actor: None, reason };
            let changed = futures_now(stores.repair(&repair));
            assert_eq!(changed, Ok(onceward::message::Changed::Done));
        }
        (Duration::ZERO, Sent::Accepted)
    });
    let before = counted("onceward_relay_settlements_total", &[("result", "fenced")]);
    let running = start(relay(&inner, &sink).build().unwrap());
    until("it is dead", async || has_state(&inner, dead, MessageState::Dead).await).await;
    // Of the same lane, and of another aggregate.
    let lane = onceward::message::Lane::of(b"order-7");
    let mate = (0..).map(|number| format!("mate-{number}"));
    let mate = mate.into_iter().find(|mate| onceward::message::Lane::of(mate.as_bytes()) == lane);
    let next = memory.put(event(&mate.unwrap(), 0));
    until("it is there", async || has_state(&inner, next, MessageState::Delivered).await).await;
    running.stop().await;
    assert_eq!(redriven.load(Ordering::SeqCst), 1, "it was sent once");
    assert!(has_state(&inner, dead, MessageState::Discarded).await, "the operator's word stays");
    assert!(counted("onceward_relay_settlements_total", &[("result", "fenced")]) > before);
}

/// The answer of an outbox in memory, which is there at once.
fn futures_now<T>(mut future: onceward::store::BoxFuture<'_, T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it is in memory"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_outbox_that_says_so_is_not_relayed_until_it_is_in_order_again() {
    let memory = filled(1);
    memory.set_alarm(Some("the database is a copy of another one"));
    let queue: Arc<dyn InspectQueue> = Arc::new(memory.clone());
    let sink = Recorder::accepting();
    let before = onceward::telemetry::OUTBOX_STOPPED.count();
    let running = start(relay(&queue, &sink).build().unwrap());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(sink.begun(), 0);
    assert!(onceward::telemetry::OUTBOX_STOPPED.count() > before);
    memory.set_alarm(None);
    until("all are there", async || sink.accepted().len() == 50).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outbox_that_cannot_be_used_ends_the_relay_and_one_that_is_away_does_not() {
    let memory: Arc<dyn InspectQueue> = Arc::new(filled(1));
    let mut opened = 0;
    let away = Between::over(memory.clone(), move |call| {
        opened += usize::from(call == Call::Open);
        if call == Call::Open && opened < 50 { Fault::Before } else { Fault::None }
    });
    let sink = Recorder::accepting();
    let running = start(relay(&away, &sink).build().unwrap());
    until("all are there", async || sink.accepted().len() == 50).await;
    running.stop().await;

    let queue = Between::over(memory, |_| Fault::Unusable);
    let error = start(relay(&queue, &sink).build().unwrap()).error().await;
    assert!(
        error.to_string().contains("`billing`") && error.to_string().contains("standby"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outbox_that_is_mended_just_after_it_refused_is_asked_once_more() {
    // The alarm that the refusal speaks of is over when the relay asks for it.
    let mut opened = 0;
    let queue = Between::over(Arc::new(filled(1)), move |call| {
        opened += usize::from(call == Call::Open);
        if call == Call::Open && opened == 1 { Fault::Unusable } else { Fault::None }
    });
    let sink = Recorder::accepting();
    let running = start(relay(&queue, &sink).build().unwrap());
    until("all are there", async || sink.accepted().len() == 50).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_sent_again_while_its_lane_is_idle() {
    let memory = MemoryQueue::new();
    let dead = memory.put(event("order-7", 0));
    let queue: Arc<dyn InspectQueue> = Arc::new(memory);
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = is_mended.clone();
    let sink = Recorder::new(move |_, _| {
        let refused = Sent::Refused { why: "422".into() };
        (Duration::ZERO, if mended.load(Ordering::SeqCst) { Sent::Accepted } else { refused })
    });
    let running = start(relay(&queue, &sink).build().unwrap());
    until("it is dead", async || has_state(&queue, dead, MessageState::Dead).await).await;
    is_mended.store(true, Ordering::SeqCst);
    // The relay knows the step before: what it settles is fenced off once.
    repair(&queue, dead, RepairKind::Redrive).await;
    until("it is there", async || has_state(&queue, dead, MessageState::Delivered).await).await;
    running.stop().await;
    assert_eq!(sink.seen().len(), 2, "and it was sent once more, not twice");
}

#[tokio::test(start_paused = true)]
async fn relays_that_die_before_the_end_of_their_pages_come_on_nevertheless() {
    const EACH: usize = 60;
    let queue: Arc<dyn InspectQueue> = Arc::new(filled(EACH));
    // An aggregate's messages of one page take six seconds, and no relay lives that long.
    let sink = Recorder::new(|_, _| (Duration::from_millis(100), Sent::Accepted));
    let is_done = || {
        let is_last = |(aggregate, accepted): &(String, Vec<String>)| {
            accepted.contains(&format!("{aggregate}/{}", EACH - 1))
        };
        sink.accepted_of_each().into_iter().filter(is_last).count() == 50
    };
    let mut lives = 0;
    while !is_done() {
        lives += 1;
        assert!(lives <= 10, "they send the same again and again");
        let lease = Duration::from_secs(1);
        let running = start(relay(&queue, &sink).lease(lease).build().unwrap());
        tokio::time::sleep(Duration::from_secs(3)).await;
        running.kill().await;
    }
    assert!(lives > 2, "one of them had time for everything");
}
