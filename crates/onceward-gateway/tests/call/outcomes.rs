//! What is sent, what is told, and with which code it ends.

use crate::{
    call,
    server::{Do, Server},
};

const CREATED: Do = Do::Answer(201, "", "{\"id\": 7}");
const BUSY: Do = Do::Answer(
    409,
    "content-type: application/problem+json\r\nretry-after: 0\r\n",
    "{\"code\": \"in-progress\"}",
);
const BODY: &str = "{\"cents\": 500}";

#[test]
fn an_answer_goes_to_standard_output_and_the_rest_to_standard_error() {
    let server = Server::doing(&[CREATED]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "-H", "X-Api-Key: acme"]);
    assert_eq!((called.code, called.stdout.as_str()), (0, "{\"id\": 7}"), "{called}");
    assert!(called.stderr.contains("attempt 1  201"), "{called}");
    let [request] = &server.arrived()[..] else { panic!("sent once") };
    assert_eq!(request.line, "POST /charges HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-api-key"), Some("acme"));
    assert_eq!(request.header("onceward-attempt"), Some("1"));
    let key = request.header("idempotency-key").expect("a key is made");
    assert!(called.stderr.contains(key), "and told: {called}");
}

#[test]
fn a_failed_attempt_is_repeated_with_the_same_key_and_the_same_bytes() {
    for first in [
        Do::HangUp,
        Do::Answer(503, "", ""),
        Do::Answer(500, "", ""),
        Do::Answer(429, "retry-after: 0\r\n", ""),
        Do::CutShort,
        BUSY,
    ] {
        let server = Server::doing(&[first, CREATED]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY]);
        assert_eq!((called.code, called.stdout.as_str()), (0, "{\"id\": 7}"), "{called}");
        let [one, two] = &server.arrived()[..] else { panic!("sent twice: {called}") };
        assert_eq!(one.header("idempotency-key"), two.header("idempotency-key"));
        assert_eq!((&one.line, &one.body), (&two.line, &two.body));
        assert_eq!(two.header("onceward-attempt"), Some("2"));
    }
}

#[test]
fn what_another_attempt_would_not_change_is_refused() {
    for refusal in [
        Do::Answer(400, "", "no"),
        Do::Answer(404, "", "no"),
        Do::Answer(409, "", "sold out"),
        Do::Answer(422, "", "no"),
        Do::Answer(500, "idempotency-expires: Mon, 16 Nov 2026 12:00:00 GMT\r\n", "stored"),
        Do::Answer(502, "idempotent-replayed: true\r\n", "stored"),
    ] {
        let server = Server::doing(&[refusal]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY]);
        assert_eq!(called.code, 3, "{called}");
        assert!(called.stderr.contains("refused: "), "{called}");
        assert_eq!(server.arrived().len(), 1, "{called}");
    }
}

#[test]
fn without_an_answer_nobody_knows_and_the_key_is_told() {
    for silence in [Do::HangUp, Do::Hang] {
        let server = Server::doing(&[silence]);
        let quick = ["--deadline", "1s", "--attempt-timeout", "300ms"];
        let url = server.url("/charges");
        let called =
            call(&[&["POST", url.as_str(), "-d", BODY, "--key", "order-7"], &quick[..]].concat());
        assert_eq!(called.code, 4, "{called}");
        assert!(called.stderr.contains("It may have happened"), "{called}");
        assert!(called.stderr.contains("--key order-7"), "{called}");
        assert!(server.arrived().len() > 1, "{called}");
    }
    let unknown = Do::Answer(
        409,
        "content-type: application/problem+json\r\n",
        "{\"code\": \"outcome-unknown\"}",
    );
    let server = Server::doing(&[unknown]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY]);
    assert_eq!((called.code, server.arrived().len()), (4, 1), "{called}");
}

