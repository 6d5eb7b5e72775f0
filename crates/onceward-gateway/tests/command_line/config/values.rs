//! Values that are wrong by themselves, and options that do not exist.

use crate::config::support::{
    TOP, accepted, each_is_explained, mistake_of_route, only_mistake, refused, route,
};

#[test]
fn unknown_options_get_a_suggestion() {
    let (said, help) = mistake_of_route("retian = \"24h\"");
    assert_eq!(said, "6:1: there is no option `retian` here");
    assert_eq!(help, "did you mean `retain`?");
    let (_, help) = mistake_of_route("colour = 1");
    assert!(
        help.starts_with(
            "choose of accept_identity_change, attempt_timeout, attempts, authorize, "
        ),
        "{help}"
    );
    let (said, help) = only_mistake(&format!("upsteam = 1\n{}", route("")));
    assert_eq!(
        (said.as_str(), help.as_str()),
        ("1:1: there is no option `upsteam` here", "did you mean `upstream`?")
    );
    let jwt = "[jwt]\nsecret_env = \"A\"\naudiense = 1\n";
    let (said, help) = only_mistake(&(route("") + jwt));
    assert!(said.contains("`audiense`") && help.contains("`audience`"), "{said} {help}");
}

#[test]
fn values_of_another_type_are_named() {
    each_is_explained(&[
        ("lease = 30", "6:9: `lease` is a number; it must be a duration", "did you mean \"30s\"?"),
        ("lease = 3.5", "`lease` is a number with a point; it must be a duration", "\"30s\""),
        ("retain = true", "`retain` is true or false; it must be a duration", "\"30s\""),
        ("retain = 2026-01-01", "`retain` is a date; it must be a duration", "\"30s\""),
        ("max_request = 1048576", "`max_request` is a number; it must be a size", "\"64KiB\""),
        ("effect = []", "`effect` is a list; it must be a text", "write effect = \"external\""),
        ("mismatch = \"422\"", "`mismatch` is a text; it must be a number", "422, 409, 400"),
        (
            "keep_headers = \"etag\"",
            "`keep_headers` is a text; it must be a list",
            "[\"x-currency\"]",
        ),
        ("name = { a = 1 }", "`name` is a table; it must be a text", "\"charge.create\""),
    ]);
    let said = refused(&format!("{TOP}route = 1\ntls = 1\ndefaults = [1]\n"));
    for part in ["`route` is a number", "`tls` is a number", "`defaults` is a list"] {
        assert!(said.contains(part), "{said}");
    }
    let said = refused(&format!("{TOP}route = [1]\n"));
    assert!(said.contains("`route` has an item that is not a table"), "{said}");
}

#[test]
fn words_are_chosen_from_a_list() {
    each_is_explained(&[
        ("key = \"requird\"", "6:7: `key` must be one of required, optional, off", "\"required\"?"),
        ("effect = \"extrenal\"", "`effect` must be one of external", "did you mean \"external\"?"),
        (
            "profile = \"strip\"",
            "`profile` must be one of standard, strict, stripe, rerun",
            "\"stripe\"?",
        ),
        ("on_500 = \"x\"", "`on_500` must be one of replay, hold", "choose of replay, hold"),
        ("in_flight = \"waits\"", "`in_flight` must be one of", "did you mean \"wait\"?"),
        ("stale_keys = \"x\"", "`stale_keys` must be one of run, refuse", "choose of run, refuse"),
        ("on_store_down = \"fail\"", "`on_store_down` must be one of refuse, pass", "choose of"),
        ("mismatch = 418", "`mismatch` is not a status for it", "choose of 422, 409, 400"),
        ("mismatch = 99999999999999999999", "`mismatch` is not a status for it", "choose of 422"),
    ]);
}

#[test]
fn durations_have_units_and_bounds() {
    each_is_explained(&[
        ("lease = \"30 sec\"", "`lease` is not a duration", "did you mean \"30s\"?"),
        ("lease = \"soon\"", "`lease` is not a duration", "ms, s, m, h or d"),
        ("lease = \"99ms\"", "`lease` is 99ms", "between 100ms and 24h"),
        ("lease = \"25h\"\nmax_run = \"24h\"", "`lease` is 25h", "between 100ms and 24h"),
        ("retain = \"999ms\"", "`retain` is 999ms", "between 1s and"),
        ("timeout = \"9ms\"", "`timeout` is 9ms", "between 10ms and 24h"),
        ("unknown_retain = \"0s\"", "`unknown_retain` is 0s", "between 1s and"),
        ("unknown_retain = \"nver\"", "`unknown_retain` is not a duration", "ms, s, m, h or d"),
        (
            "rerun_within = \"0s\"\neffect = \"repeatable\"",
            "`rerun_within` is 0s",
            "between 1s and",
        ),
        ("wait = \"31s\"\nin_flight = \"wait\"", "`wait` is 31s", "between 0s and 30s"),
        ("retry_window = \"9999d\"", "`retry_window` is 9999d", "between 0s and 3653d"),
    ]);
}

