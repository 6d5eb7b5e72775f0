//! The tier of each route, and what its options mean.

use crate::doctor::support::{SOUND, codes, examined, finding, place, with_route};

const IDENTITY: &str = "key = \"required\"\nscope = [\"jwt:sub\"]\nauthorize = \"jwt\"\nretry_window = \"24h\"\n\
     reconcile = \"http://127.0.0.1:3000/did-it-happen\"\n";

#[test]
fn the_tier_is_what_is_really_promised() {
    let repeatable = "effect = \"repeatable\"\nrerun_within = \"23h\"\n";
    for (lines, tier, promise, why) in [
        (String::new(), "T3", "at most once", "502 or 504, leaves the outcome unknown"),
        (String::new(), "T3", "at most once", "a 503 frees the key, on the upstream's word"),
        ("on_500 = \"hold\"".into(), "T3", "at most once", "or 500, 502 or 504,"),
        (
            "profile = \"strict\"\non_500 = \"hold\"".into(),
            "T3",
            "at most once",
            "or 500, 502, 503 or 504,",
        ),
        ("profile = \"stripe\"".into(), "T3", "at most once", "and no answer leaves the outcome"),
        ("not_applied = [503]".into(), "T3", "at most once", "[503] frees the key, on your word"),
        (
            "released = [409]\nnot_applied = [503]".into(),
            "T3",
            "at most once",
            "[409, 503] frees the key, on your word",
        ),
        (repeatable.into(), "T2", "effectively once", "for 23h after its first claim, then it is"),
        (
            format!("{repeatable}profile = \"strict\""),
            "T2",
            "effectively once",
            "if the gateway dies, it is run again",
        ),
        ("retain = \"48h\"".into(), "T3", "at most once", "answers are kept for 2d"),
        (
            "on_store_down = \"pass\"".into(),
            "none",
            "at least once",
            "while the store is down, requests run without a record; at all other times it is T3",
        ),
    ] {
        let document = examined(&with_route(&format!("{IDENTITY}{lines}")));
        let route = &document["routes"][1];
        assert_eq!(route["match"], "POST /v1/other");
        assert_eq!((&route["tier"], &route["promise"]), (&tier.into(), &promise.into()), "{lines}");
        assert!(route["why"].as_str().unwrap().contains(why), "{lines}\n{}", route["why"]);
    }
    let off = examined(&with_route("key = \"off\""));
    assert_eq!(off["routes"][1]["tier"], "none");
    assert!(off["routes"][1]["why"].as_str().unwrap().contains("every retry runs"));
    assert_eq!(codes(&off)["key-off"], "note");
}

#[test]
fn each_option_that_endangers_data_is_found_and_only_that() {
    for (lines, code, severity, mend) in [
        ("key = \"optional\"", "key-optional", "note", "key = \"required\""),
        ("authorize = \"none\"", "authorize-none", "note", "authorize = \"jwt\""),
        ("scope = [\"global\"]", "scope-global", "warning", "scope = [\"jwt:sub\"]"),
        ("scope = [\"secret:authorization\"]", "scope-authorization", "warning", "jwt:sub"),
        ("on_store_down = \"pass\"", "store-down-pass", "warning", "on_store_down = \"refuse\""),
        ("unknown_retain = \"30d\"", "unknown-forgotten", "warning", "unknown_retain = \"never\""),
        ("profile = \"stripe\"", "profile-stripe", "note", "profile = \"strict\""),
        ("profile = \"standard\"", "profile-standard", "note", "profile = \"strict\""),
        ("scope = [\"cookie:sid\"]", "scope-cookie", "note", "jwt:sub"),
        ("not_applied = [503]", "not-applied", "note", "not_applied = []"),
        ("released = [409]", "released", "note", "released = []"),
        ("final = [429]", "final", "note", "final = []"),
        ("timeout = \"10m\"", "timeout-max-run", "warning", "max_run = \"20m\""),
        ("lease = \"1s\"", "short-lease", "warning", "lease = \"30s\""),
        ("lease = \"1h\"\nmax_run = \"2h\"", "long-lease", "note", "lease = \"30s\""),
    ] {
        let option = lines.split(' ').next().unwrap();
        let kept = |line: &&str| !line.starts_with(option);
        let identity = format!("{IDENTITY}profile = \"strict\"");
        let identity = identity.lines().filter(kept).collect::<Vec<_>>().join("\n");
        let document = examined(&with_route(&format!("{identity}\n{lines}")));
        assert_eq!(codes(&document), [(code.into(), severity.into())].into(), "{lines}");
        let found = finding(&document, code);
        assert_eq!(found["about"], serde_json::json!(["POST /v1/other"]));
        assert!(found["mend"].as_str().unwrap().contains(mend), "{found:#}");
        assert!(!found["means"].as_str().unwrap().is_empty());
    }
}

