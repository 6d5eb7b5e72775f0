//! Producers and consumers in other languages: plain SQL on any connection to the file.

use onceward::message::{InspectQueue as _, MessageId};
use rusqlite::{Connection, params};

use super::support::{Shop, placed, random};

/// As the documentation has it.
const DOCUMENTATION: &str = include_str!("../../../../../docs/messages.md");

/// A statement of the documentation for other languages, by its beginning.
fn statement(begins: &str) -> String {
    let (_, section) =
        DOCUMENTATION.split_once("### Other languages on SQLite").expect("it is there");
    let from = section.find(begins).expect("the documentation has the statement");
    let text = &section[from..];
    text[..text.find(';').expect("it ends")].to_owned()
}

fn enqueue(connection: &Connection, aggregate: Option<&str>, body: &str) -> MessageId {
    let id = random();
    let sql = statement("INSERT INTO onceward_message");
    let written = connection.execute(&sql, params![id, "order.placed", aggregate, body.as_bytes()]);
    assert_eq!(written.unwrap(), 1);
    MessageId::from_bytes(id)
}

#[tokio::test]
async fn messages_of_plain_inserts_are_delivered_in_their_order() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    enqueue(&connection, Some("a"), "1");
    shop.order(placed("a", 2));
    let transaction = connection.transaction().unwrap();
    enqueue(&transaction, Some("a"), "3");
    enqueue(&transaction, Some("a"), "4");
    transaction.commit().unwrap();
    let transaction = connection.transaction().unwrap();
    enqueue(&transaction, Some("a"), "never");
    transaction.rollback().unwrap();
    shop.order(placed("a", 5));
    assert_eq!(shop.delivered().await, ["1", "2", "3", "4", "5"]);

    let id = enqueue(&connection, None, "6");
    let shown = shop.store.show(id).await.unwrap();
    let [shown] = shown.as_slice() else { panic!("one sink has it: {shown:?}") };
    assert_eq!(shown.message.aggregate.as_str(), id.to_string(), "it has no order");
    assert_eq!(shown.message.headers, []);
    let now = onceward::Timestamp::from_unix_micros(
        i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap(),
    );
    assert!(now.since(shown.message.at).as_secs() < 3_600, "by the clock of the host");
    assert_eq!(shop.delivered().await, ["6"]);
}

/// More at once than get their lanes in one go. A message that has its lane from the beginning is behind them.
#[tokio::test]
async fn a_backlog_of_plain_inserts_is_passed_over_nowhere() {
    const BACKLOG: u32 = 2_600;
    let shop = Shop::new();
    let connection = shop.connect();
    let backlog = "WITH RECURSIVE number (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM number LIMIT ?1)
        INSERT INTO onceward_message (id, topic, aggregate, body)
        SELECT randomblob(16), 'order.placed', 'a', CAST(value AS BLOB) FROM number";
    connection.execute(backlog, [BACKLOG]).unwrap();
    enqueue(&connection, Some("b"), "first of b");
    shop.order(placed("b", 9_999));
    let delivered = shop.delivered().await;
    let (of_b, of_a): (Vec<_>, _) = delivered
        .into_iter()
        .partition(|body: &String| body.starts_with("first") || body == "9999");
    assert!(of_a.into_iter().eq((1..=BACKLOG).map(|number| number.to_string())));
    assert_eq!(of_b, ["first of b", "9999"]);
}

