//! The same for the outbox and the inbox.

use std::time::Duration;

use onceward::{
    Timestamp,
    message::{
        Aggregate, Enqueue as _, InspectQueue, MessageFilter, MessageState, Next, Queue,
        Receive as _, RepairKind, RepairMessage, Topic,
    },
    store::postgres::{PostgresStore, Rebase},
};

use super::Planted;
use crate::{
    messages::support::{Relay, order, sink_name},
    support::connect,
};

impl Planted {
    /// Everything that producers, consumers, relays and operators call.
    pub(super) async fn exercise_messages(
        &self,
        store: &PostgresStore,
        user: &mut sqlx::PgConnection,
    ) {
        let mut client = connect(&self.ground.url("gateway")).await;
        let soon = Timestamp::from_unix_micros(i64::from(u32::MAX) * 1_000_000);
        let scheduled = order("order-1", "scheduled").not_before(soon);
        for message in
            [order("order-1", "1"), order("order-1", "2"), order("order-2", "3"), scheduled]
        {
            store.enqueue_in(&mut client, &message).await.unwrap();
        }
        store.enqueue_in(user, &order("order-3", "4").expires_at(soon)).await.unwrap();
        let day = Duration::from_secs(86_400);
        assert!(store.first_time_in(&mut client, "billing", "1", day).await.unwrap());
        assert!(store.first_time_in(user, "billing", "2", day).await.unwrap());

        let mut relay = Relay::open(store, "billing").await;
        let why = || "planted".to_owned();
        relay.round(1, |_| Next::Park { wait: Duration::ZERO, why: why() }).await;
        relay
            .round(10, |message| match message.body.as_slice() {
                b"3" => Next::Die { why: why() },
                _ => Next::Delivered,
            })
            .await;
        relay.round(10, |_| Next::Die { why: why() }).await;
        for state in [None].into_iter().chain(MessageState::ALL.map(Some)) {
            let filter = MessageFilter {
                state,
                sink: Some(sink_name("billing")),
                topic: Topic::new("order.placed").ok(),
                aggregate: Aggregate::new("order-1").ok(),
                older: Some(Duration::ZERO),
                ..MessageFilter::default()
            };
            InspectQueue::list(store, &filter).await.unwrap();
        }
        let all = InspectQueue::list(store, &MessageFilter::default()).await.unwrap().messages;
        assert!(all.iter().any(|shown| shown.state == MessageState::Dead), "{all:?}");
        for shown in &all {
            for kind in [RepairKind::Redrive, RepairKind::Discard] {
                let (id, sink) = (shown.message.id, shown.sink.clone());
                let repair = RepairMessage { id, sink, kind, actor: None, reason: why() };
                store.repair(&repair).await.unwrap();
            }
            assert_eq!(store.show(shown.message.id).await.unwrap().len(), 1);
        }
        assert_eq!(InspectQueue::condition(store).await.unwrap().alarm, None);
        Queue::sweep(store, Duration::ZERO, 3).await.unwrap();
        for how in [Rebase::Upgraded, Rebase::Restored] {
            store.rebase(how, Some("ada"), "planted").await.unwrap();
        }
        relay.lease().await.unwrap();
        relay.drain().await;
        store.give_back(relay.sink, relay.id).await.unwrap();
        assert!(store.remove_sink(&sink_name("billing")).await.unwrap());
    }
}
