//! Command lines that make no sense.

use crate::call;

#[test]
fn a_wrong_command_line_is_refused_before_anything_is_sent() {
    for (arguments, words) in [
        (&["POST"][..], "required"),
        (&["POST", "charges"], "http://host/path"),
        (&["POST", "http://127.0.0.1:1/", "-d", "@no-such-file"], "no-such-file cannot be read"),
        (&["POST", "http://127.0.0.1:1/", "-H", "nonsense"], "Name: value"),
        (&["POST", "http://127.0.0.1:1/", "--key", "a b"], "key"),
        (&["POST", "http://127.0.0.1:1/", "--key", "k", "--no-key"], "cannot be used with"),
        (&["POST", "http://127.0.0.1:1/", "--attempts", "0"], "at least one attempt"),
        (&["POST", "http://127.0.0.1:1/", "--deadline", "10 seconds"], "did you mean"),
        (
            &["POST", "http://127.0.0.1:1/", "--attempt-timeout", "1m"],
            "more time than the whole call",
        ),
        (&["POST", "http://127.0.0.1:1/", "--priority", "9"], "0 (lowest)"),
        (&["GET", "http://127.0.0.1:1/", "--backoff", "equall"], "did you mean \"equal\"?"),
        (&["GET", "http://127.0.0.1:1/", "--backoff", "fixed:20s"], "outlast the deadline"),
        (&["GET", "http://127.0.0.1:1/", "--retry-status", "200"], "between 400 and 599"),
        (&["GET", "http://127.0.0.1:1/", "--retry-status", "4xx"], "invalid"),
        (
            &["GET", "http://127.0.0.1:1/", "--retry-status", "500", "--no-retry-status", "500"],
            "cannot be both",
        ),
        (&["-d", "x"], "required"),
        (
            &["POST", "http://127.0.0.1:1/", "--no-key", "--resume", "no-such-file"],
            "cannot be used with",
        ),
        (
            &["--resume", "no-such-file", "-H", "Idempotency-Key: k"],
            "each pending call has its own key",
        ),
    ] {
        let called = call(arguments);
        assert!([1, 2].contains(&called.code), "{arguments:?}: {called}");
        assert!(called.stderr.contains(words), "{words:?} is missing: {called}");
        assert!(!called.stderr.contains("attempt 1"), "{called}");
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    let text = call(&["--help"]).stdout;
    for words in ["Exit codes:", "Examples:", "--resume", "--attempt-timeout", "--json"] {
        assert!(text.contains(words), "{words}");
    }
}
