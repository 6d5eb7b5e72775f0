//! The command itself: its output, its ends, and that it changes nothing.

use std::{fs, net::TcpListener, time::Duration};

use onceward::Effect;
use serde_json::Value;

use crate::doctor::support::{
    ENVIRONMENT, SOUND, before_now, claim, codes, contents, doctor, examined, finding, place,
};

#[test]
fn a_sound_gateway_has_nothing_to_mend() {
    let document = examined(&place(SOUND));
    assert_eq!(codes(&document), [].into(), "{document:#}");
    for (name, value) in [("valid", true), ("healthy", true)] {
        assert_eq!(document[name], value);
    }
    assert_eq!(document["file"], "onceward.toml");
    assert_eq!(document["check"].as_array().unwrap().len(), 2, "listen and store are not said");
    let store = &document["store"];
    assert_eq!((&store["journal_mode"], &store["synchronous"]), (&"wal".into(), &2.into()));
    assert_eq!((&store["class"], &store["unknown"]), (&"strict".into(), &0.into()));
    assert!(store["file_bytes"].as_u64() > Some(0) && store["free_bytes"].as_u64() > Some(0));
}

#[test]
fn people_get_aligned_text_with_what_to_write() {
    let directory = place(&SOUND.replace("key = \"required\"\n", ""));
    let output = doctor(&directory, &["--offline"], &ENVIRONMENT);
    assert!(output.is_success());
    let said = &output.stdout;
    assert!(said.starts_with("onceward.toml: 0 problems, 0 warnings, 1 note\n"), "{said}");
    let store = "\nstore    sqlite://onceward.db: strict (journal_mode=wal, synchronous=FULL), ";
    assert!(said.contains(store), "{said}");
    assert!(said.contains("\nroute    POST /v1/charges\n  tier   T3, at most once\n"), "{said}");
    let finding = "\nnote     requests without a key pass [key-optional]\n  about  POST /v1/charges\n  \
                   means  they are not protected: each of their retries runs again\n  \
                   mend   key = \"required\"\n";
    assert!(said.contains(finding), "{said}");
}

#[test]
fn a_wrong_configuration_is_explained_as_check_does() {
    let directory = place("upstream = \"http://127.0.0.1:3000\"\nlisten = \"here\"\n");
    let output = doctor(&directory, &[], &[]);
    assert_eq!(output.code, 1);
    let said = &output.stderr;
    assert!(said.contains("onceward.toml:2:10: error: `listen` is not an address"), "{said}");
    let output = doctor(&directory, &["--json"], &[]);
    assert_eq!(output.code, 1);
    let document = output.json();
    assert_eq!((&document["valid"], &document["healthy"]), (&false.into(), &false.into()));
    assert_eq!(document["check"][0]["severity"], "error");
    fs::remove_file(directory.path().join("onceward.toml")).unwrap();
    let output = doctor(&directory, &[], &[]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("there is no such file"), "{}", output.stderr);
}

#[test]
fn another_file_is_looked_at_if_it_is_named() {
    let directory = place(SOUND);
    let [from, to] = ["onceward.toml", "gateway.toml"].map(|name| directory.path().join(name));
    fs::rename(from, to).unwrap();
    let more = ["--config", "gateway.toml", "--offline"];
    let output = doctor(&directory, &more, &ENVIRONMENT);
    assert!(output.is_success());
    assert!(output.stdout.starts_with("gateway.toml: 0 problems"));
}

#[test]
fn nothing_is_created_or_changed() {
    let directory = place(SOUND);
    claim(&directory, "a", Effect::External, before_now(Duration::from_secs(3600)));
    let before = contents(&directory);
    assert_eq!(codes(&examined(&directory)).len(), 1, "it was looked into");
    assert!(contents(&directory) == before);
    fs::remove_file(directory.path().join("onceward.db")).unwrap();
    let before = contents(&directory);
    assert!(codes(&examined(&directory)).contains_key("store-file-missing"));
    assert!(contents(&directory) == before);
}

#[test]
fn an_upstream_that_is_not_there_is_a_warning_unless_it_is_offline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let directory = place(&SOUND.replace("127.0.0.1:3000", &format!("127.0.0.1:{port}")));
    let ask = |more: &[&str]| -> Value {
        let output = doctor(&directory, more, &ENVIRONMENT);
        assert!(output.is_success(), "a warning at most");
        output.json()
    };
    assert!(!codes(&ask(&["--json"])).contains_key("unreachable"));
    drop(listener);
    let document = ask(&["--json"]);
    assert_eq!(codes(&document)["unreachable"], "warning");
    let what = finding(&document, "unreachable")["what"].as_str().unwrap();
    assert!(what.contains(&format!("127.0.0.1:{port} does not accept a connection")), "{what}");
    assert!(!codes(&ask(&["--json", "--offline"])).contains_key("unreachable"));
}

#[test]
fn the_help_has_examples() {
    let output = doctor(&place(SOUND), &["--help"], &[]);
    assert!(output.is_success());
    assert!(output.stdout.contains("Examples:"));
}
