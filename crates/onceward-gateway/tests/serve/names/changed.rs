//! Any other change makes keys new or leaves them without a route: it is refused while records of before live.

use crate::{
    gateway_support::{Gateway, Plan, Signal, Upstream, route, route_for},
    names::{restart, send},
};

const ACCEPT: &str = "accept_identity_change = true";

/// A change of `POST /charges/{id}`: what it had before, what it has now, and words of the refusal.
const CHANGES: [(&str, &str, [&str; 2]); 7] = [
    ("", "name = \"charge.create\"", ["`POST /charges/{id}`", "`charge.create`"]),
    ("name = \"a\"", "name = \"b\"", ["the name `a`", "the name would be `b`"]),
    ("name = \"a\"", "", ["the name `a`", "the name would be `POST /charges/{id}`"]),
    (
        "",
        "scope = [\"secret:x-api-key\", \"path:id\"]",
        ["the scope `secret:x-api-key`", "the scope `path:id,secret:x-api-key`"],
    ),
    ("", "key = \"off\"", ["`POST /charges/{id}`", "it takes no keys"]),
    ("", "key_header = [\"X-Key\"]", ["`header:idempotency-key`", "`header:x-key`"]),
    ("", "key_from = \"json:/id\"", ["`header:idempotency-key`", "`json:/id`"]),
];

#[tokio::test]
async fn a_start_that_would_run_keys_again_is_refused_until_it_is_accepted() {
    for (before, now, words) in CHANGES {
        let upstream = Upstream::any();
        let text = |lines: &str| route_for("POST /charges/{id}", lines);
        let gateway = Gateway::start(&upstream, &text(before));
        let first = gateway.send(&send("/charges/7", "k")).await;
        assert_eq!(first.status, 201);
        let plan = restart(gateway, &upstream, &text(now));
        let said = plan.refusal();
        for word in words.into_iter().chain([ACCEPT, "1 live record has", "would run again"]) {
            assert!(said.contains(word), "{now}: {word:?} is not said:\n{said}");
        }
        // Nothing was changed by that.
        let plan = Plan { text: Plan::new(&upstream.url(), &text(before)).text, ..plan };
        let gateway = plan.start();
        assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
        // Below the route, or for all of them.
        let accepted = match before {
            "" => format!("{ACCEPT}\n{}", text(now)),
            _ => text(&format!("{now}\n{ACCEPT}")),
        };
        let gateway = restart(gateway, &upstream, &accepted).start();
        assert!(!gateway.send(&send("/charges/7", "k")).await.is_replay(), "{now}");
        gateway.signal(Signal::TERM);
        let said = gateway.rest_of_log();
        assert!(said.contains("identity_changed") && said.contains("1 live record has"), "{said}");
        // The next start has nothing to accept any more, and says that the line is still there.
        let idle =
            Plan { directory: gateway.directory.clone(), ..Plan::new(&upstream.url(), &accepted) };
        let gateway = idle.start();
        gateway.signal(Signal::TERM);
        let said = gateway.rest_of_log();
        assert!(said.contains("nothing needs it"), "{said}");
        // From now on this is how it is kept: without the line, and whatever else is new.
        let directory = gateway.directory.clone();
        let next = text(now) + &route("");
        Plan { directory, ..Plan::new(&upstream.url(), &next) }.start().kill();
        assert_eq!(upstream.count().await, 2);
    }
}

#[tokio::test]
async fn a_reload_that_would_run_keys_again_changes_nothing() {
    for (before, now, words) in [CHANGES[0], CHANGES[3], CHANGES[4], CHANGES[5]] {
        let upstream = Upstream::any();
        let text = |lines: &str| route_for("POST /charges/{id}", lines);
        let gateway = Gateway::start(&upstream, &text(before));
        gateway.send(&send("/charges/7", "k")).await;
        let top = gateway.configuration();
        let top = &top[..top.find("[[route]]").unwrap()];
        gateway.reload(&format!("{top}{}{}", text(now), route("")));
        gateway.wait_for("the old routes stay");
        assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
        let new = gateway.send(&send("/pay", "k")).await;
        assert_eq!(new.header("onceward-operation"), None, "nothing of it is in effect");
        assert_eq!(upstream.count().await, 2);
        gateway.signal(Signal::TERM);
        let said = gateway.rest_of_log();
        for word in words.into_iter().chain(["ERROR", "identity_changed", ACCEPT]) {
            assert!(said.contains(word), "{now}: {word:?} is not said:\n{said}");
        }
    }
}

#[tokio::test]
async fn routes_that_swap_their_names_are_refused() {
    let upstream = Upstream::any();
    let text = |one: &str, other: &str| {
        route_for("POST /one", &format!("name = \"{one}\""))
            + &route_for("POST /other", &format!("name = \"{other}\""))
    };
    let gateway = Gateway::start(&upstream, &text("a", "b"));
    gateway.send(&send("/one", "k")).await;
    let said = restart(gateway, &upstream, &text("b", "a")).refusal();
    assert!(said.contains("POST /one: 1 live record has the name `a`"), "{said}");
    assert!(!said.contains("POST /other:"), "{said}");
}

