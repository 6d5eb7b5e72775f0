//! Messages that a lane has passed without delivering them.

use super::*;
use crate::Timestamp;

/// Its entry is made by the step that passes it, and ends with its delivery.
pub async fn a_failed_message_is_parked_with_its_step<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let id = put_one(bench, &queue, &a, "1").await;
    assert_eq!(relay.run(lane, failing(&["1"])).await, ["1"]);
    let entry = shown(&queue, id).await;
    assert_eq!((entry.state, entry.attempts), (MessageState::Waiting, 1));
    assert_eq!(entry.why, "503");
    assert_eq!(relay.drain(lane).await, no_bodies(), "it is not due");

    bench.age(&queue, MINUTE).await;
    let page = relay.take(lane, PAGE).await;
    assert_eq!(page.due.len(), 1);
    assert_eq!((page.due[0].attempts, page.due[0].message.id), (1, id));
    assert_eq!(page.end, relay.at(lane).cursor, "nothing is new");
    assert_eq!(relay.run(lane, failing(&["1"])).await, ["1"]);
    assert_eq!(shown(&queue, id).await.attempts, 2);

    bench.age(&queue, MINUTE).await;
    assert_eq!(relay.drain(lane).await, ["1"]);
    assert_eq!(state(&queue, id).await, MessageState::Delivered);
    bench.age(&queue, HOUR).await;
    assert_eq!(relay.drain(lane).await, no_bodies());
}

/// Later ones of its aggregate wait behind it; all others of its lane go on.
pub async fn a_parked_message_stops_its_aggregate_only<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    put(bench, &queue, &[message(&a, "a1"), message(&b, "b1"), message(&a, "a2")]).await;
    assert_eq!(relay.run(lane, failing(&["a1"])).await, ["a1", "b1"]);
    put(bench, &queue, &[message(&a, "a3"), message(&b, "b2")]).await;
    let page = relay.take(lane, PAGE).await;
    let blocked: Vec<_> = page.fresh.iter().map(|fresh| fresh.is_blocked).collect();
    assert_eq!(blocked, [true, false]);
    assert_eq!(relay.drain(lane).await, ["b2"]);
    bench.age(&queue, MINUTE).await;
    assert_eq!(relay.drain(lane).await, ["a1", "a2", "a3"]);
}

/// Behind one that is not due, none is; when it is, all are, and new ones go on behind them at once.
pub async fn parked_messages_are_due_in_their_order<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    put(bench, &queue, &[message(&a, "a1"), message(&a, "a2"), message(&b, "b1")]).await;
    relay.run(lane, failing(&["a1", "b1"])).await;
    put(bench, &queue, &[message(&a, "a3"), message(&b, "b2")]).await;
    relay.run(lane, |_| Next::Delivered).await;
    assert_eq!(relay.take(lane, PAGE).await.due, [], "their heads are not due");

    bench.age(&queue, MINUTE).await;
    put(bench, &queue, &[message(&a, "a4")]).await;
    let page = relay.take(lane, PAGE).await;
    let due: Vec<_> = page.due.iter().map(|due| body(&due.message)).collect();
    assert_eq!(due, ["a1", "a2", "b1", "a3", "b2"]);
    assert!(page.due.is_sorted_by_key(|due| due.place), "places are in order");
    assert!(!page.fresh[0].is_blocked, "all that is before it is due in this page");
    assert_eq!(relay.run(lane, failing(&["a2"])).await, ["a1", "a2", "b1", "b2"]);
    assert_eq!(relay.take(lane, PAGE).await.due, [], "a3 and a4 wait behind a2");
    bench.age(&queue, MINUTE).await;
    assert_eq!(relay.drain(lane).await, ["a2", "a3", "a4"]);
}

/// Short pages: first what is due, then what is new.
pub async fn a_page_has_due_ones_first_and_keeps_to_its_limit<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    put(bench, &queue, &[message(&a, "a1"), message(&a, "a2"), message(&a, "a3")]).await;
    relay.run(lane, failing(&["a1"])).await;
    bench.age(&queue, MINUTE).await;
    put(bench, &queue, &[message(&b, "b1"), message(&b, "b2"), message(&a, "a4")]).await;
    for (limit, due, fresh) in [(1, 1, 0), (2, 2, 0), (4, 3, 1), (5, 3, 2), (7, 3, 3)] {
        let page = relay.take(lane, limit).await;
        assert_eq!((page.due.len(), page.fresh.len()), (due, fresh), "a page of {limit}");
        assert!(page.is_full || limit > 6, "there is more than {limit}");
        assert!(!page.is_full || limit < 7, "there is no more than {limit}");
    }
    let mut sent = bodies(&relay.run_by(lane, 2, |_| Next::Delivered).await);
    assert_eq!(sent.len(), 6);
    sent.retain(|body| body.starts_with('a'));
    assert_eq!(sent, ["a1", "a2", "a3", "a4"]);
}

