//! Copies of a database: relays refuse to work on them until an operator has mended them, and nothing is lost.

use std::collections::BTreeMap;

use onceward::{
    StoreError,
    conformance::block_on,
    message::{
        Changed, Enqueue as _, InspectQueue, MessageState, Next, Queue as _, RepairKind,
        RepairMessage, StartFrom,
    },
    store::postgres::{Rebase, Rebased},
};
use testbed::{Installation, Server};

use super::support::{Got, Relay, Shop, bodies, by_aggregate, order, sink_name};

/// What each sink has got before the copy is made.
struct Before {
    billing: Got,
    audit: Got,
}

/// Some messages are delivered to both sinks, some to one, some to none; one is dead at one sink; one lane is in the
/// middle of a page.
async fn fill(shop: &Shop) -> Before {
    let mut billing = Relay::open(&shop.store, "billing").await;
    let mut audit = Relay::open(&shop.store, "audit").await;
    let put = async |from: u32, to: u32| {
        let messages: Vec<_> =
            (from..to).map(|number| order(&format!("order-{}", number % 5), number)).collect();
        shop.enqueue(&messages).await;
    };
    put(100, 110).await;
    let mut before = Before { billing: billing.drain().await, audit: audit.drain().await };
    shop.enqueue(&[order("refused", 200), order("refused", 201)]).await;
    put(110, 120).await;
    let refusing = |message: &onceward::message::Message| match message.body.as_slice() {
        b"200" => Next::Die { why: "400".to_owned() },
        _ => Next::Delivered,
    };
    before.billing.extend(billing.round(100, refusing).await);
    // One of each lane, so that the others are behind the middle of a page.
    before.audit.extend(audit.round(1, |_| Next::Delivered).await);
    put(120, 130).await;
    for relay in [billing, audit] {
        relay.store.give_back(relay.sink, relay.id).await.unwrap();
    }
    before
}

/// What a sink gets of all, in the order of each aggregate, if it has got `before`.
fn left_of(before: &Got, new: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let all = (100..130).map(|number| (format!("order-{}", number % 5), number.to_string()));
    let refused = ["200", "201"].map(|body| ("refused".to_owned(), body.to_owned()));
    let new = new.iter().map(|body| ("new".to_owned(), (*body).to_owned()));
    for (aggregate, body) in all.chain(refused).chain(new) {
        if !before.contains(&(aggregate.clone(), body.clone())) {
            left.entry(aggregate).or_default().push(body);
        }
    }
    left
}