#[test]
fn sizes_have_units_and_bounds() {
    each_is_explained(&[
        ("max_request = \"8MB\"", "`max_request` is not a size", "did you mean \"8MiB\"?"),
        ("max_request = \"big\"", "`max_request` is not a size", "KiB"),
        ("max_request = \"0B\"", "`max_request` is 0B", "between 1B and 64MiB"),
        ("max_response = \"65MiB\"", "`max_response` is 65MiB", "between 1B and 64MiB"),
    ]);
}

#[test]
fn the_smallest_and_largest_values_are_right() {
    for lines in [
        "lease = \"100ms\"\nmax_run = \"100ms\"\nretain = \"1s\"\ntimeout = \"10ms\"",
        "lease = \"24h\"\nwait = \"0s\"\nin_flight = \"wait\"",
        "wait = \"30s\"\nin_flight = \"wait\"\nmax_request = \"1B\"\nmax_response = \"64MiB\"",
        "effect = \"repeatable\"\nrerun_within = \"1s\"\nlease = \"1s\"",
        "unknown_retain = \"24h\"\nretry_window = \"24h\"\nmax_response = \"1B\"",
    ] {
        accepted(&route(lines));
    }
}

#[test]
fn lists_name_what_they_hold() {
    each_is_explained(&[
        ("not_applied = [429]", "6:16: `not_applied` has an item", "[503]"),
        ("not_applied = [409]", "6:16: `not_applied` has an item", "`released`"),
        ("released = [200]", "6:13: `released` has an item", "would double it"),
        ("released = [409, 503]", "6:18: `released` has an item", "not_applied = [503]"),
        ("released = [\"409\"]", "`released` has an item", "[409]"),
        ("released = 409", "`released` is a number; it must be a list", "released = [409]"),
        ("final = [200]", "6:10: `final` has an item that is no status from 400 to 599", "[429]"),
        ("final = [600]", "`final` has an item", "[429]"),
        ("relased = [409]", "there is no option `relased`", "did you mean `released`?"),
        ("not_applied = [503, 600]", "6:21: `not_applied` has an item", "[503]"),
        ("fingerprint_headers = [\"a b\"]", "`fingerprint_headers` has an item", "x-currency"),
        ("drop_headers = [1]", "`drop_headers` has an item that is no header name", "x-currency"),
    ]);
}

#[test]
fn sources_of_keys_are_checked() {
    each_is_explained(&[
        ("key_header = \"X-Key\"", "`key_header` is a text; it must be a list", "key_header = ["),
        ("key_header = [\"X Key\"]", "6:15: `key_header` has an item", "X-Idempotency-Key"),
        ("key_header = []", "6:14: `key_header`: no header is named", "as the message says"),
        ("key_header = [\"Cookie\"]", "`Cookie` is for something else", "as the message says"),
        ("key_header = [\"X-Key\", \"x-key\"]", "`x-key` is there twice", "as the message says"),
        ("key_headers = [\"X-Key\"]", "there is no option `key_headers`", "`key_header`?"),
        ("key_from = \"json:id\"", "6:12: `key_from`: behind `json:`", "\"json:/id\""),
        ("key_from = \"header:a b\"", "behind `header:` is no header name", "header:<name>"),
        ("key_from = \"header:Host\"", "6:12: `key_from`: `Host` is for something else", "message"),
        ("key_from = \"jsn:/id\"", "`key_from` is of an unknown kind", "did you mean `json`?"),
        ("key_from = \"body\"", "`key_from` is of an unknown kind", "json:<pointer>"),
        (
            "key_from = \"json:/id\"\nkey_header = [\"X-Key\"]",
            "6:12: `key_from` and `key_header` exclude each other",
            "remove one of the two",
        ),
    ]);
    let defaults = "[defaults]\nkey_header = [\"X-Key\"]\n";
    accepted(&(route("key_from = \"json:/id\"") + defaults));
    let said = accepted(&route("key_header = [\"X-Key\"]"));
    assert!(said.contains("6:14: note: ") && said.contains("pass, unprotected"), "{said}");
    let said = accepted(&route("key_header = [\"X-Key\", \"idempotency-key\"]"));
    assert!(!said.contains("pass, unprotected"), "{said}");
}

#[test]
fn urls_and_templates_are_checked() {
    each_is_explained(&[
        ("reconcile = \"did-it\"", "`reconcile` has no scheme", "http://"),
        ("reconcile = \"ftp://a/b\"", "`reconcile` has an unknown scheme", "https://"),
        ("reconcile = \"http://a:b@c/\"", "`reconcile` has a name or password", "leave it out"),
        ("rebuild = \"/v1/{id}\"", "`rebuild` is not a method and a path", "GET /v1/payments/{id}"),
        ("rebuild = \"POST /v1/{id}\"", "its method is GET", "GET /v1/payments/{id}"),
        ("rebuild = \"GET /v1/payments\"", "one `{id}` in its path", "GET /v1/payments/{id}"),
        ("rebuild = \"GET /{id}/{x}\"", "one `{id}` in its path", "GET /v1/payments/{id}"),
        ("rebuild = \"GET v1/{id}\"", "not a path behind its method", "GET /v1/payments/{id}"),
    ]);
}

