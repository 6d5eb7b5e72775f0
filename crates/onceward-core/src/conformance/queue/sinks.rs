//! Several sinks, and what is deleted.

use super::*;
use crate::message::Sweep;

/// What one sink does not take is none of the other's business.
pub async fn two_sinks_are_independent<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut billing = relay(&queue).await;
    let mut audit = Relay::new(&queue, "audit", StartFrom::Oldest).await;
    assert_eq!(audit.renew().await, usize::from(Lane::COUNT), "each sink has its lanes");
    assert_ne!(audit.sink, billing.sink);
    let dead = put_one(bench, &queue, &a, "a1").await;
    put(bench, &queue, &[message(&a, "a2"), message(&b, "b1")]).await;
    assert_eq!(billing.run(lane, refusing(&["a1"])).await, ["a1", "b1"]);
    assert_eq!(audit.run(lane, failing(&["b1"])).await, ["a1", "a2", "b1"]);
    let before = audit.at(lane).clone();
    assert_eq!(repair(&queue, dead, RepairKind::Redrive).await, Changed::Done);
    audit.renew().await;
    assert_eq!(audit.at(lane), &before, "the repair was the other sink's");
    assert_eq!(audit.drain(lane).await, no_bodies());
    billing.renew().await;
    assert_eq!(billing.drain(lane).await, ["a1", "a2"]);
    bench.age(&queue, MINUTE).await;
    assert_eq!(billing.drain(lane).await, no_bodies());
    assert_eq!(audit.drain(lane).await, ["b1"]);
}

/// From the oldest message that is there, or with what commits from now on.
pub async fn a_new_sink_begins_where_it_is_told<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    put_one(bench, &queue, &a, "before any sink").await;
    let mut billing = relay(&queue).await;
    assert_eq!(billing.drain(lane).await, ["before any sink"]);
    put_one(bench, &queue, &a, "before").await;
    let mut from_now = Relay::new(&queue, "from-now", StartFrom::Now).await;
    let mut from_oldest = Relay::new(&queue, "from-oldest", StartFrom::Oldest).await;
    put_one(bench, &queue, &a, "after").await;
    from_now.renew().await;
    from_oldest.renew().await;
    assert_eq!(from_now.drain(lane).await, ["after"]);
    assert_eq!(from_oldest.drain(lane).await, ["before any sink", "before", "after"]);
    assert_eq!(billing.drain(lane).await, ["before", "after"]);
}

/// A transaction that was open when the sink was made, and commits later, is its as well.
pub async fn a_sink_from_now_on_gets_what_commits_later<B: QueueBench>(bench: &B) {
    if !bench.is_concurrent() {
        return;
    }
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut open = bench.begin(&queue).await;
    enqueue(bench, &queue, &mut open, &message(&a, "open")).await;
    put_one(bench, &queue, &b, "before").await;
    let mut from_now = Relay::new(&queue, "from-now", StartFrom::Now).await;
    from_now.renew().await;
    bench.commit(open).await;
    put_one(bench, &queue, &b, "after").await;
    assert_eq!(from_now.drain(lane).await, ["open", "after"]);
}

/// A sink that is opened again is the same one, wherever it was told to begin.
pub async fn a_sink_keeps_its_place<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut first = relay(&queue).await;
    put_one(bench, &queue, &a, "1").await;
    first.drain(lane).await;
    put_one(bench, &queue, &a, "2").await;
    queue.give_back(first.sink, first.relay).await.expect("the queue answers");
    let other = bench.another(&queue).await;
    for from in [StartFrom::Now, StartFrom::Oldest] {
        let mut again = Relay::new(&other, "billing", from).await;
        assert_eq!(again.sink, first.sink);
        again.renew().await;
        let page = again.take(lane, PAGE).await;
        assert_eq!(page.fresh.len(), 1, "it is where it was");
        assert_eq!(body(&page.fresh[0].message), "2");
        queue.give_back(again.sink, again.relay).await.expect("the queue answers");
    }
}

/// Its place and its parked messages go; of its name a new one can be made.
pub async fn a_removed_sink_is_forgotten<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut billing = relay(&queue).await;
    let mut audit = Relay::new(&queue, "audit", StartFrom::Oldest).await;
    audit.renew().await;
    put(bench, &queue, &[message(&a, "a1"), message(&a, "a2")]).await;
    audit.run(lane, refusing(&["a1"])).await;
    put_one(bench, &queue, &b, "b1").await;
    let (_, settlement) = audit.open_page(lane, |_| Next::Delivered).await;

    assert_eq!(queue.remove_sink(&sink_name("audit")).await, Ok(true));
    assert_eq!(queue.remove_sink(&sink_name("audit")).await, Ok(false), "it is gone");
    assert_eq!(audit.settle(&settlement).await, Settled::Fenced(None));
    let condition = queue.condition().await.expect("the queue answers");
    let names: Vec<_> = condition.sinks.iter().map(|sink| sink.name.as_str()).collect();
    assert_eq!(names, ["billing"]);
    assert_eq!(billing.drain(lane).await, ["a1", "a2", "b1"], "the other one goes on");
    bench.age(&queue, HOUR).await;
    assert_eq!(sweep(&queue, MINUTE).await, 3, "it is no longer waited for");

    let mut anew = Relay::new(&queue, "audit", StartFrom::Oldest).await;
    anew.renew().await;
    put_one(bench, &queue, &a, "a3").await;
    assert_eq!(anew.drain(lane).await, ["a3"], "nothing is parked any more");
}