/// It is parked when the lane reaches it, lets others pass, and is sent when its time has come.
pub async fn a_scheduled_message_has_no_order_until_it_is_due<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let later = now(&relay, lane).await.plus(HOUR);
    let scheduled = message(&a, "later").not_before(later);
    put(bench, &queue, &[message(&a, "a1"), scheduled.clone(), message(&a, "a2")]).await;
    assert_eq!(relay.drain(lane).await, ["a1", "a2"]);
    let entry = shown(&queue, scheduled.id.expect("it was given one")).await;
    assert_eq!((entry.state, entry.attempts), (MessageState::Scheduled, 0));
    assert_eq!(entry.due, Some(later));
    put_one(bench, &queue, &a, "a3").await;
    assert!(!relay.take(lane, PAGE).await.fresh[0].is_blocked);
    bench.age(&queue, MINUTE * 30).await;
    assert_eq!(relay.drain(lane).await, ["a3"]);
    bench.age(&queue, MINUTE * 30).await;
    put_one(bench, &queue, &a, "a4").await;
    assert_eq!(relay.drain(lane).await, ["later", "a4"]);
    let past = message(&a, "past").not_before(later.minus(HOUR * 24));
    put(bench, &queue, &[past, message(&a, "a5")]).await;
    assert_eq!(relay.drain(lane).await, ["past", "a5"], "its time had come before it was enqueued");
}

/// From its time on it has its place in the order: behind a dead letter it waits, and one behind it waits.
pub async fn a_scheduled_message_waits_behind_what_blocks_its_aggregate<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let later = now(&relay, lane).await.plus(MINUTE);
    let scheduled = message(&a, "later").not_before(later);
    put(bench, &queue, &[scheduled.clone(), message(&a, "a1")]).await;
    let dead = put_one(bench, &queue, &a, "a2").await;
    assert_eq!(relay.run(lane, refusing(&["a2"])).await, ["a1", "a2"]);
    bench.age(&queue, MINUTE).await;
    assert_eq!(relay.drain(lane).await, no_bodies(), "a2 is in its way");
    let scheduled = scheduled.id.expect("it was given one");
    assert_eq!(state(&queue, scheduled).await, MessageState::Scheduled);
    assert_eq!(repair(&queue, dead, RepairKind::Discard).await, Changed::Done);
    relay.renew().await;
    assert_eq!(relay.run(lane, failing(&["later"])).await, ["later"]);
    assert_eq!(state(&queue, scheduled).await, MessageState::Waiting);
    put_one(bench, &queue, &a, "a3").await;
    assert_eq!(relay.drain(lane).await, no_bodies(), "a message that failed blocks");
    bench.age(&queue, MINUTE).await;
    assert_eq!(relay.drain(lane).await, ["later", "a3"]);
}

/// It is never sent, whether new or parked, and its aggregate goes on.
pub async fn an_expired_message_is_over_and_blocks_nothing<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let soon = now(&relay, lane).await.plus(MINUTE);
    let [new, parked] = [message(&a, "new"), message(&a, "parked")].map(|m| m.expires_at(soon));
    put(bench, &queue, core::slice::from_ref(&parked)).await;
    relay.run(lane, failing(&["parked"])).await;
    put(bench, &queue, core::slice::from_ref(&new)).await;
    bench.age(&queue, MINUTE).await;
    put_one(bench, &queue, &a, "a1").await;
    assert_eq!(relay.drain(lane).await, ["a1"]);
    for id in [new.id, parked.id] {
        let id = id.expect("it was given one");
        assert_eq!(state(&queue, id).await, MessageState::Expired);
    }
    bench.age(&queue, HOUR).await;
    put_one(bench, &queue, &a, "a2").await;
    assert_eq!(relay.drain(lane).await, ["a2"]);
}

