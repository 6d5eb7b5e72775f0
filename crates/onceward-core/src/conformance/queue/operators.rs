//! What operators change, and what they see.

use alloc::{collections::BTreeSet, vec};

use super::*;
use crate::message::{Aggregate, Topic};

/// A repair is a step of its own: the relay misses once, and proposes again what it did.
pub async fn an_operators_step_lets_the_relay_propose_again<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let dead = put_one(bench, &queue, &a, "a1").await;
    relay.run(lane, refusing(&["a1"])).await;
    let failed = put_one(bench, &queue, &b, "b1").await;
    put_one(bench, &queue, &a, "a2").await;
    let (_, settlement) = relay.open_page(lane, failing(&["b1"])).await;
    assert_eq!(repair(&queue, dead, RepairKind::Redrive).await, Changed::Done);
    let Settled::Fenced(Some(position)) = relay.settle(&settlement).await else {
        panic!("the operator's step came in between, and the relay still holds the lane");
    };
    assert_eq!(
        (position.step, &position.cursor),
        (settlement.from.step + 1, &settlement.from.cursor)
    );
    let again = Settlement { from: position, fence: fresh_fence(), ..settlement };
    assert!(matches!(relay.settle(&again).await, Settled::Moved(_)));
    assert_eq!(shown(&queue, failed).await.attempts, 1);
    assert_eq!(relay.drain(lane).await, ["a1", "a2"]);
}

/// What an operator changed meanwhile stays so, whatever the relay makes of what it read before.
pub async fn an_operators_word_is_not_overwritten<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    for next in [
        Next::Delivered,
        Next::Park { wait: MINUTE, why: "503".into() },
        Next::Die { why: "400".into() },
        Next::Hold { why: "410".into() },
    ] {
        let mut relay = relay(&queue).await;
        let id = put_one(bench, &queue, &a, "a1").await;
        relay.run(lane, failing(&["a1"])).await;
        bench.age(&queue, MINUTE).await;
        let (_, settlement) = relay.open_page(lane, |_| next.clone()).await;
        assert_eq!(repair(&queue, id, RepairKind::Discard).await, Changed::Done);
        let Settled::Fenced(Some(position)) = relay.settle(&settlement).await else {
            panic!("the operator's step came in between, and the relay still holds the lane");
        };
        let again = Settlement { from: position, fence: fresh_fence(), ..settlement };
        assert!(matches!(relay.settle(&again).await, Settled::Moved(_)));
        assert_eq!(state(&queue, id).await, MessageState::Discarded, "{next:?}");
        put(bench, &queue, &[message(&a, "a2"), message(&b, "b2")]).await;
        bench.age(&queue, MINUTE).await;
        assert_eq!(relay.drain(lane).await, ["a2", "b2"]);
        queue.give_back(relay.sink, relay.relay).await.expect("the queue answers");
    }
}

/// Nothing changes, and the answer says what the message is.
pub async fn repairs_that_cannot_be_made_are_refused<B: QueueBench>(bench: &B) {
    use MessageState::{Delivered, Discarded, Expired, Scheduled, Waiting};
    let queue = bench.open().await;
    let Scene { delivered, scheduled, expired, discarded, ahead, dead, .. } =
        scene(bench, &queue).await;
    for (id, kind, is) in [
        (delivered, RepairKind::Redrive, Delivered),
        (delivered, RepairKind::Discard, Delivered),
        (scheduled, RepairKind::Redrive, Scheduled),
        (expired, RepairKind::Redrive, Expired),
        (expired, RepairKind::Discard, Expired),
        (discarded, RepairKind::Redrive, Discarded),
        (discarded, RepairKind::Discard, Discarded),
        (ahead, RepairKind::Redrive, Waiting),
        (ahead, RepairKind::Discard, Waiting),
    ] {
        assert_eq!(repair(&queue, id, kind).await, Changed::Refused(is), "{kind:?}");
        assert_eq!(state(&queue, id).await, is);
    }
    assert_eq!(repair(&queue, fresh_id(), RepairKind::Redrive).await, Changed::Absent);
    let elsewhere = RepairMessage {
        id: dead,
        sink: sink_name("nowhere"),
        kind: RepairKind::Redrive,
        actor: None,
        reason: "a mistake".into(),
    };
    assert_eq!(queue.repair(&elsewhere).await, Ok(Changed::Absent));
    assert_eq!(state(&queue, dead).await, MessageState::Dead);
}

