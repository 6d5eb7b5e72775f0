//! What is taken, in which order, and what is not.

use alloc::{format, string::ToString as _, vec};
use core::task::Poll;

use super::*;
use crate::{Digest, Timestamp, message::Topic};

/// One transaction or several, one aggregate or several: everything once, whole, and in order.
pub async fn committed_messages_are_taken_once_and_in_order<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    assert_eq!(relay.drain(lane).await, no_bodies(), "nothing was enqueued");

    let first = message(&a, "a1")
        .header("content-type", "text/plain")
        .header("x-two", "a\tb")
        .header("x-two", "ä")
        .operation(Digest([7; 32]))
        .trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    put(bench, &queue, &[first.clone(), message(&b, "b1"), message(&a, "a2")]).await;
    put_one(bench, &queue, &a, "a3").await;
    put_one(bench, &queue, &b, "b2").await;

    let page = relay.take(lane, PAGE).await;
    assert!(page.fresh.iter().all(|fresh| !fresh.is_blocked), "nothing is parked");
    assert!(page.fresh.is_sorted_by_key(|fresh| fresh.place), "places are in order");
    let taken = &page.fresh[0].message;
    let Message { id, topic, aggregate, body, headers, operation, trace, .. } = taken.clone();
    assert_eq!((Some(id), topic, Some(aggregate)), (first.id, first.topic, first.aggregate));
    assert_eq!((body, headers), (first.body, first.headers), "kept as it was");
    assert_eq!((operation, trace), (first.operation, first.trace));
    assert_eq!((taken.not_before, taken.expires_at), (None, None));
    assert!(page.read_at.since(taken.at) < HOUR && taken.at <= page.read_at, "by its own clock");

    let in_order: Vec<_> = page.fresh.iter().map(|fresh| super::body(&fresh.message)).collect();
    assert_eq!(in_order, ["a1", "b1", "a2", "a3", "b2"]);
    assert_eq!(relay.drain(lane).await, ["a1", "b1", "a2", "a3", "b2"]);
    assert_eq!(relay.drain(lane).await, no_bodies(), "nothing is taken twice");
}

/// Nothing of a transaction that was rolled back, before and after a committed one.
pub async fn rolled_back_messages_are_never_taken<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    for body in ["1", "2"] {
        let mut transaction = bench.begin(&queue).await;
        enqueue(bench, &queue, &mut transaction, &message(&a, "never")).await;
        let page = relay.take(lane, PAGE).await;
        assert!(page.fresh.iter().all(|fresh| super::body(&fresh.message) != "never"), "not yet");
        bench.roll_back(transaction).await;
        put_one(bench, &queue, &a, body).await;
    }
    assert_eq!(relay.drain(lane).await, ["1", "2"]);
    let mut transaction = bench.begin(&queue).await;
    let never = message(&a, "never");
    enqueue(bench, &queue, &mut transaction, &never).await;
    drop(transaction);
    assert_eq!(relay.drain(lane).await, no_bodies());
    let shown = queue.show(never.id.expect("it was given one")).await;
    assert_eq!(shown, Ok(vec![]), "it never was");
}

/// Short pages end where the next one begins.
pub async fn pages_follow_each_other<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let expected: Vec<String> = (0..10).map(|number| format!("{number}")).collect();
    for (number, body) in expected.iter().enumerate() {
        put_one(bench, &queue, if number % 3 == 0 { &a } else { &b }, body).await;
    }
    let page = relay.take(lane, 3).await;
    assert_eq!(page.fresh.len(), 3, "a page keeps to its limit");
    assert!(page.is_full, "there is more");
    assert_eq!(bodies(&relay.run_by(lane, 3, |_| Next::Delivered).await), expected);
    assert!(!relay.take(lane, 3).await.is_full, "there is no more");
}

