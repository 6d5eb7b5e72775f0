//! The command itself: its output, its environment, its ends.

use std::fs;

use serde_json::Value;

use crate::config::support::{check_with, directory, onceward, refused, route};

const GOOD: &str = include_str!("golden/good.toml");
const GOOD_SUMMARY: &str = include_str!("golden/good.txt");
const WHOLE: &str = include_str!("golden/whole.toml");
const WHOLE_DOCUMENT: &str = include_str!("golden/whole.json");
const BAD: &str = include_str!("golden/bad.toml");
const BAD_MISTAKES: &str = include_str!("golden/bad.txt");

#[test]
fn what_is_right_is_summed_up() {
    let output = check_with(GOOD, &[("JWT_SECRET", "sesame")]);
    assert_eq!(output.stderr, "");
    assert_eq!(output.stdout, GOOD_SUMMARY);
    assert!(output.is_success());
}

#[test]
fn all_mistakes_are_reported_at_once_by_line() {
    assert_eq!(refused(BAD), BAD_MISTAKES);
}

#[test]
fn machines_get_json() {
    let directory = directory();
    for (file, valid) in [(GOOD, true), (BAD, false)] {
        fs::write(directory.path().join("o.toml"), file).unwrap();
        let output = onceward(directory.path(), &["check", "o.toml", "--json"], &[]);
        assert_eq!(output.is_success(), valid);
        assert!(output.stderr.is_empty());
        let document = output.json();
        assert_eq!(document["valid"], valid);
        assert_eq!(document["file"], "o.toml");
        let first = &document["mistakes"][0];
        if valid {
            assert_eq!(document["config"]["listen"], "0.0.0.0:8080");
            assert_eq!(document["config"]["routes"][0]["scope"][0], "jwt:sub");
            assert_eq!(document["config"]["routes"][0]["tier"], "T2");
            assert!(["warning", "note"].contains(&first["severity"].as_str().unwrap()));
        } else {
            assert_eq!(document["config"], Value::Null);
            assert_eq!(first["severity"], "error");
            assert_eq!((&first["line"], &first["column"]), (&1.into(), &10.into()));
            assert!(first["message"].is_string() && first["help"].is_string());
        }
    }
}

#[test]
fn machines_get_every_option_in_the_words_of_the_file_and_no_secret() {
    let directory = directory();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    fs::write(directory.path().join("onceward.key"), key).unwrap();
    fs::write(directory.path().join("o.toml"), WHOLE).unwrap();
    let environment = [("TOKEN_OF_ADA", "sesame-sesame-sesame"), ("JWT_SECRET", "sesame")];
    let output = onceward(directory.path(), &["check", "o.toml", "--json"], &environment);
    let said = &output.stdout;
    assert!(output.is_success(), "{said}");
    for secret in ["sesame", "TOKEN_OF_ADA", "JWT_SECRET", key] {
        assert!(!said.contains(secret), "{secret}\n{said}");
    }
    let document: Value = serde_json::from_str(said).unwrap();
    let golden: Value = serde_json::from_str(WHOLE_DOCUMENT).unwrap();
    assert_eq!(document["config"], golden, "{:#}", document["config"]);
    // Every option of a route that `onceward init` explains is in it.
    let route = golden["routes"][0].as_object().unwrap();
    onceward(directory.path(), &["init", "template.toml"], &[]);
    let template = fs::read_to_string(directory.path().join("template.toml")).unwrap();
    let (_, options) = template.split_once("[[route]]").unwrap();
    let explained = options.lines().filter_map(|line| {
        let line = line.trim_start_matches('#').trim_start();
        let (name, _) = line.split_once(" = ")?;
        name.bytes().all(|byte| byte.is_ascii_lowercase() || b"_05".contains(&byte)).then_some(name)
    });
    let explained: Vec<_> = explained.collect();
    assert!(explained.len() > 25, "{explained:?}");
    for name in explained {
        assert!(route.contains_key(name), "{name}");
    }
}

#[test]
fn the_environment_counts_as_it_does_for_the_gateway() {
    let file = format!("listen = \"127.0.0.1:1\"\n{}", route(""));
    let environment = [
        ("ONCEWARD_LISTEN", "127.0.0.1:2"),
        ("ONCEWARD_ADMIN", ""),
        ("ONCEWARD_UPSTREM", "x"),
        ("ONCEWARD_SERVICE_HOST", "10.0.0.1"),
        ("ONCEWARD_PORT", "tcp://10.0.0.1:80"),
    ];
    let output = check_with(&file, &environment);
    let said = &output.stdout;
    assert!(said.contains("listen    127.0.0.1:2\n  admin     none"), "{said}");
    assert!(said.contains("environment ONCEWARD_LISTEN: note: it replaces `listen`"), "{said}");
    let warning = "environment ONCEWARD_UPSTREM: warning: this variable means nothing here; did \
                   you mean `ONCEWARD_UPSTREAM`?";
    assert!(said.contains(warning), "{said}");
    assert!(!said.contains("SERVICE_HOST") && !said.contains("ONCEWARD_PORT"), "{said}");
    let output = check_with(&file, &[("ONCEWARD_GUARANTEE", "much"), ("ONCEWARD_LISTEN", "here")]);
    let said = &output.stderr;
    assert!(said.contains("environment ONCEWARD_GUARANTEE: error: `guarantee` must be"), "{said}");
    assert!(said.contains("environment ONCEWARD_LISTEN: error: `listen` is not"), "{said}");
}

#[test]
fn what_cannot_be_read_is_explained() {
    let directory = directory();
    let check = |file: &str| {
        let output = onceward(directory.path(), &["check", file], &[]);
        assert_eq!(output.code, 1);
        output.stderr
    };
    let said = check("missing.toml");
    assert!(said.starts_with("missing.toml: error: there is no such file\n  help: "), "{said}");
    assert!(said.contains("onceward init"), "{said}");
    fs::write(directory.path().join("latin.toml"), b"a = \"\xff\"").unwrap();
    assert!(check("latin.toml").contains("not text in UTF-8"));
    fs::write(directory.path().join("large.toml"), "#".repeat((1 << 20) + 1)).unwrap();
    assert!(check("large.toml").contains("larger than 1 MiB"));
    assert!(check(".").contains("cannot be read"));
}

#[test]
fn the_page_of_options_is_what_the_command_prints() {
    let directory = directory();
    let output = onceward(directory.path(), &["check", "--options"], &[]);
    assert!(output.is_success(), "{}", output.stderr);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
    let is_same = fs::read_to_string(page).unwrap() == output.stdout;
    assert!(is_same, "write it again: onceward check --options > docs/options.md");
}

#[test]
fn the_usual_file_is_read_when_no_other_is_named() {
    let directory = directory();
    let missing = onceward(directory.path(), &["check"], &[]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.starts_with("onceward.toml: error: there is no such file"), "{missing}");
    fs::write(directory.path().join("onceward.toml"), GOOD).unwrap();
    let checked = onceward(directory.path(), &["check"], &[("JWT_SECRET", "sesame")]);
    assert!(checked.stdout.starts_with("onceward.toml: valid\n"), "{checked}");
    assert!(checked.is_success());
}

#[test]
fn the_help_has_examples() {
    let directory = directory();
    for command in ["check", "init"] {
        let output = onceward(directory.path(), &[command, "--help"], &[]);
        assert!(output.is_success());
        assert!(output.stdout.contains("Examples:"), "{command}");
    }
}