#[tokio::test]
async fn a_route_that_names_operations_by_their_path_is_compared_too() {
    let upstream = Upstream::any();
    let text = |lines: &str| route("") + &route_for("POST /{*rest}", lines);
    let gateway = Gateway::start(&upstream, &text(""));
    for path in ["/files/a", "/files/b", "/pay"] {
        gateway.send(&send(path, "k")).await;
    }
    let gateway = restart(gateway, &upstream, &text("").replace("{*rest}", "{*path}")).start();
    assert!(gateway.send(&send("/files/a", "k")).await.is_replay());
    let directory = gateway.kill();
    for now in ["name = \"all\"", "scope = [\"global\"]"] {
        let plan = Plan { directory: directory.clone(), ..Plan::new(&upstream.url(), &text(now)) };
        let said = plan.refusal();
        assert!(said.contains("2 live records have the name of their path"), "{now}: {said}");
    }
}

#[tokio::test]
async fn only_live_records_keep_a_route_as_it_is() {
    let upstream = Upstream::any();
    let text = |lines: &str| route_for("POST /charges/{id}", lines);
    let gateway = Gateway::start(&upstream, &text(""));
    gateway.send(&send("/charges/7", "k")).await;
    let file = gateway.store();
    let plan = restart(gateway, &upstream, &text("name = \"charge.create\""));
    let record = |set: &str| {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let changed = connection.execute(&format!("UPDATE onceward_record SET {set}"), []);
        assert_eq!(changed.unwrap(), 1);
    };
    // In progress, though its lease is over; unknown for ever.
    for live in ["state = 0, expires_at = 1", "state = 1, expires_at = NULL"] {
        record(live);
        assert!(plan.refusal().contains("1 live record has"), "{live}");
    }
    // Its retention was over five seconds ago; its key was given back.
    let ended = "state = 3, expires_at = unixepoch() * 1000000 - 5000000";
    for over in [ended, "state = 5, expires_at = NULL"] {
        record(over);
        plan.start().kill();
        record("state = 3, expires_at = NULL");
        let back = Plan { text: Plan::new(&upstream.url(), &text("")).text, ..Plan::new("", "") };
        let back = Plan { directory: plan.directory.clone(), ..back };
        // The names of before are not forgotten, and their record is not the new route's.
        back.start().kill();
    }
}

/// Names may be added behind those of before: what was read first still is.
#[tokio::test]
async fn headers_of_keys_may_be_added_at_the_end_alone() {
    let upstream = Upstream::any();
    let text = |names: &str| route_for("POST /charges/{id}", &format!("key_header = [{names}]"));
    let both = "\"Idempotency-Key\", \"X-Key\"";
    let gateway = Gateway::start(&upstream, &text(both));
    gateway.send(&send("/charges/7", "k")).await;
    let directory = gateway.kill();
    for other in [
        "\"X-Key\", \"Idempotency-Key\"",
        "\"Idempotency-Key\"",
        "\"X-New\", \"Idempotency-Key\", \"X-Key\"",
    ] {
        let plan =
            Plan { directory: directory.clone(), ..Plan::new(&upstream.url(), &text(other)) };
        let said = plan.refusal();
        assert!(said.contains("`header:idempotency-key,x-key`"), "{other}: {said}");
    }
    // Names of headers have no case.
    let more = text(&format!("{}, \"X-New\"", both.to_lowercase()));
    let plan = Plan { directory, ..Plan::new(&upstream.url(), &more) };
    let gateway = plan.start();
    assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
    let said = restart(gateway, &upstream, &text(both)).refusal();
    assert!(said.contains("`header:idempotency-key,x-key,x-new`"), "what was added counts: {said}");
}

/// What was written before stores knew where keys are: anything is right once, and then remembered.
#[tokio::test]
async fn a_row_without_a_source_of_keys_is_filled_in() {
    let upstream = Upstream::any();
    let text = |lines: &str| route_for("POST /charges/{id}", lines);
    let gateway = Gateway::start(&upstream, &text(""));
    gateway.send(&send("/charges/7", "k")).await;
    let file = gateway.store();
    let plan = restart(gateway, &upstream, &text(""));
    let connection = rusqlite::Connection::open(&file).unwrap();
    let forget = "UPDATE onceward_route SET key_source = '', upstream = ''";
    assert_eq!(connection.execute(forget, []).unwrap(), 1);
    drop(connection);
    let gateway = plan.start();
    assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
    let gateway = restart(gateway, &upstream, &text("key_header = [\"X-Key\"]"));
    assert!(gateway.refusal().contains("`header:idempotency-key`"));
}

/// The routes of a gateway in front of something else are none of this one's business, even where they have
/// the same name.
#[tokio::test]
async fn routes_of_other_gateways_are_left_alone() {
    let (upstream, other) = (Upstream::any(), Upstream::any());
    let first = Gateway::start(&upstream, &route("name = \"pay\""));
    first.send(&send("/pay", "k")).await;
    let text = route_for("POST /other", "name = \"pay\"\nscope = [\"global\"]");
    let second = Plan::new(&other.url(), &text).beside(&first).start();
    assert_eq!(second.send(&send("/other", "k")).await.status, 201);
    assert!(first.send(&send("/pay", "k")).await.is_replay());
    let said = second.wait_for("route_uncovered");
    assert!(said.contains("POST /pay"), "it may also be a route that was removed: {said}");
    let first = restart(first, &upstream, &route("name = \"pay\"")).start();
    assert!(first.send(&send("/pay", "k")).await.is_replay());
}

