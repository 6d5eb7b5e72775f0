//! Any other change makes keys new: it is refused while records of before live.

use crate::{
    gateway_support::{Gateway, Plan, Signal, Upstream, route, route_for},
    names::{restart, send},
};

const ACCEPT: &str = "accept_identity_change = true";

/// A change of `POST /charges/{id}`: what it had before, what it has now, and words of the refusal.
const CHANGES: [(&str, &str, [&str; 2]); 5] = [
    ("", "name = \"charge.create\"", ["`POST /charges/{id}`", "`charge.create`"]),
    ("name = \"a\"", "name = \"b\"", ["the name `a`", "the name would be `b`"]),
    ("name = \"a\"", "", ["the name `a`", "the name would be `POST /charges/{id}`"]),
    (
        "",
        "scope = [\"secret:x-api-key\", \"path:id\"]",
        ["the scope `secret:x-api-key`", "the scope `path:id,secret:x-api-key`"],
    ),
    ("", "key = \"off\"", ["`POST /charges/{id}`", "it takes no keys"]),
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
    for (before, now, words) in [CHANGES[0], CHANGES[3], CHANGES[4]] {
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

/// Another gateway's routes are none of this one's business, even where they have the same name.
#[tokio::test]
async fn routes_of_other_gateways_are_left_alone() {
    let upstream = Upstream::any();
    let first = Gateway::start(&upstream, &route("name = \"pay\""));
    first.send(&send("/pay", "k")).await;
    let text = route_for("POST /other", "name = \"pay\"\nscope = [\"global\"]");
    let second = Plan::new(&upstream.url(), &text).beside(&first).start();
    assert_eq!(second.send(&send("/other", "k")).await.status, 201);
    assert!(first.send(&send("/pay", "k")).await.is_replay());
    let said = second.wait_for("route_uncovered");
    assert!(said.contains("POST /pay"), "it may also be a route that was removed: {said}");
    let first = restart(first, &upstream, &route("name = \"pay\"")).start();
    assert!(first.send(&send("/pay", "k")).await.is_replay());
}

#[tokio::test]
async fn a_route_that_is_removed_or_hidden_is_warned_of() {
    let upstream = Upstream::any();
    let text = route_for("POST /charges/{id}", "") + &route("");
    let gateway = Gateway::start(&upstream, &text);
    gateway.send(&send("/charges/7", "k")).await;
    let old = gateway.configuration();
    let top = &old[..old.find("[[route]]").unwrap()];
    let hidden = route_for("POST /charges/{*rest}", "") + &text;
    for now in [route(""), hidden] {
        gateway.reload(&format!("{top}{now}"));
        let said = gateway.wait_for("route_uncovered");
        assert!(said.contains("POST /charges/{}") && said.contains("records=1"), "{said}");
        gateway.reload(&old);
        gateway.wait_for("read again");
    }
    assert!(gateway.send(&send("/charges/7", "k")).await.is_replay());
}
