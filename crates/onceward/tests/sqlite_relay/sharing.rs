//! Several relays on one outbox in a file: they share it, and take over from one that died or slept.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use onceward::{
    message::{InspectQueue, NewMessage, RelayId},
    outbox::Sent,
};

use crate::{
    file::File,
    support::{Recorder, bodies, event, relay, start, until},
};

const SECOND: Duration = Duration::from_secs(1);

fn events(aggregates: usize, numbers: std::ops::Range<usize>) -> Vec<NewMessage> {
    let of = |number| (0..aggregates).map(move |one| event(&format!("order-{one}"), number));
    numbers.flat_map(of).collect()
}

/// How many lanes each relay holds.
async fn holders(queue: &Arc<dyn InspectQueue>) -> BTreeMap<RelayId, usize> {
    let mut holders = BTreeMap::new();
    for sink in queue.condition().await.unwrap().sinks {
        for lane in sink.lanes {
            if let Some(relay) = lane.relay {
                *holders.entry(relay).or_default() += 1;
            }
        }
    }
    holders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_share_the_lanes_and_one_takes_over_when_the_other_is_killed() {
    let file = File::new();
    let queue = file.queue();
    let (one, two) = (Recorder::accepting(), Recorder::accepting());
    let first = start(relay(&file.queue(), &one).lease(SECOND).build().unwrap());
    until("it has all lanes", async || holders(&queue).await.values().sum::<usize>() == 64).await;
    let second = start(relay(&file.queue(), &two).lease(SECOND).build().unwrap());
    until("they share them", async || {
        holders(&queue).await.into_values().collect::<Vec<_>>() == [32, 32]
    })
    .await;
    file.put(&events(100, 0..3));
    until("all are there", async || one.seen().len() + two.seen().len() == 300).await;
    assert!(!one.seen().is_empty() && !two.seen().is_empty(), "each has sent some");

    first.kill().await;
    file.put(&events(100, 3..6));
    let sent = || one.seen().len() + two.seen().len();
    until("all are there", async || sent() == 600).await;
    assert_eq!(holders(&queue).await.into_values().collect::<Vec<_>>(), [64]);
    second.stop().await;
    assert!(holders(&queue).await.is_empty(), "a relay that ends gives its lanes back");
    let mut each = one.accepted_of_each();
    for (aggregate, later) in two.accepted_of_each() {
        each.entry(aggregate).or_default().extend(later);
    }
    for (aggregate, accepted) in each {
        assert_eq!(accepted, bodies(&aggregate, 0..6), "once each, and in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_was_asleep_past_its_lease_sends_and_writes_nothing_more() {
    let file = File::new();
    file.put(&events(40, 0..5));
    // Its sink blocks the only thread of its runtime, as SIGSTOP would stop all of the process.
    let is_asleep = Arc::new(AtomicBool::new(false));
    let asleep = is_asleep.clone();
    let zombie = Recorder::new(move |_, attempt| {
        if !asleep.swap(true, Ordering::SeqCst) {
            thread::sleep(SECOND * 4);
        }
        assert_eq!(attempt.number, 1);
        (Duration::ZERO, Sent::Accepted)
    });
    let first = relay(&file.queue(), &zombie).lease(SECOND).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let frozen = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(first.run(async { stopped.await.unwrap_or_default() })).unwrap();
    });
    until("it sleeps", async || is_asleep.load(Ordering::SeqCst)).await;

    let sink = Recorder::accepting();
    let second = start(relay(&file.queue(), &sink).lease(SECOND).build().unwrap());
    until("all are there", async || sink.seen().len() == 200).await;
    until("it wakes up", async || !zombie.seen().is_empty()).await;
    // It finds its lanes with the other relay, and gets its share of them again.
    until("they share them", async || holders(&file.queue()).await.len() == 2).await;
    for (aggregate, accepted) in sink.accepted_of_each() {
        assert_eq!(accepted, bodies(&aggregate, 0..5), "whatever the other one did");
    }
    let repeats = zombie.seen().len();
    assert!(repeats <= 64, "what was in flight when it fell asleep, not its pages: {repeats}");

    file.put(&events(40, 5..8));
    let sent = || sink.seen().len() + zombie.seen().len() - repeats;
    until("all are there", async || sent() == 320).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(sent(), 320, "and once each");
    stop.send(()).unwrap();
    frozen.join().unwrap();
    second.stop().await;
}