#[test]
fn without_a_key_a_post_is_sent_once() {
    for (failure, code) in
        [(Do::HangUp, 4), (Do::Answer(500, "", ""), 5), (Do::Answer(503, "", ""), 5)]
    {
        let server = Server::doing(&[failure, CREATED]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--no-key"]);
        assert_eq!(called.code, code, "{called}");
        assert_eq!(server.arrived().len(), 1, "{called}");
        assert_eq!(server.arrived()[0].header("idempotency-key"), None);
    }
}

#[test]
fn a_server_that_is_not_there_is_given_up_and_nothing_happened() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let called = call(&["POST", &format!("http://{free}/charges"), "-d", BODY]);
    assert_eq!(called.code, 5, "{called}");
    assert!(called.stderr.contains("attempt 3"), "also without a key it may be repeated: {called}");
}

#[test]
fn a_hint_beyond_the_deadline_ends_it_at_once_and_is_told() {
    let server = Server::doing(&[Do::Answer(503, "retry-after: 3600\r\n", "later")]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY]);
    assert_eq!((called.code, server.arrived().len()), (5, 1), "{called}");
    assert!(called.stderr.contains("come back after 3600.0 s"), "{called}");
}

#[test]
fn a_redirect_is_not_followed_with_a_key() {
    let other = Server::doing(&[CREATED]);
    let to: &'static str = format!("location: {}\r\n", other.url("/stolen")).leak();
    for (status, code) in [(301, 3), (302, 3), (307, 3), (308, 3), (303, 0), (304, 0)] {
        let server = Server::doing(&[Do::Answer(status, to, "")]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--json"]);
        assert_eq!((called.code, &called.json()["status"]), (code, &status.into()), "{called}");
        assert_eq!(called.json()["outcome"], if code == 0 { "ok" } else { "refused" });
        let told = called.stderr.contains(&other.url("/stolen"))
            && called.stderr.contains("a key belongs to one server");
        assert_eq!(told, code == 3, "{called}");
    }
    assert_eq!(other.arrived().len(), 0);
}

#[test]
fn json_tells_every_attempt() {
    let server = Server::doing(&[Do::Answer(503, "retry-after: 1\r\n", ""), CREATED]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--key", "order-7", "--json"]);
    let document = called.json();
    assert_eq!((called.code, &document["outcome"]), (0, &"ok".into()), "{called}");
    assert_eq!(document["status"], 201);
    assert_eq!(document["body"], "{\"id\": 7}");
    assert_eq!(document["key"], "order-7");
    assert!(document["stop"].is_null());
    let attempts = document["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0]["class"], "overload");
    assert_eq!(attempts[0]["status"], 503);
    assert_eq!(attempts[0]["retry_after_ms"], 1_000);
    assert!(attempts[0]["wait_ms"].as_u64().unwrap() >= 1_000);
    assert_eq!(attempts[1]["class"], "success");

    let server = Server::doing(&[Do::HangUp]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--json", "--attempts", "2"]);
    let document = called.json();
    assert_eq!((called.code, &document["outcome"]), (4, &"unknown".into()), "{called}");
    assert_eq!((&document["stop"], &document["exit_code"]), (&"attempts".into(), &4.into()));
    assert!(document["status"].is_null() && document["body"].is_null());
    assert_eq!(document["attempts"][1]["class"], "ambiguous");
}

#[test]
fn bytes_that_are_no_text_are_told_in_base64_and_written_as_they_are() {
    let server = Server::doing(&[CREATED]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0, 159, 146, 150]).unwrap();
    let from = format!("@{}", file.path().display());
    let called = call(&["PUT", &server.url("/files/7"), "-d", &from]);
    assert_eq!(called.code, 0, "{called}");
    let [request] = &server.arrived()[..] else { panic!("sent once") };
    assert_eq!(request.body, [0, 159, 146, 150]);
    assert_eq!(request.header("content-type"), None);
    assert_eq!(request.header("idempotency-key"), None, "a PUT needs none");
}

/// Each of its attempts was given: what it paid and failed at itself does not take them away.
#[test]
fn a_call_makes_all_the_attempts_that_it_was_given() {
    for (arguments, sent) in [
        (&["--attempts", "5"][..], 5),
        (&["--attempts", "7", "--priority", "0"], 7),
        (&["--patient"], 8),
        (&["--attempts", "20"], 20),
    ] {
        let server = Server::doing(&[Do::Answer(500, "", "")]);
        let url = server.url("/charges");
        let line = ["POST", url.as_str(), "-d", BODY, "--backoff", "fixed:1ms", "--json"];
        let called = call(&[&line[..], arguments].concat());
        assert_eq!((called.code, server.arrived().len()), (5, sent), "{called}");
        assert_eq!(called.json()["stop"], "attempts", "{called}");
        assert!(called.stderr.contains("gave up: all attempts are used up"), "{called}");
    }
    let server = Server::doing(&[Do::Answer(500, "", "")]);
    let url = server.url("/charges");
    let called = call(&["POST", &url, "--backoff", "none", "--attempts", "99", "--deadline", "1m"]);
    assert_eq!((called.code, server.arrived().len()), (5, 31), "{called}");
    assert!(called.stderr.contains("gave up: retry budget exhausted"), "{called}");
}

/// What a gateway of ours says that has no answer of the service behind it, and does not keep the key.
fn no_answer(status: u16, retryable: bool) -> Do {
    let document = format!(
        "{{\"type\": \"urn:onceward:problem:upstream-failed\", \"code\": \"upstream-failed\", \
         \"retryable\": {retryable}}}"
    );
    Do::Answer(status, "content-type: application/problem+json\r\n", document.leak())
}

#[test]
fn a_post_is_not_repeated_because_a_problem_says_that_it_may_be() {
    for (failure, no_key) in [
        (no_answer(502, true), true),
        (no_answer(504, true), true),
        (no_answer(502, true), false),
        (no_answer(504, false), false),
        (Do::Answer(502, "onceward-unprotected: no-route\r\n", ""), false),
    ] {
        let server = Server::doing(&[failure, CREATED]);
        let url = server.url("/charges");
        let line = ["POST", url.as_str(), "-d", BODY, "--json", "--no-key"];
        let called = call(&line[..line.len() - usize::from(!no_key)]);
        assert_eq!((called.code, server.arrived().len()), (4, 1), "{called}");
        assert_eq!(called.json()["stop"], "unsafe", "{called}");
        assert!(no_key || called.json()["unprotected"] == true, "{called}");
        assert!(called.stderr.contains("look"), "{called}");
        assert!(!called.stderr.contains("Find out with the same request"), "{called}");
    }
}

/// The same as Stripe's SDKs read it.
fn in_stripes_shape(status: u16, code: &str, should_retry: bool, headers: &str) -> Do {
    let document = format!(
        "{{\"error\": {{\"type\": \"api_error\", \"code\": \"{code}\", \"doc_url\": \
         \"https://docs.rs/onceward/latest/onceward/server/enum.Code.html\"}}}}"
    );
    let headers = format!(
        "content-type: application/json\r\nstripe-should-retry: {should_retry}\r\n{headers}"
    );
    Do::Answer(status, headers.leak(), document.leak())
}

#[test]
fn refusals_in_stripes_shape_are_understood_as_problems_are() {
    let named = "onceward-operation: 7\r\n";
    for (refusal, code, sent) in [
        (in_stripes_shape(502, "upstream-failed", false, ""), 4, 1),
        (in_stripes_shape(502, "upstream-failed", true, ""), 4, 1),
        (in_stripes_shape(502, "upstream-failed", true, named), 0, 2),
        (in_stripes_shape(504, "outcome-unknown", false, named), 4, 1),
        (in_stripes_shape(409, "outcome-unknown", false, named), 4, 1),
        (in_stripes_shape(409, "idempotency_key_in_use", true, "retry-after: 0\r\n"), 0, 2),
        (in_stripes_shape(503, "overloaded", true, "retry-after: 0\r\n"), 0, 2),
        // Whoever says so, and whatever its body is.
        (Do::Answer(500, "stripe-should-retry: false\r\n", ""), 3, 1),
        (Do::Answer(502, "stripe-should-retry: false\r\n", "broken"), 4, 1),
    ] {
        let server = Server::doing(&[refusal, CREATED]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--json"]);
        assert_eq!((called.code, server.arrived().len()), (code, sent), "{called}");
    }
    let suspect = in_stripes_shape(503, "clock-suspect", true, "retry-after: 0\r\n");
    let server = Server::doing(&[suspect]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--json"]);
    assert_eq!((called.code, server.arrived().len()), (4, 3), "it ran before: {called}");
}

#[test]
fn what_the_head_of_an_answer_says_counts_also_when_its_body_breaks_off() {
    for (cut, code, sent) in [
        (Do::CutAfter(201, "onceward-unprotected: no-route\r\n"), 4, 1),
        (Do::CutAfter(502, "onceward-unprotected: key-off\r\n"), 4, 1),
        (Do::CutAfter(201, "idempotent-replayed: true\r\n"), 0, 2),
    ] {
        let server = Server::doing(&[cut, CREATED]);
        let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--json"]);
        assert_eq!((called.code, server.arrived().len()), (code, sent), "{called}");
        assert_eq!(called.json()["unprotected"] == true, sent == 1, "{called}");
    }
}

#[test]
fn a_pending_call_that_the_server_does_not_keep_a_key_for_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("charge.pending");
    let file = file.to_str().unwrap();
    let server = Server::doing(&[no_answer(502, false), CREATED]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--resume", file]);
    assert_eq!((called.code, server.arrived().len()), (4, 1), "{called}");
    let called = call(&["--resume", file]);
    assert!(called.stderr.contains("nothing in"), "{called}");
    assert_eq!(server.arrived().len(), 1, "{called}");
}

#[test]
fn statuses_to_try_again_after_can_be_named() {
    let locked = Do::Answer(423, "retry-after: 0\r\n", "");
    let full = Do::Answer(507, "retry-after: 0\r\n", "");
    let bound = Do::Answer(507, "retry-after: 0\r\nidempotent-replayed: true\r\n", "");
    for (first, arguments, code, sent) in [
        (locked, &[][..], 0, 2),
        (full, &[], 0, 2),
        (full, &["--no-key"], 5, 1),
        (bound, &["--retry-status", "507"], 3, 1),
        (Do::Answer(423, "", ""), &[], 3, 1),
        (Do::Answer(507, "", ""), &[], 3, 1),
        (Do::Answer(404, "", ""), &["--retry-status", "404,507"], 0, 2),
        (Do::Answer(507, "", ""), &["--retry-status", "404,507"], 0, 2),
        (Do::Answer(404, "", ""), &["--retry-status", "404", "--no-key"], 5, 1),
        (Do::Answer(500, "", ""), &["--no-retry-status", "500,502"], 3, 1),
        (Do::Answer(503, "retry-after: 0\r\n", ""), &["--no-retry-status", "503"], 3, 1),
    ] {
        let server = Server::doing(&[first, CREATED]);
        let url = server.url("/charges");
        let called = call(&[&["POST", url.as_str(), "-d", BODY], arguments].concat());
        assert_eq!((called.code, server.arrived().len()), (code, sent), "{arguments:?} {called}");
    }
}

#[test]
fn the_kind_of_back_off_can_be_chosen() {
    for (kind, waits) in [
        ("fixed:30ms", [30..=30, 30..=30]),
        ("none", [0..=0, 0..=0]),
        ("equal:20ms..1s", [10..=20, 20..=40]),
        ("ranges:5ms..6ms,30ms..40ms", [5..=6, 30..=40]),
        ("decorrelated:10ms..15ms", [10..=15, 10..=15]),
        ("additive:20ms..1s", [20..=40, 40..=60]),
        ("full:1ms..2ms", [0..=1, 0..=2]),
    ] {
        let server = Server::doing(&[Do::Answer(500, "", "")]);
        let called = call(&["GET", &server.url("/"), "--backoff", kind, "--json"]);
        let document = called.json();
        for (number, wait) in waits.iter().enumerate() {
            let waited = document["attempts"][number]["wait_ms"].as_u64().unwrap();
            assert!(wait.contains(&waited), "{kind}: {called}");
        }
    }
}

#[test]
fn one_attempt_leaves_time_for_another() {
    let server = Server::doing(&[Do::Hang, CREATED]);
    let called = call(&["POST", &server.url("/charges"), "-d", BODY, "--deadline", "2s"]);
    assert_eq!((called.code, server.arrived().len()), (0, 2), "{called}");
}