/// Routes that do not cover `POST /charges/{id}` any more, and words of the refusal.
fn uncovering() -> [(String, &'static str); 5] {
    let before = route_for("POST,PUT /charges/{id}", "");
    [
        (route(""), "no route takes its requests"),
        (route_for("PUT /charges/{id}", ""), "no route takes its requests"),
        (
            route_for("POST,PUT /charges/{*rest}", ""),
            "`POST,PUT /charges/{*rest}` takes its requests",
        ),
        (
            route_for("POST /charges/{*rest}", "") + &before,
            "`POST /charges/{*rest}` takes its requests",
        ),
        (
            route_for("POST /{*rest}", "key = \"off\"") + &before,
            "`POST /{*rest}` takes its requests",
        ),
    ]
}

#[tokio::test]
async fn a_start_without_the_route_of_live_records_is_refused_until_it_is_accepted() {
    for (now, words) in uncovering() {
        let upstream = Upstream::any();
        let before = route_for("POST,PUT /charges/{id}", "");
        let gateway = Gateway::start(&upstream, &before);
        gateway.send(&send("/charges/7", "k")).await;
        let plan = restart(gateway, &upstream, &now);
        let said = plan.refusal();
        let name = "1 live record has the name `POST /charges/{id}`";
        for word in [words, name, ACCEPT, "would run again"] {
            assert!(said.contains(word), "{now}: {word:?} is not said:\n{said}");
        }
        let plan = Plan { text: Plan::new(&upstream.url(), &before).text, ..plan };
        let gateway = plan.start();
        assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
        // Below the route that takes its requests, or for all of them.
        let below = now.replacen("[[route]]", &format!("[[route]]\n{ACCEPT}"), 1);
        let accepted = if words.starts_with('`') { below } else { format!("{ACCEPT}\n{now}") };
        let gateway = restart(gateway, &upstream, &accepted).start();
        assert!(!gateway.send(&send("/charges/7", "k")).await.is_replay(), "{now}");
        gateway.signal(Signal::TERM);
        let said = gateway.rest_of_log();
        assert!(said.contains("identity_changed") && said.contains(name), "{said}");
        assert!(!said.contains("nothing needs it"), "{said}");
        let directory = gateway.directory.clone();
        let next =
            Plan { directory, ..Plan::new(&upstream.url(), &(now + &route_for("POST /new", ""))) };
        next.start().kill();
    }
}

#[tokio::test]
async fn a_reload_without_the_route_of_live_records_changes_nothing() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route_for("POST,PUT /charges/{id}", ""));
    gateway.send(&send("/charges/7", "k")).await;
    let old = gateway.configuration();
    let top = &old[..old.find("[[route]]").unwrap()];
    for (now, words) in uncovering() {
        gateway.reload(&format!("{top}{now}"));
        gateway.wait_for("the old routes stay");
        gateway.wait_for(words);
        assert!(gateway.send(&send("/charges/7", "k")).await.is_replay(), "{now}");
    }
    assert_eq!(upstream.count().await, 1);
}

/// Only what the new route takes of them is refused: it does not find it under another name.
#[tokio::test]
async fn a_new_route_that_takes_paths_of_another_one_is_compared() {
    let upstream = Upstream::any();
    let rest = route_for("POST /{*rest}", "");
    let gateway = Gateway::start(&upstream, &rest);
    for path in ["/files/a", "/pay"] {
        gateway.send(&send(path, "k")).await;
    }
    let text = |lines: &str| route_for("POST /pay", lines) + &rest;
    let plan = restart(gateway, &upstream, &text("name = \"pay\""));
    let said = plan.refusal();
    assert!(said.contains("POST /pay: 1 live record has the name of their path"), "{said}");
    let gateway = Plan { text: Plan::new(&upstream.url(), &text("")).text, ..plan }.start();
    assert!(gateway.send(&send("/pay", "k")).await.is_replay(), "its name is the path, too");
}

#[tokio::test]
async fn a_route_may_move_if_its_name_stays() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route_for("POST /charges/{id}", "name = \"charge\""));
    gateway.send(&send("/charges/7", "k")).await;
    let moved = route_for("POST /v2/charges", "name = \"charge\"");
    let other_keys = moved.clone() + "key_header = [\"X-Key\"]\n";
    let plan = restart(gateway, &upstream, &other_keys);
    assert!(plan.refusal().contains("no route takes its requests"));
    let gateway = Plan { text: Plan::new(&upstream.url(), &moved).text, ..plan }.start();
    let again = gateway.send(&send("/v2/charges", "k")).await;
    assert_eq!(again.status, 422, "the key is bound to another request: {}", again.text());
    assert_eq!(upstream.count().await, 1);
}