#[test]
fn who_passes_without_a_key_is_told_by_where_it_belongs() {
    for (lines, place) in [
        ("", "requests without a key pass"),
        ("key_header = [\"X-Key\", \"Other\"]", "without a key in X-Key, Other pass"),
        ("key_from = \"header:X-Event\"", "without a key in `header:X-Event` pass"),
        ("key_from = \"json:/id\"", "without a key in `json:/id` pass"),
    ] {
        let kept = |line: &&str| !line.starts_with("key ");
        let identity = IDENTITY.lines().filter(kept).collect::<Vec<_>>().join("\n");
        let document = examined(&with_route(&format!("{identity}\nkey = \"optional\"\n{lines}")));
        let found = finding(&document, "key-optional");
        assert!(found.to_string().contains(place), "{found:#}");
    }
}

#[test]
fn what_is_the_users_word_is_said_to_be() {
    let repeatable = "effect = \"repeatable\"\nrerun_within = \"23h\"";
    let document = examined(&with_route(&format!("{IDENTITY}{repeatable}")));
    let found = codes(&document);
    assert_eq!(found["rerun-within"], "note");
    assert_eq!(found["profile-rerun"], "note");
    let means = finding(&document, "rerun-within")["means"].as_str().unwrap();
    assert!(means.contains("it is your word that the upstream remembers"), "{means}");
}

#[test]
fn the_retention_is_held_against_the_time_in_which_anybody_retries() {
    let of = |line: &str| codes(&examined(&place(&SOUND.replace("retry_window = \"24h\"", line))));
    assert_eq!(of("")["no-retry-window"], "note");
    assert_eq!(of("retain = \"1h\"")["short-retain"], "warning");
    assert!(!of("retain = \"1h\"").contains_key("no-retry-window"));
    assert_eq!(of("retain = \"1h\"\nretry_window = \"10m\""), [].into());
}

#[test]
fn what_routes_have_in_common_is_said_once() {
    let other = IDENTITY.replace("retry_window = \"24h\"\n", "profile = \"strict\"\n");
    let file = SOUND.replace("retry_window = \"24h\"\n", "");
    let both = format!("{file}[[route]]\nmatch = \"POST /v1/other\"\n{other}");
    let document = examined(&place(&both));
    let about = serde_json::json!(["POST /v1/charges", "POST /v1/other"]);
    assert_eq!(finding(&document, "no-retry-window")["about"], about);
    assert_eq!(document["findings"].as_array().unwrap().len(), 1);
}

#[test]
fn without_anybody_to_ask_unknown_outcomes_wait_for_a_person() {
    let file = SOUND.replace("reconcile = \"http://127.0.0.1:3000/did-it-happen\"\n", "");
    assert_eq!(codes(&examined(&place(&file)))["no-reconcile"], "note");
}

#[test]
fn without_operators_too_nothing_leads_out_of_an_unknown_outcome() {
    let file = SOUND.replace("reconcile = \"http://127.0.0.1:3000/did-it-happen\"\n", "");
    let tokens = "[admin_tokens]\nops = { token_env = \"TOKEN\", role = \"resolve\" }\n";
    let alone = file.replace("admin = \"127.0.0.1:8081\"\n", "").replace(tokens, "");
    let document = examined(&place(&alone));
    assert_eq!(codes(&document)["no-way-out"], "warning");
    assert!(finding(&document, "no-way-out")["mend"].as_str().unwrap().contains("admin = "));
}
