//! How a lane moves: by one step at a time, and only from the step that is the newest.

use super::*;
use crate::message::{Advance, ParkChange, Parking};

/// The step that a settlement appends is where the lane is then.
pub async fn a_settlement_moves_the_lane<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    put_one(bench, &queue, &a, "1").await;
    let (_, settlement) = relay.open_page(lane, |_| Next::Delivered).await;
    let Settled::Moved(position) = relay.settle(&settlement).await else {
        panic!("the only owner settles");
    };
    assert_eq!(position.step, settlement.from.step + 1, "one step further");
    assert_eq!(position.fence, settlement.fence);
    assert_eq!(Advance::Past(position.cursor.clone()), settlement.advance);
    let ids = |position: &Position| (position.sink, position.lane, position.relay);
    assert_eq!(ids(&position), ids(&settlement.from));
    relay.renew().await;
    assert_eq!(relay.at(lane), &position, "the next lease says the same");

    // Only a part of the page, for the sink went down.
    put(bench, &queue, &[message(&a, "2"), message(&a, "3")]).await;
    let page = relay.take(lane, PAGE).await;
    let advance = Advance::Through { opened: page.opened.clone(), place: page.fresh[0].place };
    let from = relay.at(lane).clone();
    let part = Settlement { from, fence: fresh_fence(), advance, changes: Vec::new() };
    assert!(matches!(relay.settle(&part).await, Settled::Moved(_)));
    assert_eq!(relay.drain(lane).await, ["3"], "no more than that part was passed");
}

/// Of two settlements from one step the second changes nothing: no place, no parked entry.
pub async fn a_fenced_settlement_changes_nothing<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let first = put_one(bench, &queue, &a, "a1").await;
    put_one(bench, &queue, &b, "b1").await;
    let (_, late) = relay.open_page(lane, refusing(&["a1"])).await;
    let (_, quick) = relay.open_page(lane, |_| Next::Delivered).await;
    assert!(matches!(relay.settle(&quick).await, Settled::Moved(_)));
    put_one(bench, &queue, &a, "a2").await;
    for _ in 0..2 {
        assert_eq!(relay.settle(&late).await, Settled::Fenced(None), "the lane is elsewhere");
    }
    assert_eq!(state(&queue, first).await, MessageState::Delivered);
    let held = relay.at(lane).clone();
    relay.renew().await;
    assert_eq!(relay.at(lane), &held, "it did not move");
    assert_eq!(relay.drain(lane).await, ["a2"], "nothing is in its way");
}

/// The same settlement once more is the same step, and parks nothing twice.
pub async fn a_lost_reply_is_recognised_by_its_fence<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let id = put_one(bench, &queue, &a, "a1").await;
    put_one(bench, &queue, &b, "b1").await;
    let (_, settlement) = relay.open_page(lane, failing(&["a1"])).await;
    let first = relay.settle(&settlement).await;
    assert!(matches!(first, Settled::Moved(_)));
    let entry = shown(&queue, id).await;
    assert_eq!(relay.settle(&settlement).await, first, "the reply was lost");
    assert_eq!(shown(&queue, id).await, entry, "it was made once");

    bench.age(&queue, MINUTE).await;
    let (_, again) = relay.open_page(lane, |_| Next::Delivered).await;
    let second = relay.settle(&again).await;
    assert!(matches!(second, Settled::Moved(_)));
    assert_eq!(relay.settle(&again).await, second, "also when only parked ones change");
    assert_eq!(state(&queue, id).await, MessageState::Delivered);
}

/// An operator's step came after the one whose reply was lost: it was made all the same.
pub async fn a_lost_reply_is_recognised_behind_an_operators_step<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut relay = relay(&queue).await;
    let dead = put_one(bench, &queue, &a, "a1").await;
    relay.run(lane, failing(&["a1"])).await;
    put_one(bench, &queue, &b, "b1").await;
    bench.age(&queue, MINUTE).await;
    let (_, settlement) = relay.open_page(lane, refusing(&["a1"])).await;
    let Settled::Moved(moved) = relay.settle(&settlement).await else {
        panic!("the only owner settles");
    };
    assert_eq!(repair(&queue, dead, RepairKind::Redrive).await, Changed::Done);
    match relay.settle(&settlement).await {
        Settled::Moved(now) => {
            assert_eq!((now.step, &now.cursor), (moved.step + 1, &moved.cursor), "the newest step");
        }
        Settled::Fenced(position) => panic!("its fence is that of the next step: {position:?}"),
    }
    assert_eq!(state(&queue, dead).await, MessageState::Waiting, "the operator's word stays");
    assert_eq!(relay.drain(lane).await, ["a1"]);
}

