//! What is found in the store.

use std::{fs, time::Duration};

use onceward::Effect;
use serde_json::Value;

use crate::doctor::support::{
    ENVIRONMENT, SOUND, after_now, allow, before_now, claim, codes, examined, examined_with,
    finding, place,
};
use crate::gateway_support::{Finished, command};

const HOUR: Duration = Duration::from_secs(3600);

/// The one thing that is found: its severity, and all it says.
fn only(document: &Value, code: &str) -> (String, Value) {
    let found = codes(document);
    assert_eq!(found.keys().collect::<Vec<_>>(), [code], "{document:#}");
    (found[code].clone(), finding(document, code).clone())
}

#[test]
fn a_store_that_is_missing_or_has_no_tables_is_a_warning() {
    let directory = place(SOUND);
    let file = directory.path().join("onceward.db");
    fs::remove_file(&file).unwrap();
    let (severity, found) = only(&examined(&directory), "store-file-missing");
    assert_eq!(severity, "problem", "its mark is still there");
    assert!(found["mend"].as_str().unwrap().contains("--accept-loss"), "{found:#}");
    fs::remove_file(directory.path().join("onceward.db-mark")).unwrap();
    let (severity, found) = only(&examined(&directory), "store-missing");
    assert_eq!(severity, "warning");
    let migrate = "onceward migrate --store sqlite://onceward.db";
    assert!(found["mend"].as_str().unwrap().ends_with(migrate), "{found:#}");
    fs::write(&file, "").unwrap();
    allow(&file, 0o600);
    let document = examined(&directory);
    let (severity, found) = only(&document, "store-outdated");
    assert_eq!((severity.as_str(), found["mend"].as_str()), ("warning", Some(migrate)));
    assert_eq!(document["store"]["seen"], false);
    let arguments: Vec<_> = migrate.split(' ').skip(1).collect();
    let migrated = Finished::of(command(&arguments).current_dir(directory.path()));
    assert!(migrated.is_success(), "what it says helps: {migrated}");
    assert_eq!(codes(&examined(&directory)), [].into());
}

#[test]
fn records_that_cannot_be_read_are_a_problem() {
    let directory = place(SOUND);
    claim(&directory, "k", Effect::External, before_now(Duration::ZERO));
    let connection = rusqlite::Connection::open(directory.path().join("onceward.db")).unwrap();
    assert_eq!(connection.execute("UPDATE onceward_record SET body = x'00'", []).unwrap(), 1);
    drop(connection);
    let document = examined(&directory);
    assert_eq!(codes(&document)["records-damaged"], "problem", "{document:#}");
}