fn assert_got(got: &Got, left: &BTreeMap<String, Vec<String>>) {
    let got: BTreeMap<_, Vec<_>> = by_aggregate(got)
        .into_iter()
        .map(|(aggregate, bodies)| {
            (aggregate.to_owned(), bodies.into_iter().map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(&got, left, "each once and in order");
}

async fn assert_refused(shop: &Shop) {
    let condition = shop.condition().await;
    assert!(condition.alarm.as_deref().is_some_and(says_what_to_do), "{condition:?}");
    let opened = shop.store.open_sink(&sink_name("billing"), StartFrom::Now).await;
    let swept = onceward::message::Queue::sweep(&shop.store, std::time::Duration::ZERO, 100).await;
    for error in [opened.map(drop).unwrap_err(), swept.map(drop).unwrap_err()] {
        assert!(matches!(&error, StoreError::Unusable(text) if says_what_to_do(text)), "{error}");
    }
}

fn says_what_to_do(alarm: &str) -> bool {
    alarm.contains("`onceward relay rebase`") && alarm.contains("Nothing is lost")
}

/// The numbers of transactions of the dump are far ahead of those of the new server.
#[test]
fn a_restored_dump_alarms_and_a_rebase_mends_it() {
    block_on(async {
        let installation = Installation::preferred().unwrap();
        let [old, new] = [(), ()].map(|()| Server::start(&installation, &[]).unwrap());
        old.sql("DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$");
        let shop = Shop::on(old.database()).await;
        let Before { billing, audit } = fill(&shop).await;
        new.sql("CREATE ROLE onceward_app NOLOGIN");
        let copy = new.database();
        copy.sql(&shop.database.dump());
        let shop = Shop::on(copy).await;
        assert_refused(&shop).await;
        // Producers go on, also one that has its number before the outbox is mended and enqueues after that.
        shop.enqueue(&[order("new", "n1"), order("new", "n2")]).await;
        let mut open = shop.client().await;
        open.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();

        let kept = shop.store.rebase(Rebase::Upgraded, None, "a guess").await;
        let says_why = |text: &str| {
            text.contains("they were not kept") && text.contains("Nothing was changed")
        };
        assert!(matches!(&kept, Err(StoreError::Unusable(text)) if says_why(text)), "{kept:?}");
        assert_refused(&shop).await;
        let rebased = shop.store.rebase(Rebase::Restored, Some("ada"), "restored").await.unwrap();
        assert!(rebased.renewed > 0 && rebased.waiting > 0, "{rebased:?}");
        assert_eq!(shop.condition().await.alarm, None);
        let trail = shop.database.sql("SELECT kind, actor, reason FROM onceward.message_trail");
        assert_eq!(trail, "rebase|ada|restored");

        shop.store.enqueue_in(&mut open, &order("new", "n3")).await.unwrap();
        open.batch_execute("COMMIT").await.unwrap();
        let new = ["n1", "n2", "n3"];
        let mut left = left_of(&billing, &new);
        left.remove("refused");
        let mut relay = Relay::open(&shop.store, "billing").await;
        assert_got(&relay.drain().await, &left);
        mend_dead_letter(&shop, &mut relay).await;
        let mut relay = Relay::open(&shop.store, "audit").await;
        assert_got(&relay.drain().await, &left_of(&audit, &new));
        shop.enqueue(&[order("new", "n4")]).await;
        assert_eq!(bodies(&relay.drain().await), ["n4"]);
    });
}

/// What was dead before is dead still, and can be sent again.
async fn mend_dead_letter(shop: &Shop, relay: &mut Relay) {
    let dead = shop.dead_letters().await;
    let [dead] = dead.as_slice() else { panic!("one is dead: {dead:?}") };
    assert_eq!(dead.why, "400");
    let repair = RepairMessage {
        id: dead.message.id,
        sink: sink_name("billing"),
        kind: RepairKind::Redrive,
        actor: Some("ada".to_owned()),
        reason: "it is mended".to_owned(),
    };
    assert_eq!(shop.store.repair(&repair).await, Ok(Changed::Done));
    relay.lease().await.unwrap();
    assert_eq!(bodies(&relay.drain().await), ["200", "201"]);
}

/// A template, like `pg_upgrade`, keeps the numbers of transactions, and gives the database another identity.
#[test]
fn a_copy_that_kept_its_numbers_goes_on_where_it_was() {
    block_on(async {
        let server = Server::start(&Installation::preferred().unwrap(), &[]).unwrap();
        let shop = Shop::on(server.database()).await;
        let Before { billing, audit } = fill(&shop).await;
        let Shop { database, store } = shop;
        drop(store);
        let name = database.name();
        server.sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ));
        let copy = server.database();
        server.sql(&format!(
            "DROP DATABASE {}; CREATE DATABASE {} TEMPLATE {name}",
            copy.name(),
            copy.name()
        ));
        let shop = Shop::on(copy).await;
        assert_refused(&shop).await;
        shop.enqueue(&[order("new", "n1")]).await;
        let rebased = shop.store.rebase(Rebase::Upgraded, Some("ada"), "upgraded").await;
        assert_eq!(rebased, Ok(Rebased::default()), "nothing had to be moved");
        for (sink, before) in [("billing", &billing), ("audit", &audit)] {
            let mut relay = Relay::open(&shop.store, sink).await;
            let mut left = left_of(before, &["n1"]);
            if sink == "billing" {
                left.remove("refused");
            }
            assert_got(&relay.drain().await, &left);
        }
        assert_eq!(shop.dead_letters().await[0].state, MessageState::Dead);
    });
}
