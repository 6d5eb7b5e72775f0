//! What a service in any language does in SQL: it puts messages into the outbox inside its own transaction.

use onceward::{
    Digest,
    conformance::block_on,
    message::{Lane, MessageId, Queue as _},
};

use super::support::{Relay, Shop, bodies};

#[track_caller]
fn refused(shop: &Shop, call: &str, words: &[&str]) {
    let text = format!(
        "\\set VERBOSITY verbose\nBEGIN; CREATE TABLE effect (); SELECT onceward.enqueue({call}); COMMIT;"
    );
    let error = shop.database.try_sql(&text).unwrap_err().to_string();
    for words in words {
        assert!(error.contains(words), "{call}: {error}");
    }
    assert_eq!(shop.database.sql("SELECT to_regclass('effect')"), "", "the effect is rolled back");
}

#[test]
fn every_argument_arrives_with_the_message() {
    block_on(async {
        let shop = Shop::open().await;
        let mut relay = Relay::open(&shop.store, "billing").await;
        let digest = Digest([7; 32]);
        let id = shop.database.sql(&format!(
            "SET synchronous_commit = off; BEGIN;
             SELECT onceward.enqueue('order.placed', 'order-7', '{{}}', '[[\"x-a\", \"é\"]]',
                 '00000000-0000-7000-8000-000000000007', '2001-01-01Z', '9001-01-01Z',
                 '{digest}.00000000-0000-0000-0000-000000000001', '00-ab-cd-01');
             SELECT current_setting('synchronous_commit'); COMMIT;"
        ));
        assert_eq!(
            id, "00000000-0000-7000-8000-000000000007\non",
            "what is acknowledged is durable"
        );
        let lane = Lane::of(b"order-7");
        let page = relay.store.take(&relay.held[&lane], 10).await.unwrap();
        let message = &page.fresh[0].message;
        assert_eq!(message.id, MessageId::parse("00000000-0000-7000-8000-000000000007").unwrap());
        assert_eq!(
            (message.topic.as_str(), message.aggregate.as_str()),
            ("order.placed", "order-7")
        );
        assert_eq!(message.body, b"{}");
        assert_eq!(message.headers, [("x-a".to_owned(), "é".to_owned())]);
        let micros = |time: Option<onceward::Timestamp>| time.map(onceward::Timestamp::unix_micros);
        assert_eq!(micros(message.not_before), Some(978_307_200_000_000));
        assert_eq!(micros(message.expires_at), Some(221_876_928_000_000_000));
        assert_eq!(message.operation, Some(digest));
        assert_eq!(message.trace.as_deref(), Some("00-ab-cd-01"));
        assert_eq!(bodies(&relay.drain().await), ["{}"]);

        shop.database.sql(&format!(
            "SELECT onceward.enqueue('order.placed', NULL, 'reference', execution => '{digest}')"
        ));
        assert_eq!(bodies(&relay.drain().await), ["reference"]);
    });
}

/// In every lane, with bytes of every length of UTF-8.
#[test]
fn lanes_are_those_of_the_library_and_ids_are_in_the_order_of_time() {
    block_on(async {
        let shop = Shop::open().await;
        let aggregates: Vec<_> = (0..300).map(|number| format!("ä{number}\u{1F980}'")).collect();
        let rows = shop.database.sql(
            "SELECT onceward.enqueue('order.placed', 'ä' || number || '🦀''', '') FROM generate_series(0, 299) AS number",
        );
        let ids: Vec<_> = rows.lines().map(|id| uuid::Uuid::parse_str(id).unwrap()).collect();
        assert!(
            ids.iter()
                .all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122)
        );
        let times: Vec<_> = ids.iter().map(|id| id.get_timestamp().unwrap().to_unix()).collect();
        assert!(times.is_sorted(), "by their time");
        let lanes = shop.database.sql("SELECT lane FROM onceward.message ORDER BY seq");
        let expected: Vec<_> = aggregates
            .iter()
            .map(|aggregate| Lane::of(aggregate.as_bytes()).number().to_string())
            .collect();
        assert_eq!(lanes.lines().collect::<Vec<_>>(), expected);
        let none = shop.database.sql(
            "SELECT onceward.enqueue('order.placed', NULL, '');
             SELECT aggregate = id::text FROM onceward.message ORDER BY seq DESC LIMIT 1",
        );
        assert!(none.ends_with("t"), "without an aggregate it is the id: {none}");
    });
}