#[test]
fn a_store_that_cannot_be_used_is_a_problem() {
    let directory = place(SOUND);
    let file = directory.path().join("onceward.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    let newer = "INSERT INTO onceward_schema (version, applied_at) VALUES (99, 0)";
    connection.execute(newer, []).unwrap();
    drop(connection);
    assert_eq!(only(&examined(&directory), "store-newer").0, "problem");
    fs::write(&file, "this is something else, and long enough to be looked at").unwrap();
    assert_eq!(only(&examined(&directory), "store-not-a-database").0, "problem");
    let elsewhere = format!("store = \"sqlite://missing/onceward.db\"\n{SOUND}");
    let (severity, found) = only(&examined(&place(&elsewhere)), "store-directory-missing");
    assert_eq!((severity.as_str(), found["mend"].as_str()), ("problem", Some("mkdir -p missing")));
}

#[test]
fn a_file_without_a_log_is_not_given_one() {
    let directory = place(SOUND);
    let file = directory.path().join("onceward.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(connection);
    let before = fs::read(&file).unwrap();
    assert_eq!(only(&examined(&directory), "store-journal").0, "warning");
    assert!(fs::read(&file).unwrap() == before);
}

#[test]
fn unknown_and_interrupted_operations_are_counted_with_the_command_that_lists_them() {
    let directory = place(SOUND);
    claim(&directory, "a", Effect::External, before_now(3 * HOUR));
    claim(&directory, "b", Effect::External, before_now(2 * HOUR));
    claim(&directory, "c", Effect::Repeatable { within: 23 * HOUR }, before_now(HOUR));
    let document = examined(&directory);
    let found = codes(&document);
    assert_eq!(found["unknown-operations"], "warning");
    assert_eq!(found["interrupted-operations"], "note");
    assert_eq!(found.len(), 2, "{found:?}");
    let unknown = finding(&document, "unknown-operations");
    assert_eq!(unknown["what"], "2 unknown outcomes, the oldest 3h old");
    assert_eq!(unknown["mend"], "onceward keys list --config onceward.toml --state unknown");
    assert_eq!(document["store"]["unknown"], 2);
    assert_eq!(document["store"]["interrupted"], 1);
    assert!(document["store"]["oldest_unknown_seconds"].as_u64() >= Some(3 * 3600));
}

#[test]
fn a_claim_that_is_just_running_is_not_worth_a_word() {
    let directory = place(SOUND);
    claim(&directory, "a", Effect::External, before_now(Duration::ZERO));
    let document = examined(&directory);
    assert_eq!(codes(&document), [].into());
    assert_eq!(document["store"]["in_progress"], 1);
}

#[test]
fn records_from_the_future_are_a_problem() {
    let directory = place(SOUND);
    claim(&directory, "a", Effect::External, after_now(Duration::from_secs(30)));
    assert_eq!(codes(&examined(&directory)), [].into(), "clocks may differ a little");
    let directory = place(SOUND);
    claim(&directory, "a", Effect::External, after_now(2 * HOUR));
    let (severity, found) = only(&examined(&directory), "clock-behind");
    assert_eq!(severity, "problem");
    assert!(found["what"].as_str().unwrap().starts_with("the newest record is from the future"));
}

#[test]
fn permissions_wider_than_the_owner_are_found() {
    for (mode, severity) in [(0o640, "warning"), (0o644, "warning"), (0o660, "problem")] {
        let directory = place(SOUND);
        allow(&directory.path().join("onceward.db"), mode);
        let (found, texts) = only(&examined(&directory), "store-permissions");
        assert_eq!(
            (found.as_str(), texts["mend"].as_str()),
            (severity, Some("chmod 600 onceward.db"))
        );
    }
}

#[test]
fn without_its_key_a_sealed_store_is_not_judged() {
    let file = SOUND.replace("key_file = \"onceward.key\"", "key_env = \"SEAL\"");
    let directory = place(&file);
    assert_eq!(only(&examined(&directory), "encryption-key-unset").0, "problem");
    let key = ("SEAL", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let environment = [&ENVIRONMENT[..], &[key]].concat();
    assert_eq!(codes(&examined_with(&directory, &environment)), [].into());
}

#[test]
fn a_class_that_is_not_asked_for_is_noted() {
    let document = examined(&place(&format!("guarantee = \"relaxed\"\n{SOUND}")));
    let (severity, found) = only(&document, "guarantee-relaxed");
    assert_eq!(
        (severity.as_str(), found["mend"].as_str()),
        ("note", Some("guarantee = \"strict\""))
    );
}

#[test]
fn a_route_that_would_not_find_its_records_is_a_problem() {
    let directory = place(SOUND);
    claim(&directory, "k", Effect::External, before_now(Duration::ZERO));
    let file = directory.path().join("onceward.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(codes(&examined(&directory)).get("identity-changed"), None);
    let before = "UPDATE onceward_record SET scope = 'cert:subject=CN%3Dalice'";
    assert_eq!(connection.execute(before, []).unwrap(), 1);
    drop(connection);
    let document = examined(&directory);
    let found = finding(&document, "identity-changed");
    assert_eq!(codes(&document)["identity-changed"], "problem", "{document:#}");
    let said = found.to_string();
    for word in ["1 live record has", "`cert:subject`", "accept_identity_change = true"] {
        assert!(said.contains(word), "{word:?} is not said: {said}");
    }
}
