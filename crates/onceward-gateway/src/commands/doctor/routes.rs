//! What the options of a route mean for the data behind it.

use std::time::Duration;

use http::header;
use onceward::{Effect, Profile};

use super::finding::{Findings, texts};
use crate::config::{Authorize, KeyRule, KeySource, Route, ScopePart, show_duration};

/// Clients of public APIs retry for so long; `check` lets no run be longer.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A process may pause for so long: a shorter lease ends although the process lives.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// Longer than a client waits for a key that a killed gateway has left.
const LONG_LEASE: Duration = Duration::from_secs(10 * 60);

pub(super) fn examine(route: &Route, has_operators: bool, findings: &mut Findings) {
    let about = route.match_text();
    keys(route, &about, findings);
    if route.key == KeyRule::Off {
        return;
    }
    scope(route, &about, findings);
    meaning(route, &about, findings);
    unknown(route, &about, has_operators, findings);
    outages(route, &about, findings);
    retention(route, &about, findings);
    times(route, &about, findings);
}

fn keys(route: &Route, about: &str, findings: &mut Findings) {
    let (code, texts) = match route.key {
        KeyRule::Required => return,
        KeyRule::Optional => {
            let what = format!("requests without a key{} pass", place(route));
            let means = "they are not protected: each of their retries runs again";
            ("key-optional", texts(what, means, "key = \"required\""))
        }
        KeyRule::Off => {
            let mend = "key = \"required\", with `scope` and `authorize`";
            ("key-off", texts("it takes no keys", "every retry runs again", mend))
        }
    };
    findings.note(code, about, texts);
}

fn place(route: &Route) -> String {
    let source = &route.key_source;
    match (source.key_header(), source.key_from()) {
        _ if *source == KeySource::default() => String::new(),
        (Some(names), _) => format!(" in {}", names.join(", ")),
        (None, from) => format!(" in `{}`", from.unwrap_or_default()),
    }
}

fn scope(route: &Route, about: &str, findings: &mut Findings) {
    if route.authorize == Authorize::None {
        let texts = texts(
            "the gateway does not check again before it sends a stored answer",
            "a caller with scope and key sees it, also after losing the right to",
            "authorize = \"jwt\"; or \"mtls\", or a URL that is asked with the caller's headers",
        );
        findings.note("authorize-none", about, texts);
    }
    if route.scope.contains(&ScopePart::Global) {
        let texts = texts(
            "all callers share their keys",
            "two callers who choose the same key are one: the second sees the answer of the first, \
             and its own request is not run",
            "scope = [\"jwt:sub\"], or what else names the caller",
        );
        findings.warning("scope-global", about, texts);
    }
    if route.scope.contains(&ScopePart::Secret(header::AUTHORIZATION)) {
        let texts = texts(
            "`secret:authorization` stands for the caller",
            "with a refreshed token a retry belongs to another caller, and runs again",
            "scope = [\"jwt:sub\"], unless it is an API key that never changes",
        );
        findings.warning("scope-authorization", about, texts);
    }
    let cookie = route.scope.iter().find(|part| matches!(part, ScopePart::Cookie(_)));
    if let Some(cookie) = cookie {
        let texts = texts(
            format!("`{cookie}` stands for the caller"),
            "it is your word that the cookie keeps its value: with a session that is renewed a retry \
             belongs to another caller, and runs again",
            "scope = [\"jwt:sub\"], or what else names the caller for longer than a session",
        );
        findings.note("scope-cookie", about, texts);
    }
}

fn meaning(route: &Route, about: &str, findings: &mut Findings) {
    if let Effect::Repeatable { within } = route.effect {
        let within = show_duration(within);
        let texts = texts(
            format!("it may be run again with the same key for {within}"),
            "it is your word that the upstream remembers Onceward-Key for longer than that: if it \
             forgets sooner, the effect happens twice",
            "let it be shorter than that by the longest run: 23h, if the upstream remembers a key for 24 \
             hours",
        );
        findings.note("rerun-within", about, texts);
    }
    let profile = match route.profile_in_force() {
        None | Some(Profile::Strict) => None,
        Some(Profile::Standard) => Some((
            "profile-standard",
            "profile \"standard\": a 503 frees the key",
            "the gateway trusts the upstream to send it only when it did not handle the request (RFC 9110): \
             if a proxy sends it after the upstream has begun, a retry doubles the effect",
            "profile = \"strict\", if there is such a proxy",
        )),
        Some(Profile::Rerun) => Some((
            "profile-rerun",
            "profile \"rerun\": server errors and lost answers are run again",
            "no server error is ever final: a client that stops retrying leaves it undone",
            "profile = \"strict\", if the errors of the upstream are final",
        )),
        Some(Profile::Stripe) => Some((
            "profile-stripe",
            "profile \"stripe\": every complete answer but a 400 is final, also 502, 503 and 504",
            "a proxy before the upstream may have sent it: the client sees a failure, though it may have \
             happened",
            "profile = \"strict\", if there is such a proxy",
        )),
    };
    if let Some((code, what, means, mend)) = profile {
        findings.note(code, about, texts(what, means, mend));
    }
    for (code, option, answers, when) in [
        ("not-applied", "not_applied", &route.not_applied, "before anything is done"),
        ("released", "released", &route.released, "when nothing was done"),
    ] {
        if !answers.is_empty() {
            let texts = texts(
                format!("{option} = {answers:?}: these answers free the key"),
                format!(
                    "it is your word that the upstream sends them only {when}: if not, a retry doubles \
                     the effect"
                ),
                format!("{option} = []"),
            );
            findings.note(code, about, texts);
        }
    }
    if !route.finals.is_empty() {
        let texts = texts(
            format!("final = {:?}: these answers are kept and replayed", route.finals),
            "a retry gets the same error until the record is forgotten, also if it would succeed by \
             then; of one that a proxy sends the effect may have happened",
            "final = []",
        );
        findings.note("final", about, texts);
    }
}

