//! Options that do not fit together, within one route and among several.

use crate::config::support::{TOP, accepted, each_is_explained, only_mistake, refused, route};

/// A route of two lines and what it must have.
fn short(line: &str) -> String {
    format!("[[route]]\nmatch = \"{line}\"\nscope = [\"global\"]\nauthorize = \"none\"\n")
}

#[test]
fn a_match_is_methods_and_a_path() {
    for (line, message, help) in [
        ("/v1", "`match` is not a method, a space and a path", "\"POST /v1/charges\""),
        ("GET /v1", "GET changes nothing and takes no key", "POST, PATCH, PUT and DELETE"),
        ("post /v1", "unknown method", "did you mean POST?"),
        ("POST, PATCH /v1", "unknown method", "commas"),
        ("FETCH /v1", "unknown method", "PATCH"),
        ("POST,POST /v1", "`match` has POST twice", "remove one"),
        ("POST v1", "does not start with `/`", "POST /v1/charges"),
        ("POST /v1/:id", "`:` does not stand for a segment", "write `{id}`"),
        ("POST /v1/*", "`*` does not stand for a segment", "{*rest}"),
        ("POST /{*rest}/a", "nothing can follow it", "{rest}"),
        ("POST /{a}/{a}", "stands in the path twice", "its own name"),
        ("POST /a?b=c", "'?' cannot stand in a path", "leave the query out"),
        ("POST /.onceward/x", "this never matches", "remove this route"),
    ] {
        let said = refused(&format!("{TOP}{}", short(line)));
        assert!(said.contains("o.toml:3:9: error: "), "{line}\n{said}");
        assert!(said.contains(message) && said.contains(help), "{line}\n{said}");
    }
    let (said, help) = only_mistake(&format!("{TOP}{}", short("POST /a")).replace("match", "name"));
    assert!(said.starts_with("2:1: ") && said.contains("no `match`"), "{said}");
    assert!(help.contains("match = \"POST /v1/charges\""), "{help}");
}

#[test]
fn a_name_is_a_name() {
    each_is_explained(&[
        ("name = \"\"", "6:8: `name`: an operation name has 1 to 8192 bytes", "charge.create"),
        ("name = \"a\\nb\"", "no control characters", "charge.create"),
    ]);
}

