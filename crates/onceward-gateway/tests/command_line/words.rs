//! What a person sees who types `onceward`.

use std::process::{Command, Output};

fn onceward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward")).args(arguments).output().unwrap()
}

#[test]
fn version_is_the_workspaces() {
    let output = onceward(&["--version"]);
    assert!(output.status.success());
    let expected = format!("onceward {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn help_says_what_it_is() {
    let output = onceward(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("safe to retry") && text.contains("Usage: onceward"), "{text}");
}

#[test]
fn an_unknown_word_is_an_error_that_points_to_help() {
    let output = onceward(&["srve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--help"));
}

#[test]
fn nothing_at_all_shows_the_help() {
    let output = onceward(&[]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("Usage: onceward"));
}

#[test]
fn the_help_of_the_demo_has_examples() {
    let output = onceward(&["demo", "--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Examples:") && text.contains("--unprotected"), "{text}");
    assert!(onceward(&["--help"]).stdout.starts_with(b"Makes writes safe to retry"));
}

#[test]
fn a_demo_of_no_time_or_without_clients_is_refused() {
    for option in ["--seconds", "--clients"] {
        let output = onceward(&["demo", "--once", option, "0"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains(option));
    }
}