/// However many settle from one step: one step is appended.
pub async fn of_50_settlements_one_is_made<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut relay = relay(&queue).await;
    let id = put_one(bench, &queue, &a, "1").await;
    let page = relay.take(lane, PAGE).await;
    let other = bench.another(&queue).await;
    let tasks = (0..50_u32).map(|number| {
        let queue = if number % 2 == 0 { queue.clone() } else { other.clone() };
        let fresh = &page.fresh[0];
        let change = ParkChange {
            place: fresh.place,
            id,
            aggregate: fresh.message.aggregate.clone(),
            was_parked: false,
            to: Parking::Dead { attempts: number, why: String::new(), is_skipped: false },
        };
        let settlement = Settlement {
            from: relay.at(lane).clone(),
            fence: fresh_fence(),
            advance: Advance::Past(page.end.clone()),
            changes: vec![change],
        };
        async move { (number, queue.settle(&settlement).await.expect("the queue answers")) }
    });
    let settled = gather(bench, tasks).await;
    let made: Vec<_> =
        settled.iter().filter(|(_, settled)| matches!(settled, Settled::Moved(_))).collect();
    let [(number, Settled::Moved(position))] = made.as_slice() else {
        panic!("one of them moves the lane: {settled:?}");
    };
    assert_eq!(shown(&queue, id).await.attempts, *number, "its entry is that of the one made");
    relay.renew().await;
    assert_eq!(relay.at(lane), position);
}

/// The relay that takes a lane over appends a step: whatever the owner before still settles misses.
pub async fn a_take_over_fences_the_owner_before<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut zombie = Relay::new(&queue, "billing", StartFrom::Oldest).await;
    zombie.lease = MINUTE * 3;
    assert_eq!(zombie.renew().await, usize::from(Lane::COUNT));
    let parked = put_one(bench, &queue, &a, "a1").await;
    zombie.run(lane, failing(&["a1"])).await;
    put_one(bench, &queue, &b, "b1").await;
    bench.age(&queue, MINUTE).await;
    let (sent, settlement) = zombie.open_page(lane, refusing(&["a1"])).await;
    assert_eq!(bodies(&sent), ["a1", "b1"]);
    bench.age(&queue, MINUTE * 2).await;

    let mut owner = relay_of(bench, &queue).await;
    assert_eq!(owner.renew().await, usize::from(Lane::COUNT), "the leases are over");
    let (before, after) = (zombie.at(lane), owner.at(lane));
    assert_eq!(after.step, before.step + 1, "a take-over is a step");
    assert_ne!(after.fence, before.fence);
    assert_eq!(after.cursor, before.cursor);

    assert_eq!(zombie.settle(&settlement).await, Settled::Fenced(None));
    assert_eq!(state(&queue, parked).await, MessageState::Waiting);
    assert_eq!(owner.drain(lane).await, ["a1", "b1"]);
    assert_eq!(zombie.settle(&settlement).await, Settled::Fenced(None));
    assert_eq!(state(&queue, parked).await, MessageState::Delivered);
}

/// The step that a zombie expects may be gone: it must not be taken for one that never was followed.
pub async fn a_zombie_misses_also_when_its_steps_are_cleaned_up<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a, b] } = mates();
    let mut zombie = Relay::new(&queue, "billing", StartFrom::Oldest).await;
    zombie.lease = MINUTE;
    zombie.renew().await;
    let ids = [put_one(bench, &queue, &a, "a1").await, put_one(bench, &queue, &b, "b1").await];
    let (_, settlement) = zombie.open_page(lane, refusing(&["a1", "b1"])).await;

    bench.age(&queue, HOUR * 3).await;
    let mut owner = relay_of(bench, &queue).await;
    owner.renew().await;
    owner.drain(lane).await;
    put_one(bench, &queue, &a, "a2").await;
    owner.drain(lane).await;
    bench.age(&queue, HOUR * 3).await;
    // A queue that keeps the newest step alone has none to delete.
    for _ in 0..100 {
        let sweep = queue.sweep(HOUR * 24, 1_000).await.expect("the queue answers");
        if sweep.steps == 0 {
            break;
        }
    }

    assert_eq!(zombie.settle(&settlement).await, Settled::Fenced(None));
    for id in ids {
        assert_eq!(state(&queue, id).await, MessageState::Delivered);
    }
    let held = owner.at(lane).clone();
    owner.renew().await;
    let place = |position: &Position| (position.step, position.fence, position.cursor.clone());
    assert_eq!(place(owner.at(lane)), place(&held), "the newest step is kept");
    assert_eq!(owner.drain(lane).await, no_bodies());
}

/// A second relay of the same sink, on another handle.
pub(super) async fn relay_of<B: QueueBench>(bench: &B, queue: &B::Queue) -> Relay<B::Queue> {
    Relay::new(&bench.another(queue).await, "billing", StartFrom::Oldest).await
}