fn unknown(route: &Route, about: &str, has_operators: bool, findings: &mut Findings) {
    if route.reconcile.is_some() || route.effect == Effect::Transactional {
        return;
    }
    if !has_operators {
        let texts = texts(
            "an outcome can become unknown, and neither `reconcile` nor an operator can say what it was",
            "the gateway refuses its retries until an operator uses `onceward keys resolve` on its store, \
             also while the gateway runs",
            "admin = \"127.0.0.1:8081\", or reconcile = \"http://127.0.0.1:3000/did-it-happen\"",
        );
        findings.warning("no-way-out", about, texts);
    } else if route.effect == Effect::External {
        let texts = texts(
            "the gateway asks no service what became of an unknown outcome",
            "each waits for a person (`onceward keys resolve`); until then the gateway refuses its retries",
            "reconcile = \"http://127.0.0.1:3000/did-it-happen\", where the service can tell",
        );
        findings.note("no-reconcile", about, texts);
    }
}

fn outages(route: &Route, about: &str, findings: &mut Findings) {
    if route.pass_when_store_is_down {
        let texts = texts(
            "while the store is down, requests run without a record",
            "each retry then runs again: doubles, and the alarm `unprotected` for each",
            "on_store_down = \"refuse\"",
        );
        findings.warning("store-down-pass", about, texts);
    }
}

fn retention(route: &Route, about: &str, findings: &mut Findings) {
    let retain = show_duration(route.retain);
    match route.retry_window {
        Some(_) => {}
        None if route.retain < DAY => {
            let texts = texts(
                format!("answers are forgotten after {retain}"),
                "clients of public APIs and queues retry for a day: a retry after that runs again",
                "retain = \"24h\", or retry_window = the longest time in which a client retries",
            );
            findings.warning("short-retain", about, texts);
        }
        None => {
            let texts = texts(
                "the configuration does not say how long clients, queues and people may retry",
                format!("a retry later than {retain} after the answer runs again"),
                format!("retry_window = \"{retain}\", or less: a shorter `retain` is then refused"),
            );
            findings.note("no-retry-window", about, texts);
        }
    }
    if let Some(forgotten) = route.unknown_retain {
        let texts = texts(
            format!("unknown outcomes are forgotten after {}", show_duration(forgotten)),
            "a retry after that runs, though the first may have happened",
            "unknown_retain = \"never\"",
        );
        findings.warning("unknown-forgotten", about, texts);
    }
}

fn times(route: &Route, about: &str, findings: &mut Findings) {
    let Route { timeout, max_run, lease, .. } = *route;
    if timeout >= max_run {
        let mend = match timeout * 2 <= DAY {
            true => format!("max_run = \"{}\"", show_duration(timeout * 2)),
            false => format!("timeout = \"{}\"", show_duration(max_run / 2)),
        };
        let (timeout, max_run) = (show_duration(timeout), show_duration(max_run));
        let means = match route.effect {
            Effect::External => "its outcome counts as unknown while it may still be running",
            Effect::Repeatable { .. } => "a second run may begin while the first is running",
            Effect::Transactional => {
                "a second run may begin while the first is running, whose commit then fails"
            }
        };
        let texts = texts(
            format!("`timeout` of {timeout} is not shorter than `max_run` of {max_run}"),
            format!("a claim is not renewed after `max_run`: {means}"),
            mend,
        );
        findings.warning("timeout-max-run", about, texts);
    }
    if lease < SHORT_LEASE {
        let texts = texts(
            format!("the lease of {} is shorter than a process may pause", show_duration(lease)),
            "a gateway that stalls for a moment loses its claim: the outcome is unknown, or it is \
             run again",
            "lease = \"30s\"",
        );
        findings.warning("short-lease", about, texts);
    }
    if lease > LONG_LEASE {
        let lease = show_duration(lease);
        let texts = texts(
            format!("a lease of {lease}"),
            format!("after a gateway is killed, what it ran stays in progress for {lease}"),
            "lease = \"30s\": while the gateway lives, a claim is renewed",
        );
        findings.note("long-lease", about, texts);
    }
}