#[test]
fn what_cannot_be_sent_is_refused_with_what_to_do() {
    block_on(async {
        let shop = Shop::open().await;
        for (call, words) in [
            ("'order.placed', 'a', NULL", ["OW002", "must not be null"]),
            ("NULL, 'a', ''", ["OW002", "must not be null"]),
            ("'', 'a', ''", ["OW002", "topic of a message has 1 to 255 bytes"]),
            ("repeat('ä', 128), 'a', ''", ["OW002", "topic of a message has 1 to 255 bytes"]),
            ("'order.placed', E'a\\n', ''", ["OW002", "aggregate of a message has 1 to 255"]),
            ("'order.placed', E'a\\u0085', ''", ["OW002", "no control characters"]),
            ("'order.placed', 'a', '', traceparent => ''", ["OW002", "trace context"]),
            (
                "'order.placed', 'a', convert_to(repeat('x', 1048577), 'UTF8')",
                ["1048577 bytes", "send a reference to it"],
            ),
            ("'order.placed', 'a', '', '{}'", ["OW002", "must be an array of pairs"]),
            ("'order.placed', 'a', '', '[[\"a\"]]'", ["OW002", "must be a pair of texts"]),
            ("'order.placed', 'a', '', '[[\"a b\", \"c\"]]'", ["OW002", "line a b cannot be sent"]),
            (
                "'order.placed', 'a', '', '[[\"a\", \"c\\r\\nd: e\"]]'",
                ["OW002", "no control characters"],
            ),
            (
                "'order.placed', 'a', '', jsonb_build_array(jsonb_build_array('a', repeat('x', 32768)))",
                ["OW002", "at most 32768"],
            ),
            (
                "'order.placed', 'a', '', not_before => '2030-01-01', expires_at => '2030-01-01'",
                ["OW002", "expire before it may be sent"],
            ),
            ("'order.placed', 'a', '', expires_at => 'infinity'", ["OW002", "infinite"]),
            ("'order.placed', 'a', '', execution => 'x'", ["not an execution", "as it is"]),
        ] {
            refused(&shop, call, &words);
        }
        let id = "'order.placed', 'a', 'first', id => '00000000-0000-7000-8000-000000000007'";
        shop.database.sql(&format!("SELECT onceward.enqueue({id})"));
        refused(
            &shop,
            &id.replace("first", "second"),
            &["23505", "message_id_key", "already exists"],
        );
        let mut relay = Relay::open(&shop.store, "billing").await;
        assert_eq!(bodies(&relay.drain().await), ["first"]);
    });
}

#[test]
fn members_of_the_role_may_enqueue_and_nothing_else() {
    block_on(async {
        let shop = Shop::open().await;
        let name = format!("shop_{}", fastrand::u32(..));
        shop.database.sql(&format!("CREATE ROLE {name}"));
        let run = |sql: &str| {
            let text = format!("SET ROLE {name}; {sql}");
            shop.database.try_sql(&text).map_err(|trouble| trouble.to_string())
        };
        let enqueue = "SELECT onceward.enqueue('order.placed', 'order-7', '{}')";
        assert!(run(enqueue).unwrap_err().contains("permission denied"));
        shop.database.sql(&format!("GRANT onceward_app TO {name}"));
        run(enqueue).unwrap();
        for forbidden in [
            "SELECT body FROM onceward.message",
            "INSERT INTO onceward.message (xid, at, id, lane, topic, aggregate, headers, body)
                 VALUES ('1', now(), gen_random_uuid(), 0, '', '', '[]', '')",
            "DELETE FROM onceward.message",
            "SELECT * FROM onceward.step",
            "SELECT onceward.open_sink('mine', true)",
            "SELECT onceward.remove_sink('billing')",
            "SELECT onceward.rebase_outbox(false, '', '')",
            "SELECT nextval('onceward.message_seq_seq')",
        ] {
            let error = run(forbidden).unwrap_err();
            assert!(error.contains("permission denied"), "{forbidden}: {error}");
        }
        shop.database.sql(&format!("REVOKE onceward_app FROM {name}; DROP ROLE {name}"));
    });
}