#[tokio::test]
async fn what_no_relay_could_read_is_refused_with_its_reason() {
    let shop = Shop::new();
    let connection = shop.connect();
    let insert = "INSERT INTO onceward_message
            (id, topic, aggregate, not_before, expires_at, operation, trace, headers, body)
        VALUES (coalesce(?1, randomblob(16)), coalesce(?2, 'order.placed'), ?3, ?4, ?5, ?6, ?7, coalesce(?8, '[]'),
            coalesce(?9, X''))";
    type Value = Option<rusqlite::types::Value>;
    let text = |text: &str| Some(rusqlite::types::Value::from(text.to_owned()));
    let blob = |bytes: usize| Some(rusqlite::types::Value::from(vec![7; bytes]));
    let with = |column: usize, value: Value| {
        let mut values: [Value; 9] = Default::default();
        values[column] = value;
        connection.execute(insert, rusqlite::params_from_iter(values))
    };
    let header = |value: &str| text(&format!("[[\"x-a\", \"{value}\"]]"));
    for (column, value, says) in [
        (0, blob(15), "an id of 16 bytes"),
        (1, text(""), "topic, aggregate and trace"),
        (1, text(&"t".repeat(256)), "topic, aggregate and trace"),
        (1, text("a\nb"), "topic, aggregate and trace"),
        (1, text("a\0b"), "topic, aggregate and trace"),
        (1, text("a\u{85}b"), "topic, aggregate and trace"),
        (2, text(""), "topic, aggregate and trace"),
        (2, text("a\u{7f}"), "topic, aggregate and trace"),
        (5, blob(31), "its digest of 32"),
        (6, text(""), "topic, aggregate and trace"),
        (7, text("{}"), "the headers of"),
        (7, text("no JSON"), "the headers of"),
        (7, header(&"v".repeat(32_768)), "the headers of"),
        (7, text("[1]"), "a header line"),
        (7, text("[[\"a\"]]"), "a header line"),
        (7, text("[[\"a\", 1]]"), "a header line"),
        (7, text("[[\"a\", \"1\"], [\"\", \"1\"]]"), "a header line"),
        (7, text("[[\"a b\", \"1\"]]"), "a header line"),
        (7, text("[[\"\u{e4}\", \"1\"]]"), "a header line"),
        (7, header("a\\r\\nx-b: c"), "a header line"),
        (7, header("\\u0000"), "a header line"),
        (8, blob((1 << 20) + 1), "at most 1048576"),
    ] {
        let refused = with(column, value.clone()).unwrap_err().to_string();
        let is_explained = refused.contains(says) && refused.contains("nothing was enqueued");
        assert!(is_explained, "{says}: {refused}");
    }
    let both = connection.execute(
        "INSERT INTO onceward_message (id, topic, not_before, expires_at, body)
         VALUES (randomblob(16), 'a', 2, 2, X'')",
        [],
    );
    assert!(both.unwrap_err().to_string().contains("expires after"));
    for (column, value) in [
        (1, text(&"t".repeat(255))),
        (1, text("\u{e4}'; --")),
        (7, text("[]")),
        (7, text("[[\"X-a!#$%&'*+.^_`|~09\", \"\\u00e4\\t\\\"\"], [\"a\", \"\"]]")),
        (8, blob(1 << 20)),
    ] {
        with(column, value).unwrap();
    }
    let delivered = {
        let relay = super::support::Relay::new(&shop.store, super::support::PATIENCE).await;
        let mut delivered = Vec::new();
        relay.run(|message| delivered.push(message.clone())).await;
        delivered
    };
    assert_eq!(delivered.len(), 5);
    let headers = [("X-a!#$%&'*+.^_`|~09", "\u{e4}\t\""), ("a", "")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert!(delivered.iter().any(|message| message.headers == headers));
}

/// A consumer in another language, and one in Rust, on one inbox.
#[tokio::test]
async fn a_receipt_of_plain_sql_is_one() {
    let shop = Shop::new();
    let inbox = onceward::inbox::Inbox::new(shop.store.clone());
    let sql = statement("INSERT INTO onceward_inbox");
    let connection = shop.connect();
    let is_new =
        |id: &str| connection.execute(&sql, params!["billing", id, 7 * 86_400]).unwrap() == 1;
    assert!(is_new("1"));
    assert!(!is_new("1"));
    let mut other = shop.connect();
    let transaction = shop.store.begin_blocking(&mut other).unwrap();
    assert!(inbox.first_time_blocking(&transaction, "billing", "2").unwrap());
    transaction.commit().unwrap();
    drop(connection);
    let count = "SELECT count(*) FROM onceward_inbox";
    let receipts: u32 = shop.connect().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(receipts, 2);
}
