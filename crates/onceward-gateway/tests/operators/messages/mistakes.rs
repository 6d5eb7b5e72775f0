//! Configurations with which nothing would be delivered, each refused with its line and what to write instead.

use std::fs;

use super::{Shop, billing};

const HERE: &str = "http://127.0.0.1:3000/events";

#[test]
fn mistakes_about_sinks_name_their_line() {
    let shop = Shop::new();
    let sink = billing(HERE);
    for (text, place, said) in [
        (
            format!(
                "{sink}{}",
                billing(HERE)
                    .split_once("[[sink]]")
                    .map(|(_, rest)| format!("[[sink]]{rest}"))
                    .unwrap()
            ),
            ":8:",
            "two sinks are called \"billing\"",
        ),
        (sink.replace("http://", "ftp://"), ":6:7", "`url` has an unknown scheme"),
        (sink.replace("http://", "http://ada:secret@"), ":6:7", "has a name or password in it"),
        (sink.replace("url = ", "uri = "), ":6:1", "did you mean `url`?"),
        (sink.replace("\"oldest\"", "\"first\""), ":7:8", "`from` must be one of now, oldest"),
        (
            sink.replace("lease = \"1s\"", "lease = \"1ms\""),
            ":3:9",
            "`lease` is 1ms, out of its range",
        ),
        (
            sink.replace("lease = \"1s\"", "message_retain = \"1h\""),
            ":3:18",
            "`message_retain` is 1h, and by the rules of \"billing\"",
        ),
        (format!("{sink}topics = [\"a*b\"]\n"), ":8:11", "no topic can match"),
        (
            format!("{sink}headers = [\"idempotency-key: 7\"]\n"),
            ":8:11",
            "cannot be given to a sink",
        ),
        (format!("{sink}headers = [\"secret\"]\n"), ":8:12", "no line of a head"),
        (format!("{sink}backoff = \"slow\"\n"), ":8:11", "`backoff` is no kind of back-off"),
        ("[relay]\nlese = \"1s\"\n".to_owned(), ":3:1", "did you mean `lease`?"),
    ] {
        let text = format!("store = \"sqlite://onceward.db\"\n{text}");
        fs::write(shop.path().join("r.toml"), &text).unwrap();
        for command in [&["relay", "--config", "r.toml"][..], &["check", "r.toml"]] {
            let finished = shop.finished(command);
            assert!(!finished.is_success(), "{text}");
            assert!(finished.stderr.contains(&format!("r.toml{place}")), "{text}{finished}");
            assert!(finished.stderr.contains(said), "{said}: {finished}");
            assert!(!finished.stderr.contains("secret@"), "{finished}");
        }
    }
}

#[test]
fn what_cannot_be_relayed_is_said_at_once() {
    let shop = Shop::new();
    for (arguments, said) in [
        (&["--store", "sqlite://onceward.db"][..], "there is no [[sink]]"),
        (&["--sink", "billing"], "write the name of the sink"),
        (&["--sink", "a=http://x/", "--topics", "b=order.*"], "no --sink that is called \"b\""),
        (&["--sink", "a=http://x/", "--sink", "a=http://y/"], "two sinks are called \"a\""),
        (&["--sink", "a=x"], "argument --sink: error: `url` has no scheme"),
        (&["--sink", "a=http://x/", "--store", "redis://h"], "has no outbox"),
        (&["--sink", "a=http://x/", "--store", "mysql://h"], "only sqlite, postgres and redis"),
        (&["rebase", "--store", "sqlite://onceward.db", "--reason", "x"], "needs no rebase"),
    ] {
        let finished = shop.finished(&[&["relay"], arguments].concat());
        assert!(!finished.is_success() && finished.stderr.contains(said), "{said}: {finished}");
    }
    let text =
        format!("store = \"sqlite://onceward.db\"\n{}token_env = \"NO_SUCH\"\n", billing(HERE));
    fs::write(shop.path().join("r.toml"), text).unwrap();
    let finished = shop.finished(&["relay", "--config", "r.toml"]);
    assert!(finished.stderr.contains("the environment variable NO_SUCH"), "{finished}");
    // A gateway has nothing to do with such a file.
    let finished = shop.finished(&["serve", "--config", "r.toml"]);
    assert!(finished.stderr.contains("`upstream` is missing"), "{finished}");
    let file = rusqlite::Connection::open(shop.path().join("onceward.db")).unwrap();
    file.execute_batch("INSERT INTO onceward_schema (version, applied_at) VALUES (99, 0)").unwrap();
    drop(file);
    let finished =
        shop.finished(&["relay", "--store", "sqlite://onceward.db", "--sink", "a=http://x/"]);
    assert!(!finished.is_success() && finished.stderr.contains("99"), "{finished}");
}

#[test]
fn a_file_for_relays_alone_is_valid() {
    let shop = Shop::new();
    let text =
        format!("store = \"sqlite://onceward.db\"\n{}topics = [\"order.*\"]\n", billing(HERE));
    fs::write(shop.path().join("r.toml"), text).unwrap();
    let said = shop.run(&["check", "r.toml"]);
    let sink = "sink      billing url=http://127.0.0.1:3000/events topics=order.* attempts=20 dead_letters=block";
    assert!(said.contains(sink) && !said.contains("upstream"), "{said}");
}
