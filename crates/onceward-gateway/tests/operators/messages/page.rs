//! `docs/messages.md`, followed by a newcomer.

use std::fs;

use rusqlite::Connection;
use serde_json::json;
use testbed::Process;
use uuid::Uuid;

use crate::{
    gateway_support::{Upstream, eventually, told_url},
    pages::{Example, has_python},
};

/// The part below this heading.
fn section(heading: &str) -> &'static str {
    let page = include_str!("../../../../../docs/messages.md");
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).expect("there is such a section");
    rest.split("\n## ").next().unwrap()
}

#[test]
fn the_first_message_arrives() {
    if !has_python("the first page of docs/messages.md") {
        return;
    }
    let example = Example::without_files("docs/messages.md", &["3000"]);
    let said = example.walk(section("Start in 60 seconds"), &[]);
    assert_eq!(said.matches("billing got order.placed").count(), 1, "{said}");
}

/// The message of the page is dead, and another one waits behind it.
#[tokio::test]
async fn a_dead_letter_is_mended_as_the_page_says() {
    let upstream = Upstream::any();
    let example = Example::without_files("docs/messages.md", &["8082"]);
    let text = section("Dead letters, step by step");
    let (_, id) = text.split_once("--message ").unwrap();
    let id: Uuid = id[..36].parse().unwrap();
    let migrated =
        example.command("onceward").args(["migrate", "--store", "sqlite://shop.db"]).status();
    assert!(migrated.unwrap().success());
    let file = Connection::open(example.file("shop.db")).unwrap();
    let enqueue = |id: Uuid| {
        let text =
            "INSERT INTO onceward_message (id, topic, aggregate, body) VALUES (?1, ?2, ?3, ?4)";
        let body: &[u8] = b"{\"order\":7}";
        file.execute(text, (id.as_bytes(), "order.placed", "order-7", body)).unwrap();
    };
    enqueue(id);
    let behind = Uuid::now_v7();
    enqueue(behind);
    let admin = example.address("8082");
    let relay = |url: String| {
        let config = format!(
            "store = \"sqlite://shop.db\"\nadmin = \"{admin}\"\n[relay]\nlease = \"1s\"\n[[sink]]\n\
             name = \"billing\"\nurl = \"{url}\"\nfrom = \"oldest\"\n"
        );
        fs::write(example.file("onceward.toml"), config).unwrap();
        let process = Process::start(example.command("onceward").arg("relay")).unwrap();
        process.stderr.wait_for("delivering messages of").unwrap();
        process
    };
    let refuses = relay(told_url(&upstream, "/wrong", &json!({"status": 422})));
    refuses.stderr.wait_for("delivery_given_up").unwrap();
    refuses.signal(testbed::Signal::TERM);
    assert!(refuses.wait_for_end().unwrap().success());
    let _mended = relay(format!("{}/right", upstream.url()));
    // Only the times are others.
    let day = "2026-11-19T";
    let timeless: Vec<String> = text
        .lines()
        .map(|line| {
            let mut words = line.split(day);
            let first = words.next().unwrap().to_owned();
            words.fold(first, |line, rest| match rest.find([' ', 'Z']) {
                Some(end) => format!("{line}…{}", &rest[end..]),
                None => format!("{line}…"),
            })
        })
        .collect();
    example.walk(&timeless.join("\n"), &[]);
    eventually("both arrive in their order", || async {
        let seen = upstream.seen().await;
        let right = seen.iter().filter(|one| one["path"] == "/right");
        let keys: Vec<_> = right.filter_map(|one| one["key"].as_str()).collect();
        keys == [id.to_string(), behind.to_string()]
    })
    .await;
}