/// A transaction that commits late is found, whatever was taken meanwhile.
pub async fn late_commits_are_found_though_later_ones_were_taken<B: QueueBench>(bench: &B) {
    if !bench.is_concurrent() {
        return;
    }
    for page in [1, PAGE] {
        let queue = bench.open().await;
        let Mates { lane, names: [a, b] } = mates();
        let mut relay = relay(&queue).await;
        let mut late = bench.begin(&queue).await;
        enqueue(bench, &queue, &mut late, &message(&a, "late 1")).await;
        let mut later = bench.begin(&queue).await;
        enqueue(bench, &queue, &mut later, &message(&a, "later")).await;
        put_one(bench, &queue, &b, "1").await;
        enqueue(bench, &queue, &mut late, &message(&a, "late 2")).await;
        put_one(bench, &queue, &b, "2").await;
        let taken = relay.run_by(lane, page, |_| Next::Delivered).await;
        assert_eq!(bodies(&taken), ["1", "2"], "pages of {page}");
        bench.commit(late).await;
        put_one(bench, &queue, &b, "3").await;
        let taken = relay.run_by(lane, page, |_| Next::Delivered).await;
        let mut taken = bodies(&taken);
        taken.sort();
        assert_eq!(taken, ["3", "late 1", "late 2"], "pages of {page}");
        bench.commit(later).await;
        let taken = relay.run_by(lane, page, |_| Next::Delivered).await;
        assert_eq!(bodies(&taken), ["later"], "pages of {page}");
    }
}

/// While one transaction stays open, everything else that commits is delivered.
pub async fn an_open_transaction_delays_no_other<B: QueueBench>(bench: &B) {
    if !bench.is_concurrent() {
        return;
    }
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let mut open = bench.begin(&queue).await;
    enqueue(bench, &queue, &mut open, &message(&a, "open")).await;
    for number in 0..30 {
        let body = number.to_string();
        put_one(bench, &queue, if number % 2 == 0 { &a } else { &b }, &body).await;
        assert_eq!(relay.drain(lane).await, [body], "the open one delays nothing");
    }
    bench.commit(open).await;
    assert_eq!(relay.drain(lane).await, ["open"]);
}

/// The order is that of enqueueing after the other's commit, not that of the beginnings.
pub async fn an_older_transaction_that_enqueues_later_comes_later<B: QueueBench>(bench: &B) {
    if !bench.is_concurrent() {
        return;
    }
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let mut older = bench.begin(&queue).await;
    // It writes, so that it has its number before the younger one begins.
    enqueue(bench, &queue, &mut older, &message(&b, "other")).await;
    put_one(bench, &queue, &a, "first").await;
    enqueue(bench, &queue, &mut older, &message(&a, "second")).await;
    bench.commit(older).await;
    let taken = relay.drain(lane).await;
    let of_a: Vec<_> = taken.iter().filter(|body| *body != "other").collect();
    assert_eq!(of_a, ["first", "second"], "of {taken:?}");
}

/// Where nothing is to be taken nothing is settled, so that idle relays write nothing.
pub async fn an_idle_lane_stays_where_it_is<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let other = (0..).map(|n| format!("other-{n}")).find(|a| Lane::of(a.as_bytes()) != lane);
    let mut relay = relay(&queue).await;
    for round in 0..2 {
        put_one(bench, &queue, &a, "1").await;
        relay.drain(lane).await;
        // What happens elsewhere is none of its business.
        put_one(bench, &queue, other.as_deref().expect("there are other lanes"), "2").await;
        let page = relay.take(lane, PAGE).await;
        assert_eq!((page.fresh.len(), page.due.len(), page.is_full), (0, 0, false));
        assert_eq!(&page.end, &relay.at(lane).cursor, "round {round}");
    }
}

/// One question names the lanes that are worth a page: for new messages, and for parked ones that are due.
pub async fn lanes_with_something_to_take_are_named<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let waiting = async |relay: &Relay<B::Queue>| {
        let positions: Vec<_> = relay.held.values().cloned().collect();
        relay.queue.waiting(&positions).await.expect("the queue answers")
    };
    assert_eq!(waiting(&relay).await, []);
    put_one(bench, &queue, &a, "1").await;
    assert_eq!(waiting(&relay).await, [lane]);
    relay.run(lane, failing(&["1"])).await;
    assert_eq!(waiting(&relay).await, [], "it is not due");
    bench.age(&queue, MINUTE).await;
    assert_eq!(waiting(&relay).await, [lane]);
    relay.drain(lane).await;
    assert_eq!(waiting(&relay).await, []);
    assert_eq!(queue.waiting(&[]).await, Ok(vec![]));
}

