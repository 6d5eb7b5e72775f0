//! Calls that outlive their process.

use std::{
    thread,
    time::{Duration, Instant},
};

use testbed::{Process, TEST_TIMEOUT};

use crate::{
    call,
    command::command,
    server::{Do, Server},
};

const CREATED: Do = Do::Answer(201, "", "{\"id\": 7}");
const BODY: &str = "{\"cents\": 500}";

/// Kills the process that calls, as soon as its request has arrived.
fn killed(server: &Server, arguments: &[&str]) {
    let before = server.arrived().len();
    let calling = Process::start(command(&["call"]).args(arguments)).unwrap();
    let end = Instant::now() + TEST_TIMEOUT;
    while server.arrived().len() == before {
        assert!(Instant::now() < end, "nothing was sent");
        thread::sleep(Duration::from_millis(5));
    }
    calling.kill().unwrap();
}

#[test]
fn a_call_whose_process_was_killed_is_sent_again_with_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("charge.pending");
    let file = file.to_str().unwrap();
    let server = Server::doing(&[Do::Hang, Do::Hang, CREATED]);
    let url = server.url("/charges");
    let arguments = ["POST", &url, "-d", BODY, "-H", "Authorization: Bearer one", "--resume", file];
    killed(&server, &arguments);
    // The same command knows it by what it sends; and without a request, all that is there is sent.
    killed(&server, &arguments);
    let called = call(&["--resume", file, "-H", "Authorization: Bearer two"]);
    assert_eq!((called.code, called.stdout.as_str()), (0, "{\"id\": 7}"), "{called}");

    let [one, two, three] = &server.arrived()[..] else { panic!("three were sent") };
    let key = one.header("idempotency-key");
    assert!(key.is_some());
    for again in [two, three] {
        assert_eq!((again.header("idempotency-key"), &again.body), (key, &one.body));
        assert_eq!(again.header("content-type"), Some("application/json"));
    }
    assert_eq!(three.header("authorization"), Some("Bearer two"));
    let bytes = std::fs::read(file).unwrap();
    let secret = b"Bearer one";
    assert!(!bytes.windows(secret.len()).any(|window| window == secret), "no secret is kept");

    let called = call(&["--resume", file]);
    assert_eq!(called.code, 0, "{called}");
    assert!(called.stderr.contains("nothing in"), "its outcome is known: {called}");
    assert_eq!(server.arrived().len(), 3);
}

#[test]
fn what_stays_unknown_stays_pending_and_a_new_request_has_a_new_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("charge.pending");
    let file = file.to_str().unwrap();
    let server = Server::doing(&[Do::HangUp, CREATED]);
    let url = server.url("/charges");
    let called = call(&["POST", &url, "-d", BODY, "--attempts", "1", "--resume", file]);
    assert_eq!(called.code, 4, "{called}");
    let called = call(&["POST", &url, "-d", "{\"cents\": 900}", "--resume", file]);
    assert_eq!(called.code, 0, "{called}");
    let called = call(&["POST", &url, "-d", BODY, "--resume", file]);
    assert_eq!(called.code, 0, "{called}");
    let arrived = server.arrived();
    let keys: Vec<_> = arrived.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!((keys.len(), keys[0] == keys[1], keys[0] == keys[2]), (3, false, true));
}

#[test]
fn a_file_that_is_something_else_and_a_call_without_a_key_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("notes.txt");
    std::fs::write(
        &file,
        "these are my notes, and they are longer than the head of a database file is",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let server = Server::doing(&[CREATED]);
    let url = server.url("/charges");
    for (arguments, words) in [
        (
            &["POST", &url, "-d", BODY, "--resume", file][..],
            "the file of pending calls cannot be used",
        ),
        (&["PUT", &url, "-d", BODY, "--resume", &format!("{file}.db")], "only a call with a key"),
    ] {
        let called = call(arguments);
        assert_eq!(called.code, 1, "{called}");
        assert!(called.stderr.contains(words), "{called}");
    }
    assert_eq!(server.arrived().len(), 0, "nothing is sent that is not written down");
    assert!(std::fs::read_to_string(file).unwrap().starts_with("these are my notes"));
}

#[test]
fn a_refusal_or_a_redirect_does_not_end_a_pending_call() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("charge.pending");
    let file = file.to_str().unwrap();
    let moved = Do::Answer(308, "location: https://127.0.0.1:1/charges\r\n", "");
    let server = Server::doing(&[moved, Do::HangUp, moved, Do::Answer(401, "", ""), CREATED]);
    let url = server.url("/charges");
    let called = call(&["POST", &url, "-d", BODY, "--resume", file]);
    assert_eq!(called.code, 3, "it points elsewhere: {called}");
    let called = call(&["--resume", file, "--attempts", "1"]);
    assert_eq!(called.code, 4, "it was not answered: {called}");
    let called = call(&["--resume", file]);
    assert_eq!(called.code, 4, "and where it points now does not tell: {called}");
    let called = call(&["--resume", file]);
    assert_eq!(called.code, 4, "the credentials are missing, and it may have happened: {called}");
    let called = call(&["--resume", file, "-H", "X-Role: a", "-H", "X-Role: b"]);
    assert_eq!(called.code, 0, "{called}");
    let arrived = server.arrived();
    let key = arrived[0].header("idempotency-key");
    assert_eq!(arrived.len(), 5);
    assert!(arrived.iter().all(|request| request.header("idempotency-key") == key));
    assert!(call(&["--resume", file]).stderr.contains("nothing in"));
}

#[test]
fn a_pending_call_that_breaks_does_not_stop_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("charge.pending");
    let file = file.to_str().unwrap();
    let silent = Server::doing(&[Do::HangUp]);
    let server = Server::doing(&[Do::HangUp, CREATED]);
    for url in [silent.url("/charges"), server.url("/charges")] {
        let called = call(&["POST", &url, "-d", BODY, "--attempts", "1", "--resume", file]);
        assert_eq!(called.code, 4, "{called}");
    }
    // The first of them is damaged: with two keys it has none.
    let calls = rusqlite::Connection::open(file).unwrap();
    let changed = calls.execute(
        "UPDATE calls SET headers = CAST(headers || 'idempotency-key:x' || char(10) AS BLOB)
         WHERE uri = ?1",
        [silent.url("/charges")],
    );
    assert_eq!(changed.unwrap(), 1);
    drop(calls);
    let called = call(&["--resume", file, "--attempts", "1"]);
    assert_eq!(called.code, 1, "{called}");
    assert!(called.stderr.contains("only a call with a key"), "{called}");
    assert_eq!(called.stdout, "{\"id\": 7}", "the second was sent: {called}");
    assert_eq!(server.arrived().len(), 2);
}
