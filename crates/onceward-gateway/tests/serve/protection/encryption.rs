//! `[encryption]`: nothing of an answer can be read in the file, and nothing is lost without a sound.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    gateway_support::{Gateway, Plan, Signal, Upstream, pattern, route, upstreams},
    protection::{pay, shows},
};

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const OTHER_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
const SECTION: &str = "[encryption]\nkey_file = \"onceward.key\"\n";

/// A gateway in this directory, or in a new one, with these keys; `None`: without encryption.
fn plan(upstream: &Upstream, directory: Option<&Arc<TempDir>>, keys: Option<&str>) -> Plan {
    let section = if keys.is_some() { SECTION } else { "" };
    let mut plan = Plan::new(&upstream.url(), &format!("{section}{}", route("")));
    if let Some(directory) = directory {
        plan.directory = directory.clone();
    }
    let file = plan.directory.path().join("onceward.key");
    fs::write(&file, keys.unwrap_or_default()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    plan
}

#[tokio::test]
async fn answers_are_replayed_verbatim_and_the_file_shows_nothing_of_them() {
    for upstream in upstreams() {
        let gateway = plan(&upstream, None, Some(KEY)).start();
        let told =
            json!({"body": "a planted body", "headers": [["X-Planted", "a planted header"]]});
        let small = gateway.send(&pay("small").told(told)).await;
        let large = gateway.send(&pay("large").told(json!({"size": 300_000}))).await;
        assert_eq!((small.text(), large.body.len()), ("a planted body", 300_000));
        assert!(shows(&gateway, "POST /pay"), "names are not hidden: the files are the right ones");
        for text in ["a planted body", "a planted header", "x-planted"] {
            assert!(!shows(&gateway, text), "{text}");
        }
        let part: String = pattern(300_000)[..250].iter().map(|byte| char::from(*byte)).collect();
        assert!(!shows(&gateway, &part));
        let directory = gateway.kill();
        let gateway = plan(&upstream, Some(&directory), Some(KEY)).start();
        for (key, first) in [("small", &small), ("large", &large)] {
            let again = gateway.send(&pay(key)).await;
            assert!(again.is_replay(), "{key}");
            assert_eq!((again.status, &again.body), (first.status, &first.body));
            assert_eq!(again.header("x-planted"), first.header("x-planted"));
        }
        assert_eq!(upstream.count().await, 2);
    }
}

/// Otherwise the test above could not fail.
#[tokio::test]
async fn without_encryption_the_file_shows_everything() {
    let upstream = Upstream::any();
    let gateway = plan(&upstream, None, None).start();
    let told = json!({"body": "a planted body", "headers": [["X-Planted", "a planted header"]]});
    gateway.send(&pay("small").told(told)).await;
    for text in ["a planted body", "a planted header", "x-planted"] {
        assert!(shows(&gateway, text), "{text}");
    }
}

#[tokio::test]
async fn keys_are_changed_and_lost() {
    let upstream = Upstream::any();
    let old = plan(&upstream, None, Some(KEY)).start();
    let first = old.send(&pay("old")).await;
    let directory = old.kill();

    let both = format!("# this year's\n{OTHER_KEY}\n# last year's\n{KEY}\n");
    let changed = plan(&upstream, Some(&directory), Some(&both)).start();
    assert_eq!(changed.send(&pay("old")).await.body, first.body);
    let other = changed.send(&pay("old").json(json!({"amount": 6}))).await;
    assert_eq!(other.problem(), (422, "key-reused".into()));
    changed.send(&pay("new")).await;
    changed.kill();

    let gateway = plan(&upstream, Some(&directory), Some(OTHER_KEY)).start();
    for _ in 0..2 {
        let lost = gateway.send(&pay("old")).await;
        assert_eq!(lost.problem(), (409, "outcome-unknown".into()));
    }
    gateway.wait_for("record_unreadable");
    gateway.kill();
    // The key of the newest answer is missing: every retry would be told so.
    for keys in [None, Some(KEY)] {
        let said = plan(&upstream, Some(&directory), keys).refusal();
        assert!(said.contains("[encryption]"), "{keys:?}: {said}");
    }
    let found = plan(&upstream, Some(&directory), Some(&both)).start();
    for key in ["old", "new"] {
        assert!(found.send(&pay(key)).await.is_replay(), "{key}");
    }
    assert_eq!(upstream.count().await, 2, "nothing ran again");
}

#[tokio::test]
async fn a_key_may_come_from_the_environment() {
    let upstream = Upstream::any();
    let text = format!("[encryption]\nkey_env = \"ONCEWARD_KEY\"\n{}", route(""));
    let gateway = Plan::new(&upstream.url(), &text).variable("ONCEWARD_KEY", KEY).start();
    gateway.send(&pay("k").told(json!({"body": "a planted body"}))).await;
    assert!(!shows(&gateway, "a planted body"));
    assert_eq!(gateway.send(&pay("k")).await.text(), "a planted body");
}

#[tokio::test]
async fn other_keys_count_only_after_a_restart() {
    let upstream = Upstream::any();
    let gateway = plan(&upstream, None, Some(KEY)).start();
    let first = gateway.send(&pay("k")).await;
    fs::write(gateway.directory.path().join("onceward.key"), OTHER_KEY).unwrap();
    gateway.reload(&gateway.configuration());
    let said = gateway.wait_for("the routes were read again");
    assert!(said.contains("another `[encryption]` counts only after a restart"), "{said}");
    let again = gateway.send(&pay("k")).await;
    assert!(again.is_replay() && again.body == first.body);
}

/// Starts it, though it will not serve.
fn refused(text: &str, key_file: Option<&str>) -> String {
    let plan = Plan::new("http://127.0.0.1:9", &format!("{text}{}", route("")));
    let plan = plan.variable("BAD_KEY", "c2VzYW1l");
    if let Some(keys) = key_file {
        fs::write(plan.directory.path().join("onceward.key"), keys).unwrap();
    }
    let said = plan.refusal();
    assert!(!plan.directory.path().join("onceward.db").exists(), "nothing was stored: {said}");
    assert!(!said.contains("c2VzYW1l") && !said.contains("sesame"), "{said}");
    said
}

#[test]
fn nothing_is_served_without_a_right_key() {
    let file = "[encryption]\nkey_file = \"onceward.key\"\n";
    for (text, keys, reason) in [
        (file, None, "there is no file"),
        (file, Some(""), "there is no key in it"),
        (file, Some("# only a comment"), "there is no key in it"),
        (file, Some("c2VzYW1l"), "the key in line 1 has 6 bytes instead of 32"),
        (file, Some("open sesame"), "line 1 is not a key in Base64"),
        (file, Some(&format!("{KEY}\n{KEY}\n")), "the key in line 2 is there already"),
        ("[encryption]\nkey_env = \"BAD_KEY\"\n", None, "has 6 bytes instead of 32"),
        ("[encryption]\nkey_env = \"NO_SUCH_KEY\"\n", None, "is not set, and nothing is served"),
        ("[encryption]\nkey_env = \"c2VzYW1l=\"\n", None, "is not the name of an environment"),
        ("[encryption]\n", None, "does not say where its key is"),
        (
            "[encryption]\nkey_env = \"BAD_KEY\"\nkey_file = \"onceward.key\"\n",
            Some(KEY),
            "has both `key_env` and `key_file`",
        ),
    ] {
        let said = refused(text, keys);
        assert!(said.contains(reason), "{text}{keys:?}\n{said}");
        assert!(
            said.contains("openssl rand") || said.contains("help: ") || said.contains("set it")
        );
    }
}

#[tokio::test]
async fn a_key_that_others_can_read_is_warned_about() {
    let upstream = Upstream::any();
    let careful = plan(&upstream, None, Some(KEY)).start();
    careful.signal(Signal::TERM);
    let open = plan(&upstream, None, Some(KEY));
    let file = open.directory.path().join("onceward.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let gateway: Gateway = open.start();
    let said = gateway.said_so_far();
    assert!(said.contains("warning: `key_file`: others than its owner may use"), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
    assert!(!careful.said_so_far().contains("chmod"), "{}", careful.said_so_far());
}
