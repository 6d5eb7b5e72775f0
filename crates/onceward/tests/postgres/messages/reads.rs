//! How much is read: what lies before and behind a page costs nothing.

use std::time::Duration;

use onceward::{
    conformance::block_on,
    message::{InspectQueue, Lane, MessageFilter, MessageState, Next},
};
use tokio_postgres::Client;

use super::support::{Relay, Shop, order};

const BACKLOG: usize = 5_000;
const OPEN: usize = 500;

fn lane() -> Lane {
    Lane::of(b"order-7")
}

/// Thousands in one lane: delivered ones, others of a transaction that is still open, and a backlog.
async fn filled(shop: &Shop) -> (Relay, Client) {
    let fill = |count: usize| {
        format!(
            "DO $$ BEGIN FOR i IN 1..{count} LOOP
                 PERFORM onceward.enqueue('order.placed', 'order-7', '\\x00');
             END LOOP; END $$"
        )
    };
    let client = shop.client().await;
    let mut relay = Relay::open(&shop.store, "billing").await;
    client.batch_execute(&fill(BACKLOG)).await.unwrap();
    assert_eq!(relay.drain().await.len(), BACKLOG);
    let open = shop.client().await;
    open.batch_execute("BEGIN").await.unwrap();
    open.batch_execute(&fill(OPEN)).await.unwrap();
    client.batch_execute(&fill(BACKLOG)).await.unwrap();
    relay.lease().await.unwrap();
    (relay, open)
}

/// Rows that statements of this transaction have read of a table: by a scan of all, and by an index.
async fn read_rows(client: &Client, table: &str) -> (i64, i64) {
    let text = format!(
        "SELECT coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0)
         FROM pg_stat_xact_user_tables WHERE relid = 'onceward.{table}'::regclass"
    );
    let row = client.query_one(&text, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn a_page_reads_its_own_messages_and_few_others() {
    const LIMIT: i64 = 100;
    block_on(async {
        let shop = Shop::open().await;
        let (relay, open) = filled(&shop).await;
        let client = shop.client().await;
        for (page, is_analyzed) in [(0, false), (1, false), (2, true), (3, true)] {
            if is_analyzed {
                client.batch_execute("ANALYZE onceward.message, onceward.step").await.unwrap();
            }
            client.batch_execute("BEGIN").await.unwrap();
            let take = format!(
                "SELECT count(seq) FROM onceward.step s, onceward.take(s.sink, s.lane, s.step, s.fence, s.base::text,
                     s.floor, s.target::text, s.next_floor, s.done, {LIMIT})
                 WHERE s.sink = {} AND s.lane = {} AND s.step = {}",
                relay.sink.0, lane().number(), relay.held[&lane()].step
            );
            let taken: i64 = client.query_one(&take, &[]).await.unwrap().get(0);
            assert_eq!(taken, LIMIT);
            let (scanned, fetched) = read_rows(&client, "message").await;
            assert_eq!(scanned, 0, "page {page}");
            // Keys, then the messages; and twice what the open transaction has written since the last page.
            let most = 2 * i64::try_from(OPEN).unwrap() + 4 * LIMIT;
            assert!(fetched <= most, "page {page} reads {fetched} messages");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        drop(open);
    });
}

#[test]
fn a_question_about_an_idle_lane_reads_nothing_old() {
    block_on(async {
        let shop = Shop::open().await;
        let (mut relay, open) = filled(&shop).await;
        assert_eq!(relay.drain().await.len(), BACKLOG);
        let mut client = shop.client().await;
        let transaction = client.transaction().await.unwrap();
        let lease = format!(
            "SELECT idle_place, idle_floor FROM onceward.lease({}::smallint, '{}', '1 minute') WHERE lane = {}",
            relay.sink.0,
            uuid::Uuid::from_bytes(*relay.id.as_bytes()),
            lane().number()
        );
        let idle = transaction.query_one(&lease, &[]).await.unwrap();
        let (place, floor): (String, i64) = (idle.get(0), idle.get(1));
        let before = read_rows(transaction.client(), "message").await;
        let ask = format!(
            "SELECT count(*) FROM onceward.waiting('{{{}}}', '{{{}}}', '{{\"{place}\"}}', '{{{floor}}}', '{{false}}')",
            relay.sink.0,
            lane().number()
        );
        for _ in 0..10 {
            let waiting: i64 = transaction.query_one(&ask, &[]).await.unwrap().get(0);
            assert_eq!(waiting, 0);
        }
        let after = read_rows(transaction.client(), "message").await;
        assert_eq!(after, before, "neither what is delivered nor what is still open is read again");
        drop(open);
    });
}

/// In the middle of a page, what is parked has not been passed yet.
#[test]
fn what_waits_in_the_middle_of_a_page_is_listed_once() {
    block_on(async {
        let shop = Shop::open().await;
        let mut relay = Relay::open(&shop.store, "billing").await;
        let mut mates = (0..).map(|number| format!("mate-{number}"));
        let mate = mates.find(|mate| Lane::of(mate.as_bytes()) == lane()).unwrap();
        shop.enqueue(&[order("order-7", "failed"), order(&mate, "not tried")]).await;
        let got = relay.round(10, |message| match message.body.as_slice() {
            b"failed" => Next::Park { wait: Duration::from_secs(60), why: "503".to_owned() },
            _ => Next::Pause { wait: None },
        });
        assert_eq!(got.await, []);
        let state = Some(MessageState::Waiting);
        for limit in [1, 10] {
            let filter = MessageFilter { state, limit, ..MessageFilter::default() };
            let listed = list(&shop, filter).await;
            assert_eq!(listed, ["failed", "not tried"], "pages of {limit}");
        }
    });
}

/// The bodies of a whole list.
async fn list(shop: &Shop, mut filter: MessageFilter) -> Vec<String> {
    let mut listed = Vec::new();
    loop {
        let page = InspectQueue::list(&shop.store, &filter).await.unwrap();
        let bodies = page.messages.into_iter().map(|shown| shown.message.body);
        listed.extend(bodies.map(|body| String::from_utf8(body).unwrap()));
        filter.after = page.next;
        if filter.after.is_none() {
            return listed;
        }
    }
}