/// Each state as it is, with its attempts and its reason, one line for every sink.
pub async fn messages_are_listed_as_each_sink_has_them<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let scene = scene(bench, &queue).await;
    Relay::new(&queue, "audit", StartFrom::Oldest).await;
    for (id, state, attempts, why) in scene.expected() {
        let shown = queue.show(id).await.expect("the queue answers");
        let sinks: BTreeSet<_> = shown.iter().map(|shown| shown.sink.as_str()).collect();
        assert_eq!(sinks, BTreeSet::from(["audit", "billing"]));
        for one in &shown {
            assert_eq!(one.message.id, id);
            let expected = match one.sink.as_str() {
                "billing" => (state, attempts, why),
                _ => (MessageState::Waiting, 0, ""),
            };
            assert_eq!((one.state, one.attempts, one.why.as_str()), expected, "{}", one.sink);
            let is_parked = one.sink.as_str() == "billing" && id != scene.ahead;
            let waits = matches!(state, MessageState::Waiting | MessageState::Scheduled);
            assert_eq!(one.due.is_some(), is_parked && waits, "{state:?}");
        }
    }
    assert_eq!(queue.show(fresh_id()).await, Ok(vec![]));

    let all = pages(&queue, MessageFilter::default()).await;
    assert_eq!(all.len(), scene.expected().len() * 2, "each once for every sink");
    let filter = MessageFilter { sink: Some(sink_name("billing")), ..MessageFilter::default() };
    let listed = pages(&queue, filter).await;
    let expected: Vec<_> =
        scene.expected().into_iter().map(|(id, state, ..)| (id, state)).collect();
    let listed: Vec<_> = listed.iter().map(|shown| (shown.message.id, shown.state)).collect();
    assert_eq!(listed, expected, "oldest first");
}

/// By state, topic, aggregate and age; a page keeps to its limit, and the next one goes on where it ended.
pub async fn lists_are_filtered_and_paged<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let scene = scene(bench, &queue).await;
    let ids = async |filter: MessageFilter| -> Vec<MessageId> {
        pages(&queue, filter).await.iter().map(|shown| shown.message.id).collect()
    };
    for limit in [1, 2, 0] {
        let all: Vec<_> = scene.expected().into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids(MessageFilter { limit, ..MessageFilter::default() }).await, all);
        for state in MessageState::ALL {
            let filter = MessageFilter { limit, ..of_state(state) };
            let expected = scene.expected().into_iter().filter(|(_, is, ..)| *is == state);
            let expected: Vec<_> = expected.map(|(id, ..)| id).collect();
            assert_eq!(ids(filter).await, expected, "{state:?}, pages of {limit}");
        }
    }
    let filter = MessageFilter { limit: 2, ..MessageFilter::default() };
    assert_eq!(queue.list(&filter).await.expect("the queue answers").messages.len(), 2);

    let other = NewMessage::new("order.shipped", "").expect("a valid topic").id(fresh_id());
    let other = other.aggregate("parcel'7").expect("a valid aggregate");
    bench.age(&queue, HOUR).await;
    put(bench, &queue, core::slice::from_ref(&other)).await;
    let only = vec![other.id.expect("it was given one")];
    let topic = Some(other.topic);
    assert_eq!(ids(MessageFilter { topic, ..MessageFilter::default() }).await, only);
    let aggregate = Some(Aggregate::new("parcel'7").expect("a valid aggregate"));
    assert_eq!(ids(MessageFilter { aggregate, ..MessageFilter::default() }).await, only);
    let older = Some(MINUTE * 30);
    let older = ids(MessageFilter { older, ..MessageFilter::default() }).await;
    assert_eq!(older.len(), scene.expected().len(), "all but the last");
    for nothing in [
        MessageFilter { sink: Some(sink_name("nowhere")), ..MessageFilter::default() },
        MessageFilter { topic: Topic::new("order").ok(), ..MessageFilter::default() },
    ] {
        assert_eq!(ids(nothing).await, vec![]);
    }
    let after = Some("?".into());
    let bad = queue.list(&MessageFilter { after, ..MessageFilter::default() }).await;
    assert!(bad.is_err(), "a page of no list: {bad:?}");
}