/// It has no order: its id is its aggregate, and decides its lane.
pub async fn a_message_without_an_aggregate_has_its_id<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let mut relay = relay(&queue).await;
    let plain = NewMessage::new("order.placed", "plain").expect("a valid topic").id(fresh_id());
    let nameless = NewMessage::new("order.placed", "nameless").expect("a valid topic");
    let mut transaction = bench.begin(&queue).await;
    enqueue(bench, &queue, &mut transaction, &plain).await;
    let made = bench.enqueue(&queue, &mut transaction, &nameless).await;
    let made = made.expect("the queue takes it");
    bench.commit(transaction).await;
    for (id, body) in [(plain.id.expect("it was given one"), "plain"), (made, "nameless")] {
        let lane = Lane::of(id.to_string().as_bytes());
        let page = relay.take(lane, PAGE).await;
        let taken = page.fresh.iter().find(|fresh| fresh.message.id == id);
        let taken = taken.expect("it is in the lane of its id");
        assert_eq!(taken.message.aggregate.as_str(), id.to_string());
        assert_eq!(super::body(&taken.message), body);
    }
    assert_eq!(relay.drain_all().await.len(), 2);
}

/// With the same content or another: what was committed first stays as it is.
pub async fn a_repeated_id_is_an_error<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let first = message(&a, "first");
    put(bench, &queue, core::slice::from_ref(&first)).await;
    let other = NewMessage { id: first.id, ..message(&b, "other") };
    for (again, is_delivered) in [(&first, false), (&other, false), (&other, true)] {
        let mut transaction = bench.begin(&queue).await;
        let repeated = bench.enqueue(&queue, &mut transaction, again).await;
        assert!(is_repeated(&repeated), "an id is used once: {repeated:?}");
        bench.roll_back(transaction).await;
        if !is_delivered {
            continue;
        }
        assert_eq!(relay.drain(lane).await, ["first"]);
    }
    let twice = message(&a, "twice");
    let mut transaction = bench.begin(&queue).await;
    enqueue(bench, &queue, &mut transaction, &twice).await;
    let repeated = bench.enqueue(&queue, &mut transaction, &twice).await;
    assert!(is_repeated(&repeated), "also within one transaction: {repeated:?}");
    bench.roll_back(transaction).await;
    assert_eq!(relay.drain(lane).await, no_bodies());
}

/// At its limits a message is kept whole; beyond them it is an error that leaves nothing.
pub async fn messages_are_taken_up_to_their_limits<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let of_bytes = |bytes: usize| {
        let any: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
        NewMessage { body: any, ..message(&a, "") }
    };
    let with_headers = |bytes: usize| message(&a, "").header("x-a", &"v".repeat(bytes - 3));
    let full = [
        of_bytes(0),
        of_bytes(NewMessage::MAX_BODY - 1),
        of_bytes(NewMessage::MAX_BODY),
        with_headers(NewMessage::MAX_HEADERS),
        NewMessage {
            topic: Topic::new(&"ä".repeat(127)).expect("254 bytes"),
            ..message(&a, "'; --\\ \u{1F980}")
        },
    ];
    for wanted in &full {
        put(bench, &queue, core::slice::from_ref(wanted)).await;
        let page = relay.take(lane, PAGE).await;
        let taken = &page.fresh[0].message;
        assert!(taken.body == wanted.body, "a body of {} bytes is kept whole", wanted.body.len());
        assert_eq!((&taken.topic, &taken.headers), (&wanted.topic, &wanted.headers));
        relay.drain(lane).await;
    }
    let long = "a".repeat(255);
    put_one(bench, &queue, &long, "").await;
    let page = relay.take(Lane::of(long.as_bytes()), PAGE).await;
    assert_eq!(page.fresh[0].message.aggregate.as_str(), long);

    let early = Timestamp::from_unix_micros(1_000_000);
    for refused in [
        of_bytes(NewMessage::MAX_BODY + 1),
        with_headers(NewMessage::MAX_HEADERS + 1),
        message(&a, "").header("x a", "v"),
        message(&a, "").header("x-a", "v\r\nx-b: w"),
        message(&a, "").trace(&"0".repeat(256)),
        message(&a, "").not_before(early).expires_at(early),
    ] {
        let mut transaction = bench.begin(&queue).await;
        let enqueued = bench.enqueue(&queue, &mut transaction, &refused).await;
        let is_refused = matches!(enqueued, Err(StoreError::Refused(_)));
        assert!(is_refused, "it is beyond a limit: {enqueued:?}");
        bench.roll_back(transaction).await;
    }
    assert_eq!(relay.drain(lane).await, no_bodies());
}

