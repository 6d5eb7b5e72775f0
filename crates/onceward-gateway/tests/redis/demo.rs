//! `onceward demo --store redis://…`: the same counts, and nothing stays on the server.

use crate::{
    gateway_support::{Finished, command},
    support::server,
};

#[test]
fn every_tap_is_charged_once_and_no_key_stays() {
    let server = server(&[("requirepass", "")]);
    server.command(&["SET", "onceward:mine", "1"]);
    let arguments = ["demo", "--once", "--json", "--seconds", "1", "--clients", "8", "--store"];
    let ended = Finished::of(command(&arguments).arg(server.url()));
    assert!(ended.is_success(), "{ended}");
    let numbers = ended.json();
    assert!(numbers["taps"].as_u64().unwrap() > 0, "{numbers}");
    assert_eq!(numbers["charges"], numbers["taps"]);
    assert_eq!(numbers["findings"].as_array().unwrap().len(), 0);
    assert!(ended.stderr.contains("one Redis store"), "{ended}");
    assert_eq!(server.command(&["KEYS", "*"]).to_string(), "onceward:mine");
}

#[test]
fn other_stores_are_refused_without_their_password() {
    for (store, help) in [
        ("postgres://a:sesame@127.0.0.1:1/d", "redis://127.0.0.1:6379"),
        ("sqlite://a.db", "redis://127.0.0.1:6379"),
        ("redis://a:sesame@b@c", "%40 for @"),
        ("redis://:sesame@127.0.0.1:1", "no Redis or Valkey server"),
    ] {
        let refused = Finished::of(command(&["demo", "--once", "--store"]).arg(store));
        assert!(!refused.is_success() && refused.stderr.contains(help), "{refused}");
        assert!(!refused.stderr.contains("sesame"), "{refused}");
    }
}
