//! What a person sees who types `onceward`.

use crate::command::run;

#[test]
fn version_is_the_workspaces() {
    let output = run(&["--version"]);
    assert!(output.is_success());
    let expected = format!("onceward {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(output.stdout, expected);
}

#[test]
fn help_says_what_it_is() {
    let output = run(&["--help"]);
    assert!(output.is_success());
    let text = output.stdout;
    assert!(text.contains("safe to retry") && text.contains("Usage: onceward"), "{text}");
}

#[test]
fn an_unknown_word_is_an_error_that_points_to_help() {
    let output = run(&["srve"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--help"));
}

#[test]
fn nothing_at_all_shows_the_help() {
    let output = run(&[]);
    assert!(output.stderr.contains("Usage: onceward"));
}

#[test]
fn the_help_of_the_demo_has_examples() {
    let output = run(&["demo", "--help"]);
    assert!(output.is_success());
    let text = output.stdout;
    assert!(text.contains("Examples:") && text.contains("--unprotected"), "{text}");
    assert!(run(&["--help"]).stdout.starts_with("Makes writes safe to retry"));
}

#[test]
fn a_demo_of_no_time_or_without_clients_is_refused() {
    for option in ["--seconds", "--clients"] {
        let output = run(&["demo", "--once", option, "0"]);
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains(option));
    }
}