/// It stops its aggregate for as long as it takes, and is then the first.
pub async fn a_dead_letter_blocks_its_aggregate_until_it_is_sent_again<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    put(bench, &queue, &[message(&a, "a1"), message(&a, "a2"), message(&b, "b1")]).await;
    let last = put_one(bench, &queue, &a, "a3").await;
    assert_eq!(relay.run(lane, refusing(&["a2"])).await, ["a1", "a2", "b1"]);
    bench.age(&queue, HOUR * 24).await;
    put_one(bench, &queue, &a, "a4").await;
    assert_eq!(relay.drain(lane).await, no_bodies());
    let dead = of_state(MessageState::Dead);
    let listed = queue.list(&dead).await.expect("the queue answers").messages;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].attempts, listed[0].why.as_str(), listed[0].due), (1, "400", None));
    assert_eq!(repair(&queue, listed[0].message.id, RepairKind::Redrive).await, Changed::Done);
    let again = shown(&queue, listed[0].message.id).await;
    assert_eq!((again.state, again.attempts), (MessageState::Waiting, 0), "from the first attempt");
    assert_eq!(state(&queue, last).await, MessageState::Waiting);
    relay.renew().await;
    assert_eq!(relay.drain(lane).await, ["a2", "a3", "a4"]);
}

/// Dead, waiting or scheduled: it is never sent, and its aggregate goes on.
pub async fn a_discarded_message_blocks_nothing<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b, c] } = mates();
    let mut relay = relay(&queue).await;
    let later = now(&relay, lane).await.plus(MINUTE);
    let heads = [message(&a, "a1"), message(&b, "b1"), message(&c, "c1").not_before(later)];
    put(bench, &queue, &heads).await;
    put(bench, &queue, &[message(&a, "a2"), message(&b, "b2"), message(&c, "c2")]).await;
    let answer = |message: &Message| match body(message).as_str() {
        "a1" => Next::Die { why: "400".into() },
        "b1" => Next::Park { wait: MINUTE, why: "503".into() },
        _ => Next::Delivered,
    };
    assert_eq!(relay.run(lane, answer).await, ["a1", "b1", "c2"]);
    for head in &heads {
        let id = head.id.expect("it was given one");
        assert_eq!(repair(&queue, id, RepairKind::Discard).await, Changed::Done);
        assert_eq!(state(&queue, id).await, MessageState::Discarded);
    }
    relay.renew().await;
    assert_eq!(relay.drain(lane).await, ["a2", "b2"]);
    bench.age(&queue, HOUR).await;
    assert_eq!(relay.drain(lane).await, no_bodies());
}

/// Where the operator chose to skip dead letters, later ones of the aggregate go on.
pub async fn a_skipped_dead_letter_blocks_nothing<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    relay.dead_letters = DeadLetters::Skip;
    let dead = put_one(bench, &queue, &a, "a1").await;
    put_one(bench, &queue, &a, "a2").await;
    assert_eq!(relay.run(lane, refusing(&["a1"])).await, ["a1", "a2"]);
    put_one(bench, &queue, &a, "a3").await;
    assert!(!relay.take(lane, PAGE).await.fresh[0].is_blocked);
    assert_eq!(relay.drain(lane).await, ["a3"]);
    assert_eq!(state(&queue, dead).await, MessageState::Dead);
    assert_eq!(repair(&queue, dead, RepairKind::Redrive).await, Changed::Done);
    relay.renew().await;
    assert_eq!(relay.drain(lane).await, ["a1"]);
}

/// It is dropped by no time: it waits until an operator says that its endpoint is well, or never will be.
pub async fn a_held_message_waits_for_an_operator<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let [held, other] =
        [put_one(bench, &queue, &a, "a1").await, put_one(bench, &queue, &b, "b1").await];
    put(bench, &queue, &[message(&a, "a2"), message(&b, "b2")]).await;
    let gone = answering(&["a1", "b1"], || Next::Hold { why: "410".into() });
    assert_eq!(relay.run(lane, gone).await, ["a1", "b1"]);
    let entry = shown(&queue, held).await;
    assert_eq!((entry.state, entry.attempts, entry.due), (MessageState::Held, 1, None));
    assert_eq!(entry.why, "410");
    bench.age(&queue, HOUR * 24 * 365).await;
    relay.renew().await;
    assert_eq!(relay.drain(lane).await, no_bodies());
    assert_eq!(repair(&queue, held, RepairKind::Redrive).await, Changed::Done);
    assert_eq!(repair(&queue, other, RepairKind::Discard).await, Changed::Done);
    relay.renew().await;
    assert_eq!(relay.drain(lane).await, ["a1", "a2", "b2"]);
}

/// The queue's own time.
pub(super) async fn now<Q: InspectQueue + Clone>(relay: &Relay<Q>, lane: Lane) -> Timestamp {
    relay.take(lane, 1).await.read_at
}