/// What metrics and health checks go by.
pub async fn the_condition_counts_what_there_is<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let empty = queue.condition().await.expect("the queue answers");
    assert_eq!((empty.messages, empty.oldest), (0, None));
    assert_eq!((empty.sinks, empty.alarm), (vec![], None));
    let scene = scene(bench, &queue).await;
    bench.age(&queue, HOUR).await;
    let condition = queue.condition().await.expect("the queue answers");
    let there = scene.expected().len() as u64;
    assert!(condition.messages.abs_diff(there) <= there, "about: {}", condition.messages);
    assert!(condition.oldest.is_some_and(|age| age >= HOUR && age < HOUR * 3));
    assert_eq!(condition.alarm, None);
    let [sink] = condition.sinks.as_slice() else { panic!("one sink: {:?}", condition.sinks) };
    assert_eq!(sink.name.as_str(), "billing");
    assert_eq!((sink.waiting, sink.scheduled, sink.held, sink.dead), (2, 1, 1, 1));
    assert_eq!(sink.lag, 6, "those, and one that the lane has not reached");
    assert!(sink.oldest_waiting.is_some_and(|age| age >= HOUR && age < HOUR * 3));
}

/// One message of every state at the sink `billing`.
struct Scene {
    delivered: MessageId,
    waiting: MessageId,
    behind: MessageId,
    scheduled: MessageId,
    expired: MessageId,
    dead: MessageId,
    discarded: MessageId,
    held: MessageId,
    /// The lane has not reached it.
    ahead: MessageId,
}

impl Scene {
    /// What each is at the sink, in the order of their enqueueing.
    fn expected(&self) -> [(MessageId, MessageState, u32, &'static str); 9] {
        [
            (self.delivered, MessageState::Delivered, 0, ""),
            (self.waiting, MessageState::Waiting, 1, "503"),
            (self.behind, MessageState::Waiting, 0, ""),
            (self.scheduled, MessageState::Scheduled, 0, ""),
            (self.expired, MessageState::Expired, 0, ""),
            (self.dead, MessageState::Dead, 1, "400"),
            (self.discarded, MessageState::Discarded, 1, "400"),
            (self.held, MessageState::Held, 1, "410"),
            (self.ahead, MessageState::Waiting, 0, ""),
        ]
    }
}

async fn scene<B: QueueBench>(bench: &B, queue: &B::Queue) -> Scene {
    let mut relay = relay(queue).await;
    let Mates { lane, names: [a, b, c, d, e, f] } = mates();
    let now = now(&relay, lane).await;
    let scheduled = message(&c, "scheduled").not_before(now.plus(HOUR * 24));
    let expired = message(&c, "expired").expires_at(now.minus(MINUTE));
    let scene = Scene {
        delivered: put_one(bench, queue, &a, "delivered").await,
        waiting: put_one(bench, queue, &b, "waiting").await,
        behind: put_one(bench, queue, &b, "behind").await,
        scheduled: {
            put(bench, queue, core::slice::from_ref(&scheduled)).await;
            scheduled.id.expect("it was given one")
        },
        expired: {
            put(bench, queue, core::slice::from_ref(&expired)).await;
            expired.id.expect("it was given one")
        },
        dead: put_one(bench, queue, &d, "dead").await,
        discarded: put_one(bench, queue, &e, "discarded").await,
        held: put_one(bench, queue, &f, "held").await,
        ahead: fresh_id(),
    };
    let answer = |message: &Message| match body(message).as_str() {
        "waiting" => Next::Park { wait: HOUR * 48, why: "503".into() },
        "dead" | "discarded" => Next::Die { why: "400".into() },
        "held" => Next::Hold { why: "410".into() },
        "delivered" => Next::Delivered,
        other => panic!("{other} is not sent"),
    };
    assert_eq!(relay.run(lane, answer).await.len(), 5);
    assert_eq!(repair(queue, scene.discarded, RepairKind::Discard).await, Changed::Done);
    put(bench, queue, &[message(&a, "ahead").id(scene.ahead)]).await;
    scene
}

/// All pages of a list, one after the other.
async fn pages<Q: InspectQueue>(queue: &Q, mut filter: MessageFilter) -> Vec<ShownMessage> {
    let mut all = Vec::new();
    for _ in 0..1_000 {
        let page = queue.list(&filter).await.expect("the queue answers");
        let most = if filter.limit == 0 { 100 } else { filter.limit as usize };
        assert!(page.messages.len() <= most, "a page keeps to its limit");
        all.extend(page.messages);
        filter.after = page.next;
        if filter.after.is_none() {
            return all;
        }
    }
    panic!("a list without an end: {filter:?}");
}