/// What one sink has not passed stays, however old it is.
pub async fn a_sweep_deletes_what_every_sink_has_passed<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut billing = relay(&queue).await;
    let mut audit = Relay::new(&queue, "audit", StartFrom::Oldest).await;
    audit.renew().await;
    let id = put_one(bench, &queue, &a, "1").await;
    put(bench, &queue, &[message(&a, "2"), message(&a, "3")]).await;
    billing.drain(lane).await;
    bench.age(&queue, HOUR).await;
    assert_eq!(sweep(&queue, MINUTE).await, 0, "the other sink has not got them");
    assert_eq!(audit.drain(lane).await, ["1", "2", "3"]);
    assert_eq!(sweep(&queue, MINUTE).await, 3);
    assert_eq!(queue.show(id).await, Ok(vec![]));
    put_one(bench, &queue, &a, "4").await;
    for relay in [&mut billing, &mut audit] {
        assert_eq!(relay.drain(lane).await, ["4"], "a sweep disturbs no lane");
    }
    let swept = put_one_again(bench, &queue, &a, id).await;
    assert!(swept, "with the message its id is forgotten");
}

/// The first sink may come later than the first messages, and begin with the oldest.
pub async fn without_a_sink_nothing_is_swept<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    put_one(bench, &queue, &a, "1").await;
    bench.age(&queue, HOUR).await;
    assert_eq!(sweep(&queue, MINUTE).await, 0);
    assert_eq!(relay(&queue).await.drain(lane).await, ["1"]);
}

/// What is younger than the retention stays, and one sweep deletes no more than it is asked to.
pub async fn a_sweep_keeps_the_retention_and_its_limit<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    for body in ["1", "2", "3", "4", "5"] {
        put_one(bench, &queue, &a, body).await;
    }
    relay.drain(lane).await;
    bench.age(&queue, HOUR).await;
    put_one(bench, &queue, &a, "6").await;
    relay.drain(lane).await;
    assert_eq!(sweep(&queue, HOUR * 2).await, 0);
    for expected in [2, 2, 1, 0] {
        let Sweep { messages, .. } = queue.sweep(MINUTE * 30, 2).await.expect("the queue answers");
        assert_eq!(messages, expected);
    }
    assert_eq!(queue.condition().await.map(|condition| condition.messages > 0), Ok(true));
}

/// Waiting, scheduled, held and dead ones stay for as long as it takes; what is over goes.
pub async fn a_sweep_keeps_what_is_parked<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b, c, d, e] } = mates();
    let mut relay = relay(&queue).await;
    let now = now(&relay, lane).await;
    let kept = [
        message(&a, "waiting"),
        message(&a, "behind"),
        message(&b, "dead"),
        message(&c, "held"),
        message(&d, "scheduled").not_before(now.plus(HOUR * 24 * 3)),
    ];
    put(bench, &queue, &kept).await;
    let over = [
        message(&e, "delivered"),
        message(&d, "expired").expires_at(now.minus(MINUTE)),
        message(&e, "discarded"),
    ];
    put(bench, &queue, &over).await;
    let answer = |message: &Message| match body(message).as_str() {
        "waiting" => Next::Park { wait: HOUR * 24 * 3, why: "503".into() },
        "held" => Next::Hold { why: "410".into() },
        "dead" | "discarded" => Next::Die { why: "400".into() },
        _ => Next::Delivered,
    };
    relay.run(lane, answer).await;
    let id = |message: &NewMessage| message.id.expect("it was given one");
    assert_eq!(repair(&queue, id(&over[2]), RepairKind::Discard).await, Changed::Done);
    bench.age(&queue, HOUR * 24 * 2).await;
    assert_eq!(sweep(&queue, HOUR).await, 3);
    for message in &kept {
        assert_eq!(queue.show(id(message)).await.map(|shown| shown.len()), Ok(1));
    }
    for message in &over {
        assert_eq!(queue.show(id(message)).await, Ok(vec![]));
    }

    bench.age(&queue, HOUR * 24).await;
    for message in &kept[2..4] {
        assert_eq!(repair(&queue, id(message), RepairKind::Redrive).await, Changed::Done);
    }
    relay.renew().await;
    let mut sent = relay.drain(lane).await;
    sent.sort();
    assert_eq!(sent, ["behind", "dead", "held", "scheduled", "waiting"]);
    assert_eq!(sweep(&queue, HOUR).await, 5, "they are delivered now");
}

/// Sweeps until nothing is left to sweep, and counts the messages.
async fn sweep<Q: InspectQueue>(queue: &Q, retain: Duration) -> u32 {
    let mut messages = 0;
    for _ in 0..100 {
        let swept = queue.sweep(retain, 1_000).await.expect("the queue answers");
        messages += swept.messages;
        if swept == Sweep::default() {
            break;
        }
    }
    messages
}

async fn put_one_again<B: QueueBench>(
    bench: &B,
    queue: &B::Queue,
    aggregate: &str,
    id: MessageId,
) -> bool {
    let mut transaction = bench.begin(queue).await;
    let again = message(aggregate, "again").id(id);
    let is_taken = bench.enqueue(queue, &mut transaction, &again).await.is_ok();
    bench.roll_back(transaction).await;
    is_taken
}
