//! Who can reach the gateway and its files.

use std::fs;

use crate::doctor::support::{
    ENVIRONMENT, SOUND, allow, codes, examined, examined_with, finding, place,
};

#[test]
fn keyed_writes_that_no_route_takes_are_noted() {
    for (line, found) in
        [("", true), ("unmatched = \"pass\"\n", true), ("unmatched = \"refuse\"\n", false)]
    {
        let document = examined(&place(&SOUND.replace("unmatched = \"refuse\"\n", line)));
        assert_eq!(codes(&document).contains_key("unmatched-pass"), found, "{line}");
    }
    let document = examined(&place(&SOUND.replace("unmatched = \"refuse\"\n", "")));
    let mend = finding(&document, "unmatched-pass")["mend"].as_str().unwrap();
    assert_eq!(mend, "unmatched = \"refuse\"");
}

#[test]
fn listeners_that_others_can_reach_in_the_clear_are_warned_of() {
    for (line, code) in [
        ("listen = \"0.0.0.0:8080\"", "listen-plain"),
        ("listen = \"[::]:8080\"", "listen-plain"),
        ("listen = \"192.0.2.7:8080\"", "listen-plain"),
    ] {
        let document = examined(&place(&format!("{line}\n{SOUND}")));
        assert_eq!(codes(&document), [(code.into(), "warning".into())].into(), "{line}");
    }
    let open = SOUND.replace("127.0.0.1:8081", "0.0.0.0:8081");
    assert_eq!(codes(&examined(&place(&open)))["admin-plain"], "warning");
    assert_eq!(codes(&examined(&place(&format!("listen = \"127.0.0.1:1\"\n{SOUND}")))), [].into());
}

#[test]
fn with_tls_only_its_key_is_looked_at() {
    let secure = format!(
        "listen = \"0.0.0.0:8080\"\n{}\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n",
        SOUND.replace("127.0.0.1:8081", "0.0.0.0:8081")
    );
    for (mode, severity) in [
        (0o600, None),
        (0o640, Some("warning")),
        (0o644, Some("problem")),
        (0o620, Some("problem")),
    ] {
        let directory = place(&secure);
        for name in ["cert.pem", "key.pem"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        allow(&directory.path().join("key.pem"), mode);
        let found = codes(&examined(&directory));
        assert_eq!(found.get("tls-key-permissions").map(String::as_str), severity, "{mode:o}");
        assert_eq!(found.len(), usize::from(severity.is_some()), "{found:?}");
    }
}

#[test]
fn an_encryption_key_that_others_can_read_is_a_problem() {
    let directory = place(SOUND);
    allow(&directory.path().join("onceward.key"), 0o644);
    let document = examined(&directory);
    assert_eq!(codes(&document)["encryption-key-permissions"], "problem");
    let mend = &finding(&document, "encryption-key-permissions")["mend"];
    assert_eq!(mend, "chmod 600 onceward.key");
}

#[test]
fn answers_without_encryption_are_noted_where_any_are_kept() {
    let plain = SOUND.replace("[encryption]\nkey_file = \"onceward.key\"\n", "");
    assert_eq!(codes(&examined(&place(&plain)))["not-encrypted"], "note");
    let nothing_kept = format!("{plain}keep = \"status\"\n");
    assert_eq!(codes(&examined(&place(&nothing_kept))), [].into());
}

#[test]
fn without_operators_or_their_tokens_it_is_noted() {
    let tokens = "[admin_tokens]\nops = { token_env = \"TOKEN\", role = \"resolve\" }\n";
    let open = SOUND.replace(tokens, "");
    let found = codes(&examined(&place(&open)));
    assert_eq!(found, [("admin-without-tokens".into(), "note".into())].into());
    let closed = open.replace("admin = \"127.0.0.1:8081\"\n", "");
    let found = codes(&examined(&place(&closed)));
    assert_eq!(found, [("no-admin".into(), "note".into())].into());
}

#[test]
fn secrets_that_are_missing_short_or_shared_are_problems_and_never_shown() {
    let directory = place(SOUND);
    let secret = ENVIRONMENT[1];
    for (environment, code) in [
        (&[secret][..], "token-unset"),
        (&[secret, ("TOKEN", "")], "token-unset"),
        (&[secret, ("TOKEN", "sesame-fifteen!")], "token-short"),
        (&[("TOKEN", "0123456789abcdef")], "jwt-secret-unset"),
    ] {
        let document = examined_with(&directory, environment);
        assert_eq!(codes(&document), [(code.into(), "problem".into())].into());
        assert!(!document.to_string().contains("sesame"));
    }
    let ops = "ops = { token_env = \"TOKEN\", role = \"resolve\" }\n";
    let two = format!("{ops}two = {{ token_env = \"OTHER\", role = \"read\" }}\n");
    let directory = place(&SOUND.replace(ops, &two));
    let environment = [&ENVIRONMENT[..], &[("OTHER", "0123456789abcdef")]].concat();
    assert_eq!(codes(&examined_with(&directory, &environment))["token-twice"], "problem");
}

#[test]
fn keys_of_more_than_one_issuer_are_taken_only_on_purpose() {
    let keys = SOUND.replace("secret_env = \"JWT_SECRET\"", "jwks = \"keys.json\"");
    for (issuer, is_found) in [("", true), ("issuer = \"https://login.example.com\"\n", false)] {
        let text = keys.replace("jwks", &format!("{issuer}jwks"));
        let directory = place(&text);
        fs::write(directory.path().join("keys.json"), "{\"keys\": []}").unwrap();
        let found = codes(&examined(&directory));
        assert_eq!(
            found.get("jwt-any-issuer").is_some_and(|kind| kind == "warning"),
            is_found,
            "{found:?}"
        );
    }
}