#[test]
fn how_requests_are_sent_on_is_checked() {
    each_is_explained(&[
        ("retry = \"standart\"", "`retry` must be one of off, standard, patient", "\"standard\""),
        ("retry = true", "`retry` is true or false; it must be a text", "retry = \"off\""),
        ("breaker = \"off\"", "`breaker` is a text; it must be true or false", "without quotes"),
        (
            "retry = \"standard\"\nattempts = 0",
            "`attempts` is out of its range",
            "between 1 and 20",
        ),
        ("attempts = 4", "`attempts` means nothing without `retry`", "retry = \"standard\""),
        ("attempt_timeout = \"1s\"", "means nothing without `retry`", "retry = \"standard\""),
        ("backoff = \"full\"", "`backoff` means nothing without `retry`", "retry = \"standard\""),
        ("retry_status = [423]", "`retry_status` means nothing without", "retry = \"standard\""),
        (
            "retry = \"standard\"\nbackoff = \"equall\"",
            "`backoff` is no kind of back-off: \"equall\"",
            "did you mean \"equal\"?",
        ),
        (
            "retry = \"standard\"\nbackoff = \"fixed:1m\"",
            "the first wait would outlast the deadline",
            "`backoff`",
        ),
        (
            "retry = \"standard\"\nretry_status = [200]",
            "`retry_status` has an item that is no status from 400 to 599",
            "[423, 507]",
        ),
        (
            "retry = \"standard\"\nno_retry_status = 500",
            "`no_retry_status` is a number; it must be a list",
            "no_retry_status = [500]",
        ),
        (
            "retry = \"standard\"\nretry_status = [500]\nno_retry_status = [500]",
            "it cannot be both",
            "`no_retry_status`",
        ),
        (
            "retry = \"standard\"\nattempt_timeout = \"31s\"",
            "`attempt_timeout` is 31s, longer than `timeout` of 30s",
            "raise `timeout`",
        ),
        ("limit = 0", "`limit` is out of its range", "between 1 and 1000000"),
        ("retry_share = 1.5", "`retry_share` is out of its range", "0.2 for a fifth"),
        ("retry_share = \"20%\"", "`retry_share` is a text; it must be a number", "0.2"),
        ("retry_share = nan", "`retry_share` is out of its range", "0.2"),
        ("priority = \"hihgest\"", "`priority` must be one of lowest, low, normal", "\"highest\""),
        ("priority = 4", "or 0 to 3", "priority = \"low\""),
        ("retries = 3", "there is no option `retries` here", ""),
    ]);
}

#[test]
fn what_is_only_for_reading_is_refused_for_writes() {
    each_is_explained(&[
        (
            "hedge = true",
            "`hedge` sends a request a second time",
            "GET and HEAD a route of their own",
        ),
        ("fallback = { body = \"[]\" }", "`fallback` would say that something was done", "GET"),
        ("fallback = \"[]\"", "`fallback` is a text; it must be a table", "content_type"),
    ]);
    let reading = |lines: &str| {
        let route = "[[route]]\nmatch = \"GET /v1\"\nkey = \"off\"";
        format!("{TOP}{route}\n{lines}\n")
    };
    let said = accepted(&reading(
        "hedge = true\nfallback = { body = \"[]\" }\nretry = \"standard\"\npriority = \"low\"\nlimit = 5",
    ));
    let line = "GET /v1 key=off retry=standard attempts=3 priority=low limit=5 hedge fallback";
    assert!(said.contains(line), "{said}");
    for (line, message) in [
        ("fallback = { status = 99 }", "no status from 200 to 599"),
        ("fallback = { content_type = \"json\" }", "`content_type` is not a media type"),
        ("fallback = { bdy = \"[]\" }", "there is no option `bdy` here"),
        ("fallback = { body = 1 }", "`body` is a number; it must be a text"),
    ] {
        let said = refused(&reading(line));
        assert!(said.contains(message), "{line}\n{said}");
    }
    // Those of [defaults] are for the routes that they fit.
    let both = format!(
        "{TOP}[defaults]\nhedge = true\nfallback = {{ body = \"[]\" }}\n{}",
        route("").replacen(TOP, "", 1)
    );
    let said = accepted(&both);
    assert!(!said.contains("hedge") && !said.contains("fallback"), "{said}");
}

#[test]
fn what_is_not_toml_is_placed_and_not_quoted() {
    let said = refused("upstream = \"sesame\nstore = sesame\n[[route]\n");
    assert!(said.starts_with("o.toml:1:19: error: "), "{said}");
    assert!(said.contains("o.toml:2:9: error: ") && said.contains("o.toml:3:"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
    let (said, _) = only_mistake(&format!("{TOP}{}", route("")));
    assert_eq!(said, "2:1: duplicate key");
}