/// A restart forgets neither where a lane is nor what is parked.
pub async fn lanes_and_parked_messages_survive_a_reopen<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut before = relay(&queue).await;
    put_one(bench, &queue, &a, "a1").await;
    put_one(bench, &queue, &b, "b1").await;
    before.run(lane, failing(&["a1"])).await;
    put_one(bench, &queue, &a, "a2").await;
    let position = before.at(lane).clone();
    drop(before);
    let Some(queue) = bench.reopen(queue).await else { return };
    let mut after = Relay::new(&queue, "billing", StartFrom::Oldest).await;
    after.relay = position.relay;
    after.renew().await;
    assert_eq!(after.at(lane).cursor, position.cursor);
    assert_eq!(after.drain(lane).await, no_bodies(), "one is not due, one waits behind it");
    bench.age(&queue, MINUTE).await;
    assert_eq!(after.drain(lane).await, ["a1", "a2"]);
}

/// Producers and a relay at once: what was committed, nothing else, each producer's in its order.
pub async fn of_racing_producers_everything_is_taken_once_and_in_order<B: QueueBench>(bench: &B) {
    const PRODUCERS: usize = 6;
    const EACH: usize = 15;
    let queue = bench.open().await;
    let Mates { lane, names } = mates::<PRODUCERS>();
    let mut relay = relay(&queue).await;
    let producers = names.clone().map(|name| {
        let (bench, queue) = (bench.clone(), queue.clone());
        async move {
            let mut committed = Vec::new();
            for number in 0..EACH {
                let body = format!("{name}/{number}");
                let mut transaction = bench.begin(&queue).await;
                enqueue(&bench, &queue, &mut transaction, &message(&name, &body)).await;
                if number % 3 == 1 {
                    bench.roll_back(transaction).await;
                } else {
                    bench.commit(transaction).await;
                    committed.push(body);
                }
            }
            committed
        }
    });
    let running = gather(bench, producers);
    let mut running = core::pin::pin!(running);
    let mut taken = Vec::new();
    let committed = loop {
        let ended = core::future::poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(committed) => Poll::Ready(Some(committed)),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Ready(None)
            }
        });
        if let Some(committed) = ended.await {
            break committed;
        }
        yield_now().await;
        taken.extend(relay.drain(lane).await);
    };
    taken.extend(relay.drain(lane).await);
    for (name, committed) in names.iter().zip(committed) {
        let of_producer = |body: &&String| body.split('/').next() == Some(name.as_str());
        let of_producer: Vec<_> = taken.iter().filter(of_producer).cloned().collect();
        assert_eq!(of_producer, committed, "once, and in order");
    }
}

fn is_repeated(enqueued: &Result<MessageId, StoreError>) -> bool {
    matches!(enqueued, Err(StoreError::Repeated(_)))
}

/// Lets other tasks of the same thread run.
async fn yield_now() {
    let mut has_yielded = false;
    core::future::poll_fn(move |context| {
        if core::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
