//! Who holds which lane.

use alloc::collections::BTreeSet;

use super::{settlements::relay_of, *};

const ALL: usize = Lane::COUNT as usize;

/// A renewal appends no step: the page that its relay is at goes on. And it does prolong.
pub async fn a_renewed_lease_keeps_its_step<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let mut owner = Relay::new(&queue, "billing", StartFrom::Oldest).await;
    owner.lease = MINUTE * 10;
    assert_eq!(owner.renew().await, ALL, "all lanes are free");
    let held = owner.held.clone();
    for _ in 0..4 {
        bench.age(&queue, MINUTE * 6).await;
        assert_eq!(owner.renew().await, ALL);
        assert_eq!(owner.held, held);
    }
    let mut other = relay_of(bench, &queue).await;
    assert_eq!(other.renew().await, 0, "no lease is over");
}

/// What a relay gives back at its end is taken at once, and what it still settles misses.
pub async fn lanes_that_are_given_back_are_free_at_once<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let Mates { lane, names: [a] } = mates();
    let mut first = relay(&queue).await;
    put_one(bench, &queue, &a, "1").await;
    let (_, settlement) = first.open_page(lane, |_| Next::Delivered).await;
    queue.give_back(first.sink, first.relay).await.expect("the queue answers");
    let mut second = relay_of(bench, &queue).await;
    assert_eq!(second.renew().await, ALL, "the relay that ended no longer counts");
    assert_eq!(first.settle(&settlement).await, Settled::Fenced(None));
    assert_eq!(second.drain(lane).await, ["1"]);
    queue.give_back(first.sink, first.relay).await.expect("it has nothing to give");
    second.renew().await;
    assert_eq!(second.held.len(), ALL, "what is another's is not given back");
}

/// Those that live share all lanes; those that no longer renew have no share.
pub async fn relays_share_the_lanes_fairly<B: QueueBench>(bench: &B) {
    let queue = bench.open().await;
    let mut relays = Vec::new();
    for count in 1..=3 {
        let mut newcomer = relay_of(bench, &queue).await;
        newcomer.lease = HOUR;
        relays.push(newcomer);
        share(&mut relays).await;
        let most = ALL.div_ceil(count);
        let shares: Vec<_> = relays.iter().map(|relay| relay.held.len()).collect();
        assert!(shares.iter().all(|share| *share <= most), "{shares:?}");
        assert_disjoint(&relays);
    }
    let condition = queue.condition().await.expect("the queue answers");
    let lanes = &condition.sinks[0].lanes;
    for relay in &relays {
        let of_relay = lanes.iter().filter(|lane| lane.relay == Some(relay.relay));
        let of_relay: BTreeSet<_> = of_relay.map(|lane| lane.lane).collect();
        assert_eq!(of_relay, relay.held.keys().copied().collect(), "it says who holds what");
    }

    // One vanishes, and the others go on renewing.
    let gone = relays.pop().expect("there are three");
    for _ in 0..3 {
        bench.age(&queue, MINUTE * 25).await;
        share(&mut relays).await;
    }
    assert_disjoint(&relays);
    assert_eq!(relays[0].held.len(), ALL / 2);
    let lane = *gone.held.keys().next().expect("it held some");
    let now = relays.iter().find_map(|relay| relay.held.get(&lane)).expect("all are held");
    assert!(now.step > gone.at(lane).step, "taken over by a step");
}

/// All ask at once, on several handles.
pub async fn racing_relays_never_hold_the_same_lane<B: QueueBench>(bench: &B) {
    const RELAYS: usize = 6;
    let queue = bench.open().await;
    let mut relays = Vec::new();
    for _ in 0..RELAYS {
        relays.push(relay_of(bench, &queue).await);
    }
    for _ in 0..4 {
        let tasks = relays.into_iter().map(|mut relay| async move {
            relay.renew().await;
            relay
        });
        relays = gather(bench, tasks).await;
    }
    share(&mut relays).await;
    assert_disjoint(&relays);
    assert!(relays.iter().all(|relay| relay.held.len() <= ALL.div_ceil(RELAYS)));
}

/// Renews in turn until lanes have stopped wandering.
async fn share<Q: InspectQueue + Clone>(relays: &mut [Relay<Q>]) {
    for _ in 0..4 {
        for relay in &mut *relays {
            relay.renew().await;
        }
    }
}

fn assert_disjoint<Q>(relays: &[Relay<Q>]) {
    let all: Vec<_> = relays.iter().flat_map(|relay| relay.held.keys()).collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (ALL, ALL), "each lane has one owner");
}
