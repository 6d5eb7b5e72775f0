//! What is stored of answers, and who may have how many operations open.

use std::fs;

use serde_json::json;

use crate::config::support::{accepted, check_with, directory, each_is_explained, onceward, route};

#[test]
fn what_is_hidden_and_kept_is_checked() {
    each_is_explained(&[
        ("keep = \"nothing\"", "`keep` must be one of", "full"),
        ("keep = \"staus\"", "`keep` must be one of", "did you mean \"status\"?"),
        (
            "keep = \"status\"\nrebuild = \"GET /v1/payments/{id}\"",
            "exclude each other",
            "remove one",
        ),
        ("redact_headers = [\"a b\"]", "an item that is no header name", "x-currency"),
        ("redact_json = [\"card\"]", "no JSON pointer to a part", "/items/*/cvv"),
        ("redact_json = [\"\"]", "no JSON pointer to a part", "/card/number"),
        ("redact_json = [\"/a~2\"]", "no JSON pointer to a part", "~0"),
        ("redact_json = [7]", "no JSON pointer to a part", "/card/number"),
        ("redact_json = \"/card\"", "it must be a list", "[\"/card/number\"]"),
        ("max_open = 0", "`max_open` is out of its range", "between 1 and 10000"),
        ("max_open = 10001", "`max_open` is out of its range", "between 1 and 10000"),
        ("max_late = 10001", "`max_late` is out of its range", "between 0 and 10000"),
        ("max_open = -1", "`max_open` is out of its range", "between 1 and 10000"),
        ("max_open = \"10\"", "`max_open` is a text; it must be a number", "between 1 and 10000"),
    ]);
    for count in [1, 10_000] {
        accepted(&route(&format!("max_open = {count}")));
    }
    let said = accepted(&route("keep = \"status\"\nredact_json = [\"/a\"]"));
    assert!(said.contains("warning: `redact_json` means nothing with keep"), "{said}");
    assert!(said.contains("tier=T3 keep=status redacted"), "{said}");
}

#[test]
fn all_of_it_is_shown_and_the_key_never() {
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let section = "[encryption]\nkey_env = \"ONCEWARD_KEY\"\n";
    let lines = "redact_headers = [\"X-Secret\"]\nredact_json = [\"/items/*/cvv\"]\nmax_open = 7";
    let file = format!("{}{section}", route(lines));
    let output = check_with(&file, &[("ONCEWARD_KEY", key)]);
    let said = &output.stdout;
    assert!(said.contains("\n  encryption on\n") && !said.contains("warning"), "{said}");
    assert!(!said.contains(key), "{said}");
    let directory = directory();
    fs::write(directory.path().join("o.toml"), file).unwrap();
    let output =
        onceward(directory.path(), &["check", "o.toml", "--json"], &[("ONCEWARD_KEY", key)]);
    let document = output.json();
    let config = &document["config"];
    assert_eq!(config["encryption"], json!(true));
    let shown = &config["routes"][0];
    assert_eq!((&shown["keep"], &shown["max_open"]), (&json!("full"), &json!(7)));
    assert_eq!(shown["redact_headers"], json!(["x-secret"]));
    assert_eq!(shown["redact_json"], json!(["/items/*/cvv"]));
    assert!(!output.stdout.contains(key));
    let unset = accepted(&format!("{}{section}", route("")));
    assert!(
        unset.contains("warning: the environment variable that `key_env` names is not set"),
        "{unset}"
    );
}

#[test]
fn the_quota_has_its_default() {
    let directory = directory();
    fs::write(directory.path().join("o.toml"), route("")).unwrap();
    let output = onceward(directory.path(), &["check", "o.toml", "--json"], &[]);
    let document = output.json();
    assert_eq!(document["config"]["routes"][0]["max_open"], json!(1000));
    assert_eq!(document["config"]["encryption"], json!(false));
}
