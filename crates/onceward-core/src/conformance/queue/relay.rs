//! A relay for the cases: it takes, delivers by the answers that a case gives, and settles.

use super::*;

/// A relay of the suite: it delivers pages by the answers that a case gives.
pub(super) struct Relay<Q> {
    pub(super) queue: Q,
    pub(super) sink: SinkId,
    pub(super) relay: RelayId,
    pub(super) lease: Duration,
    pub(super) dead_letters: DeadLetters,
    pub(super) held: BTreeMap<Lane, Position>,
}

/// A new relay that has leased what it gets, of the sink `billing` from the oldest message on.
pub(super) async fn relay<Q: InspectQueue + Clone>(queue: &Q) -> Relay<Q> {
    let mut relay = Relay::new(queue, "billing", StartFrom::Oldest).await;
    relay.renew().await;
    relay
}

impl<Q: InspectQueue + Clone> Relay<Q> {
    pub(super) async fn new(queue: &Q, sink: &str, from: StartFrom) -> Self {
        let sink = queue.open_sink(&sink_name(sink), from).await.expect("the queue answers");
        Self {
            queue: queue.clone(),
            sink,
            relay: RelayId::from_random(fresh_bytes()),
            lease: HOUR * 24 * 7,
            dead_letters: DeadLetters::Block,
            held: BTreeMap::new(),
        }
    }

    /// Leases as much as it gets.
    pub(super) async fn renew(&mut self) -> usize {
        let request = LeaseRequest { sink: self.sink, relay: self.relay, lease: self.lease };
        let positions = self.queue.lease(&request).await.expect("the queue answers");
        self.held = positions.into_iter().map(|position| (position.lane, position)).collect();
        let is_own =
            |position: &Position| (position.sink, position.relay) == (self.sink, self.relay);
        assert!(self.held.values().all(is_own), "a lease gives the relay's own lanes");
        self.held.len()
    }

    pub(super) fn at(&self, lane: Lane) -> &Position {
        self.held.get(&lane).expect("the relay holds the lane")
    }

    pub(super) async fn take(&self, lane: Lane, limit: u32) -> Page {
        self.queue.take(self.at(lane), limit).await.expect("the queue answers")
    }

    /// What a page comes to, if the sink answers so.
    pub(super) fn work(
        &self,
        lane: Lane,
        page: Page,
        mut answer: impl FnMut(&Message) -> Next,
    ) -> (Vec<Message>, Option<Settlement>) {
        let position = self.at(lane).clone();
        let mut work = LaneWork::new(position, page, self.dead_letters, |_| TopicRule::Send);
        let mut sent = Vec::new();
        while let Some(token) = work.next(Duration::ZERO) {
            let message = work.message(token).clone();
            let next = answer(&message);
            sent.push(message);
            work.sent(token, next);
        }
        (sent, work.settlement(fresh_fence()))
    }

    /// Takes a page and decides on it, without settling.
    pub(super) async fn open_page(
        &self,
        lane: Lane,
        answer: impl FnMut(&Message) -> Next,
    ) -> (Vec<Message>, Settlement) {
        let page = self.take(lane, PAGE).await;
        let (sent, settlement) = self.work(lane, page, answer);
        (sent, settlement.expect("there was something to take"))
    }

    pub(super) async fn settle(&mut self, settlement: &Settlement) -> Settled {
        let settled = self.queue.settle(settlement).await.expect("the queue answers");
        if let Settled::Moved(position) = &settled {
            self.held.insert(position.lane, position.clone());
        }
        settled
    }

    /// Takes, sends and settles pages of this length until the lane has nothing to take.
    pub(super) async fn run_by(
        &mut self,
        lane: Lane,
        limit: u32,
        mut answer: impl FnMut(&Message) -> Next,
    ) -> Vec<Message> {
        let mut all = Vec::new();
        for _ in 0..1_000 {
            let page = self.take(lane, limit).await;
            let (sent, settlement) = self.work(lane, page, &mut answer);
            all.extend(sent);
            let Some(settlement) = settlement else { return all };
            let settled = self.settle(&settlement).await;
            assert!(matches!(settled, Settled::Moved(_)), "the only owner settles: {settled:?}");
        }
        panic!("the lane has something to take for ever: {:?}", bodies(&all));
    }

    /// The bodies of everything that is sent until the lane has nothing to take.
    pub(super) async fn run(
        &mut self,
        lane: Lane,
        answer: impl FnMut(&Message) -> Next,
    ) -> Vec<String> {
        bodies(&self.run_by(lane, PAGE, answer).await)
    }

    /// The same with a sink that takes everything.
    pub(super) async fn drain(&mut self, lane: Lane) -> Vec<String> {
        self.run(lane, |_| Next::Delivered).await
    }

    /// The same over all lanes.
    pub(super) async fn drain_all(&mut self) -> Vec<String> {
        let lanes: Vec<Lane> = self.held.keys().copied().collect();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(self.drain(lane).await);
        }
        all
    }
}