/// The service ends such an operation itself, so that much is not for the gateway to say.
#[test]
fn transactional_routes_need_a_store_that_the_service_shares() {
    let top = "store = \"postgres://shop@db/shop\"\n";
    let transactional =
        |lines: &str| format!("{top}{}", route(&format!("effect = \"transactional\"\n{lines}")));
    let said = accepted(&transactional(""));
    for part in ["effect=transactional profile=none", "lease=1m tier=T1"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(accepted(&transactional("lease = \"30s\"")).contains("lease=30s"));
    for (line, message, help) in [
        ("profile = \"strict\"", "`profile` says what an answer means", "remove it"),
        ("on_500 = \"hold\"", "`on_500` says what an answer means", "remove it"),
        ("not_applied = [503]", "`not_applied` says what an answer means", "remove it"),
        ("released = [409]", "`released` says what an answer means", "remove it"),
        ("final = [429]", "`final` says what an answer means", "remove it"),
        ("rerun_within = \"1h\"", "`rerun_within` goes only with", "effect = \"repeatable\""),
        ("redact_json = [\"/a\"]", "`redact_json` hides nothing", "onceward.complete"),
        ("redact_headers = [\"a\"]", "`redact_headers` hides nothing", "onceward.complete"),
        ("on_store_down = \"pass\"", "does not go with effect", "on_store_down = \"refuse\""),
    ] {
        let (said, advice) = only_mistake(&transactional(line));
        assert!(said.contains(message), "{line}\n{said}");
        assert!(advice.contains(help), "{line}\n{advice}");
    }
    let defaults = "[defaults]\nprofile = \"stripe\"\nnot_applied = [503]\nreleased = [409]\n\
                    final = [429]\non_500 = \"replay\"\n";
    let said = accepted(&(transactional("") + defaults));
    assert!(said.contains("profile=none"), "those of [defaults] are for other routes: {said}");
    let sealed = "[encryption]\nkey_env = \"SESAME\"\n";
    let (said, advice) = only_mistake(&(transactional("") + sealed));
    assert!(said.contains("no key to hide it with"), "{said}");
    assert!(advice.contains("keep = \"status\""), "{advice}");
    accepted(&(transactional("keep = \"status\"") + sealed));
}

#[test]
fn effects_and_profiles_fit_together() {
    each_is_explained(&[
        ("effect = \"transactional\"", "6:10: `effect = \"transactional\"`", "\"repeatable\""),
        (
            "effect = \"transactionel\"",
            "6:10: `effect` must be one of external, transactional, repeatable",
            "did you mean \"transactional\"?",
        ),
        ("effect = \"repeatable\"", "6:10: effect \"repeatable\" needs `rerun_within`", "\"23h\""),
        (
            "rerun_within = \"23h\"",
            "6:16: `rerun_within` goes only with",
            "effect = \"repeatable\"",
        ),
        (
            "rerun_within = \"20s\"\neffect = \"repeatable\"",
            "6:16: `rerun_within` is 20s, shorter than the lease of 30s",
            "raise `rerun_within`",
        ),
        ("profile = \"rerun\"", "6:11: `profile = \"rerun\"`", "effect = \"repeatable\""),
        ("on_500 = \"hold\"\nprofile = \"stripe\"", "6:10: `on_500 = \"hold\"`", "leave it out"),
        (
            "on_500 = \"hold\"\neffect = \"repeatable\"\nrerun_within = \"1h\"",
            "`on_500 = \"hold\"` goes only with the profiles \"standard\" and \"strict\"",
            "leave it out",
        ),
        (
            "final = [429, 409]\nreleased = [409]",
            "6:15: 409 is in `final` and in `released`",
            "leave it in one of them",
        ),
        (
            "not_applied = [503]\nfinal = [503]",
            "7:10: 503 is in `final` and in `not_applied`",
            "leave it in one of them",
        ),
    ]);
    for lines in [
        "effect = \"repeatable\"\nrerun_within = \"1h\"",
        "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"rerun\"",
        "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"strict\"\non_500 = \"hold\"",
        "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"standard\"\non_500 = \"hold\"",
        "effect = \"repeatable\"\nrerun_within = \"1h\"\nprofile = \"stripe\"",
        "profile = \"stripe\"\nnot_applied = [503]",
        "profile = \"stripe\"\nreleased = [409]\nfinal = [400, 429]",
        "on_500 = \"hold\"\nfinal = [500]",
        "on_500 = \"hold\"",
    ] {
        accepted(&route(lines));
    }
}

#[test]
fn times_fit_together() {
    each_is_explained(&[
        ("max_run = \"10s\"", "6:11: `max_run` is 10s, shorter than `lease`", "30s"),
        ("retain = \"10s\"", "6:10: `retain` is 10s, shorter than `lease` of 30s", "\"30s\""),
        (
            "retain = \"1h\"\nretry_window = \"2h\"",
            "6:10: `retain` is 1h, shorter than `retry_window` of 2h",
            "raise `retain` to at least \"2h\"",
        ),
        ("retry_window = \"2d\"", "6:16: `retain` is 24h, shorter than `retry_window`", "\"2d\""),
        ("unknown_retain = \"1h\"", "`unknown_retain` is 1h, shorter than `retain`", "\"never\""),
    ]);
    accepted(&route("lease = \"20m\""));
    let said = accepted(&route("wait = \"3s\""));
    assert!(!said.contains("warning"), "duplicates wait by default: {said}");
    for other in ["conflict", "accepted", "async"] {
        let said = accepted(&route(&format!("wait = \"3s\"\nin_flight = \"{other}\"")));
        assert!(said.contains("o.toml:6:8: warning: `wait` means nothing without"), "{said}");
    }
    let said = accepted(&route("wait = \"3s\"\ntimeout = \"11m\"\nin_flight = \"conflict\""));
    assert!(said.contains("o.toml:6:8: warning: `wait` means nothing without"), "{said}");
    let longer = "o.toml:7:11: warning: `timeout` of 11m is longer than `max_run` of 10m";
    assert!(said.contains(longer), "{said}");
    let said = accepted(&route("lease = \"5s\"\nmax_run = \"10s\""));
    let longer = "o.toml:7:11: warning: `timeout` of 30s is longer than `max_run` of 10s";
    assert!(said.contains(longer), "{said}");
}

#[test]
fn headers_are_kept_or_dropped() {
    each_is_explained(&[
        (
            "keep_headers = [\"connection\"]",
            "6:16: `keep_headers`: `connection` belongs",
            "change it",
        ),
        (
            "keep_headers = [\"a\"]\ndrop_headers = [\"A\"]",
            "to be kept and to be dropped",
            "change",
        ),
    ]);
    let said = accepted(&route("fingerprint_headers = [\"Authorization\"]"));
    assert!(said.contains("warning: `fingerprint_headers` has `authorization`"), "{said}");
}

#[test]
fn the_first_route_that_matches_wins() {
    let two = |one: &str, other: &str| format!("{TOP}{}{}", short(one), short(other));
    let (said, help) = only_mistake(&two("POST,PUT /v1/{a}", "POST /v1/{b}"));
    assert_eq!(said, "6:1: POST /v1/{b} has a route already, at o.toml:2:1");
    assert!(help.contains("the first route that matches wins"), "{help}");
    let said = accepted(&two("POST /{*rest}", "POST,PUT /v1"));
    let expected =
        "o.toml:6:1: warning: POST /v1 never comes here: the route at o.toml:2:1 covers it";
    assert!(said.contains(expected), "{said}");
    for (one, other) in
        [("POST /v1", "POST /{*rest}"), ("POST /v1", "PUT /v1"), ("POST /a", "POST /b")]
    {
        assert!(!accepted(&two(one, other)).contains("warning"), "{one} {other}");
    }
}

#[test]
fn two_routes_with_one_name_share_their_keys_and_that_is_noted() {
    let one = short("POST /a") + "name = \"charge\"\n";
    let said = accepted(&format!("{TOP}{one}{}", one.replace("/a", "/b")));
    let expected = "o.toml:7:1: note: this route has the name of the one at o.toml:2:1";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_file_without_routes_protects_nothing() {
    let (said, help) = only_mistake(TOP);
    assert!(said.contains("there is no [[route]]: nothing would be protected"), "{said}");
    assert!(help.contains("add [[route]] with match"), "{help}");
    let said = accepted(&format!("{TOP}[defaults]\nscope = [\"global\"]\nauthorize = \"none\"\n"));
    assert!(said.contains("note: there is no [[route]]: one covers POST,PATCH /{*rest}"), "{said}");
}

#[test]
fn defaults_are_for_routes_and_their_mistakes_are_said_once() {
    let defaults = "[defaults]\nprofile = \"rerun\"\nrerun_within = \"1h\"\n";
    let routes = short("POST /a") + &short("POST /b");
    let (said, _) = only_mistake(&format!("{TOP}{defaults}{routes}"));
    assert!(said.starts_with("3:11: `profile = \"rerun\"`"), "{said}");
    let said = accepted(&format!("{TOP}{defaults}{routes}").replace("profile = \"rerun\"", ""));
    assert!(
        said.contains("profile=standard"),
        "what is there for repeatable routes harms no other"
    );
    let said = accepted(&format!(
        "{TOP}{defaults}effect = \"repeatable\"\n{}effect = \"external\"\nprofile = \"strict\"\n{}",
        short("POST /a"),
        short("POST /b")
    ));
    assert!(said.contains("POST /a key=optional effect=external profile=strict"), "{said}");
    assert!(said.contains("POST /b key=optional effect=repeatable profile=rerun"), "{said}");
    let (said, help) = only_mistake(&format!("{TOP}[defaults]\nname = \"a\"\n{routes}"));
    assert!(said.starts_with("3:8: `name` belongs to one route"), "{said}");
    assert!(help.contains("[[route]]"), "{help}");
}

#[test]
fn what_passes_while_the_store_is_down_is_noted() {
    let said = accepted(&route("on_store_down = \"pass\""));
    assert!(said.contains("o.toml:6:17: note: `on_store_down = \"pass\"`"), "{said}");
}

#[test]
fn a_202_that_stripes_sdks_would_misread_is_noted() {
    for in_flight in ["accepted", "async"] {
        let said = accepted(&route(&format!("errors = \"stripe\"\nin_flight = \"{in_flight}\"")));
        assert!(said.contains("note: `in_flight`: Stripe's SDKs take the 202"), "{said}");
    }
    let said = accepted(&route("in_flight = \"accepted\""));
    assert!(!said.contains("SDKs"), "{said}");
}
