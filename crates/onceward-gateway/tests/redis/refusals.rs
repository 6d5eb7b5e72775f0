//! What does not go with Redis and Valkey, and servers that cannot keep records: said at once, with what to do.

use std::fs;

use crate::{
    gateway_support::{Finished, Plan, Upstream, command, route},
    support::{place, plan, server},
};

/// The same words from `check` and from `serve`, and nothing of the password.
fn assert_refused(plan: &Plan, words: &[&str]) {
    let said = plan.refusal();
    let path = plan.directory.path().join(&plan.file);
    let checked = Finished::of(command(&["check"]).arg(path));
    assert!(!checked.is_success(), "{checked}");
    for text in [&said, &checked.stderr] {
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        assert!(!text.contains("sesame"), "{text}");
    }
}

#[test]
fn strict_is_refused_whether_it_is_said_or_not() {
    let upstream = Upstream::any();
    let relaxed = plan(&upstream, "redis://:sesame@127.0.0.1:1", "");
    for said in ["", "guarantee = \"strict\"\n"] {
        let text = relaxed.text.replace("guarantee = \"relaxed\"\n", said);
        let strict = Plan { text, directory: relaxed.directory.clone(), ..plan(&upstream, "", "") };
        assert_refused(
            &strict,
            &["guarantee = \"strict\"", "may lose a record", "guarantee = \"relaxed\""],
        );
    }
}

#[test]
fn effects_that_need_a_commit_and_messages_are_refused() {
    let upstream = Upstream::any();
    let store = "redis://:sesame@127.0.0.1:1";
    let transactional = plan(&upstream, store, "effect = \"transactional\"");
    assert_refused(&transactional, &["has nothing to commit in", "postgres://"]);
    let mut sinks = plan(&upstream, store, "");
    sinks.text += "[[sink]]\nname = \"billing\"\nurl = \"http://127.0.0.1:1/\"\n";
    assert_refused(&sinks, &["has no outbox", "[[sink]]"]);
    for arguments in [
        &["relay", "--sink", "a=http://127.0.0.1:1/", "--store", store][..],
        &["relay", "--store", store],
        &["relay", "rebase", "--store", store, "--reason", "x"],
        &["messages", "list", "--store", &place()],
        &["messages", "sinks", "--store", &place()],
    ] {
        let finished = Finished::of(&mut command(arguments));
        assert!(!finished.is_success(), "{arguments:?}");
        assert!(finished.stderr.contains("no outbox"), "{arguments:?}: {finished}");
        assert!(finished.stderr.contains("postgres://"), "what to use instead: {finished}");
    }
}

/// A server that throws records away, one that refuses this user, and one that is not there.
#[test]
fn servers_that_cannot_keep_records_are_refused() {
    let upstream = Upstream::any();
    let evicting = server(&[("maxmemory-policy", "volatile-lru")]);
    let closed = server(&[("requirepass", "sesame")]);
    for (store, words) in [
        (evicting.url(), &["maxmemory-policy volatile-lru", "noeviction"][..]),
        (closed.url(), &["does not let us in", "user and password"]),
        ("redis://:sesame@127.0.0.1:1".to_owned(), &["no Redis or Valkey server"]),
    ] {
        let said = plan(&upstream, &store, "").refusal();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        assert!(!said.contains("sesame"), "{said}");
    }
    let open = closed.url().replace("://", "://:sesame@");
    let gateway = plan(&upstream, &open, "").start();
    assert!(gateway.said_so_far().contains("records in redis://:***@"), "its password is hidden");
}

#[test]
fn addresses_are_checked_and_shown_without_their_password() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("onceward.toml");
    let check = |store: &str| {
        let top = format!(
            "upstream = \"http://127.0.0.1:1\"\nguarantee = \"relaxed\"\nstore = \"{store}\"\n"
        );
        fs::write(&file, top + &route("")).unwrap();
        Finished::of(command(&["check"]).arg(&file))
    };
    for (store, shown) in [
        (
            "redis://u:sesame@h:7/1?prefix=shop&connections=4",
            "redis://u:***@h:7/1?prefix=shop&connections=4",
        ),
        ("rediss://:sesame@h", "rediss://:***@h"),
        ("redis+cluster://a,b:2?wait_replicas=1", "redis+cluster://a,b:2?wait_replicas=1"),
        ("redis+sentinel://a,b/0?service=shop", "redis+sentinel://a,b/0?service=shop"),
        ("valkey://:sesame@h", "valkey://:***@h"),
        ("valkeys+cluster://h", "valkeys+cluster://h"),
    ] {
        let said = check(store);
        assert!(said.is_success(), "{store}: {said}");
        let line = format!("store     {shown} (relaxed)");
        assert!(said.stdout.contains(&line) && !said.stdout.contains("sesame"), "{said}");
    }
    for (store, message, help) in [
        ("redi://h", "is of an unknown kind", "did you mean \\\"redis://\\\"?"),
        ("redis+clustre://h", "is of an unknown kind", "did you mean \\\"redis+cluster://\\\"?"),
        ("valky://h", "is of an unknown kind", "did you mean \\\"valkey://\\\"?"),
        ("redis://", "`store` names no host", "redis://user:password@host"),
        ("redis://u:ses@me@h", "`store` has a `/` or an `@`", "%40 for @"),
        ("redis://:sesame@h?prefx=a", "unknown option `prefx`", "did you mean `prefix`?"),
        ("redis+sentinel://:sesame@h", "sentinels without a service", "?service="),
        ("redis://a,b", "names several servers", "redis+cluster://"),
    ] {
        let said = check(store);
        let help = help.replace("\\\"", "\"");
        assert!(!said.is_success() && said.stderr.contains(message), "{store}: {said}");
        assert!(said.stderr.contains(&help), "{help}: {said}");
        assert!(!said.stderr.contains("sesame") && !said.stderr.contains("ses@"), "{said}");
    }
}
