//! What a person or a program sees who types `onceward probe`.

use std::{
    io::Read as _,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    gateway_support::{Finished, free_address},
    run::{CALLERS, DATA, command, onceward_probe, probe, probe_counted},
    server::{Answers, Defect, Nature, Server},
};

/// A listener that counts who comes, and answers nobody.
fn listener() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.unwrap().read(&mut [0; 100]);
        }
    });
    (format!("http://{address}/payments"), count)
}

/// It did not probe, and names these: options, addresses, and what others have answered.
fn assert_cannot(probed: &Finished, named: &[&str]) {
    assert_eq!((probed.code, probed.stdout.as_str()), (1, ""), "{probed}");
    for name in named {
        assert!(probed.stderr.contains(name), "no {name:?}: {probed}");
    }
}

#[test]
fn the_list_has_the_checks_of_the_profile() {
    let all = onceward_probe(&["--list"]);
    assert_eq!(all.code, 0, "{all}");
    assert_eq!(all.stdout.lines().count(), 30, "{all}");
    assert!(all.stdout.starts_with("once "), "{all}");
    let ietf = onceward_probe(&["--list", "--profile", "ietf"]);
    assert!(!ietf.stdout.contains("Idempotent-Replayed") && !ietf.stdout.contains("\nmarker "));
    assert!(ietf.stdout.contains("\nmismatch "), "{ietf}");
}

#[test]
fn a_dry_run_says_everything_and_sends_nothing() {
    let (url, count) = listener();
    let more = ["--dry-run", "--count-url", &url, "--count-json", "/n"];
    let dry = probe(&url, &more);
    assert_eq!(dry.code, 0, "{dry}");
    let commands = dry.stdout.lines().filter(|line| line.starts_with("curl ")).count();
    assert!(commands > 40, "{dry}");
    for option in ["--max-time", "$CREDENTIAL", "$OTHER_CREDENTIAL"] {
        assert!(dry.stdout.contains(option), "no {option:?}: {dry}");
    }
    for id in ["once", "concurrent", "scope"] {
        assert!(dry.stdout.contains(&format!("# {id}: ")), "no {id}: {dry}");
    }
    // Also where it might not be allowed.
    let far = probe("http://192.0.2.1/payments", &["--dry-run"]);
    assert_eq!(far.code, 0, "{far}");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn only_what_is_asked_for_is_checked() {
    let server = Server::right();
    let probed = probe_counted(&server, &["--only", "mismatch,once"]);
    probed.assert_perfect("two", &[]);
    assert_eq!(probed.ids("pass"), ["once", "mismatch"]);
    assert!(server.requests() < 10, "{} requests", server.requests());
}

/// Where keys change nothing, no other check says anything, whether or not that was asked for.
#[test]
fn what_says_nothing_is_left_out_also_if_only_that_is_asked_for() {
    let only = ["--only", "scope,key-case,key-long"];
    let probed = probe_counted(&Server::wrong(Defect::NoIdempotency), &only);
    assert_eq!(probed.ids("skip"), ["scope", "key-case", "key-long"], "{probed}");
    assert_eq!((probed.checks().len(), probed.code), (3, 1), "{probed}");
    assert!(probed.json()["score"].is_null(), "{probed}");
}

#[test]
fn who_does_not_read_on_is_no_trouble() {
    for arguments in [&["--list"][..], &["http://127.0.0.1:1/", "--dry-run"]] {
        let mut command = command(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let probed = Finished::of(command.stdout(writer));
        assert_eq!((probed.code, probed.stderr.as_str()), (0, ""));
    }
}

#[test]
fn keys_and_callers_that_cannot_be_are_refused() {
    let with = |more: &[&str]| onceward_probe(&[&["http://127.0.0.1:1/"], more].concat());
    let key = with(&["-H", "Idempotency-Key: mine"]);
    assert_eq!(key.code, 2, "{key}");
    assert!(key.stderr.contains("Idempotency-Key"), "{key}");
    let (one, two, three) = ("X-Api-Key: one1", "X-Api-Key: two2", "X-Api-Key: three3");
    let same = with(&["--credential", one, "--credential", one]);
    assert_cannot(&same, &["--credential"]);
    let many = with(&["--credential", one, "--credential", two, "--credential", three]);
    assert_cannot(&many, &["--credential"]);
    assert_cannot(&with(&["--credential", "Idempotency-Key: mine"]), &["--credential"]);
}

#[test]
fn an_unknown_check_is_refused_with_a_suggestion() {
    let probed = probe("http://127.0.0.1:1/", &["--only", "concurent"]);
    assert_eq!(probed.code, 2, "{probed}");
    assert!(probed.stderr.contains("`concurrent`"), "{probed}");
}

#[test]
fn another_computer_is_left_alone_without_a_yes() {
    let probed = probe("http://192.0.2.1/payments", &[]);
    assert_cannot(&probed, &["192.0.2.1", "--yes", "--dry-run"]);
    let (here, visits) = listener();
    let count = ["--count-url", "http://192.0.2.1/count", "--count-json", "/n"];
    assert_cannot(&probe(&here, &count), &["192.0.2.1/count", "--yes"]);
    assert_eq!(visits.load(Ordering::SeqCst), 0, "the probe asks no server before that");
}

#[test]
fn no_more_requests_are_sent_than_allowed() {
    for most in ["2", "15", "60"] {
        let server = Server::right();
        let probed = probe_counted(&server, &["--max-requests", most]);
        probed.assert_fails(most, &[]);
        let sent = probed.json()["requests"].as_u64().unwrap();
        assert_eq!(server.requests(), sent, "{probed}");
        assert!(sent <= most.parse().unwrap(), "{probed}");
        let skipped = probed.checks().into_iter().filter(|check| check["result"] == "skip");
        let mut reasons = skipped.map(|check| check["detail"].to_string());
        assert!(reasons.any(|reason| reason.contains("--max-requests")), "{probed}");
    }
    let too_few = probe_counted(&Server::right(), &["--max-requests", "1"]);
    assert_cannot(&too_few, &["--max-requests"]);
}

#[test]
fn what_does_not_answer_cannot_be_probed() {
    let url = format!("http://{}/payments", free_address().unwrap());
    assert_cannot(&probe(&url, &[]), &[&url]);
    let (silent, _) = listener();
    let probed = probe(&silent, &["--timeout", "1"]);
    assert_cannot(&probed, &[&silent]);
}

#[test]
fn an_operation_that_does_not_succeed_is_explained() {
    let server = Server::right();
    let probed = probe_counted(&server, &["--data", r#"{"to": "ada"}"#]);
    // The status and the words of the API itself.
    assert_cannot(&probed, &["400", "how much?", "--data"]);
    assert_eq!(server.requests(), 2);
    let url = server.url("/payments");
    let probed = onceward_probe(&[&url, "--data", DATA, "--credential", "X-Api-Key: mallory"]);
    assert_cannot(&probed, &["401", "--credential"]);
}

#[test]
fn a_count_that_does_not_count_is_explained() {
    let server = Server::right();
    let count = |url: &str, pointer: &str| {
        let more = ["--count-url", url, "--count-json", pointer];
        probe(&server.url("/payments"), &more)
    };
    assert_cannot(&count(&server.url("/count"), "/sum"), &["`/sum`"]);
    assert_eq!(server.requests(), 0);
    // Nothing is made there: it answers 400 to a request without data.
    assert_cannot(&count(&server.url("/payments"), "/total"), &["400"]);
    let idle = Server::right();
    assert_cannot(&count(&idle.url("/count"), "/total"), &["--count-url"]);
    let made = server.made();
    let nowhere = format!("http://{}/", free_address().unwrap());
    assert_cannot(&count(&nowhere, "/total"), &[]);
    assert_eq!(server.made(), made, "what cannot be counted is not begun");
}

/// Also if the API repeats them in its answers, and if something fails.
#[test]
fn credentials_are_never_printed() {
    let nature = Nature { answers: Answers::Json, is_talkative: true, ..Nature::default() };
    thread::scope(|scope| {
        for defect in [None, Some(Defect::NoIdempotency), Some(Defect::NoScope)] {
            scope.spawn(move || {
                let server = Server::start(Nature { defect, ..nature });
                let token = ["--header", "Authorization: Bearer hidden-token"];
                let json = probe_counted(&server, &token);
                assert_eq!(json.code == 0, defect.is_none(), "{json}");
                assert!(json.stdout.contains("$CREDENTIAL"), "{json}");
                assert_no_secret(&json);
            });
            scope.spawn(move || {
                let server = Server::start(Nature { defect, ..nature });
                let [one, two] = CALLERS.map(|caller| format!("x-api-key: {caller}"));
                let url = server.url("/payments");
                let callers = [&url, "--credential", &one, "--credential", &two, "--data", DATA];
                let quickly = ["--rate", "1000", "--patience", "1"];
                assert_no_secret(&onceward_probe(&[&callers[..], &quickly].concat()));
            });
        }
    });
    let wrong = onceward_probe(&["http://127.0.0.1:1/", "--credential", CALLERS[0]]);
    assert_cannot(&wrong, &["--credential"]);
    assert!(!wrong.stderr.contains(CALLERS[0]), "{wrong}");
    let dry = probe("http://127.0.0.1:1/", &["--dry-run"]);
    assert!(!dry.stdout.contains(CALLERS[0]) && dry.stdout.contains("$CREDENTIAL"), "{dry}");
}

fn assert_no_secret(probed: &Finished) {
    for text in [&probed.stdout, &probed.stderr] {
        for secret in [CALLERS[0], CALLERS[1], "hidden-token"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn a_url_has_no_password() {
    let probed = onceward_probe(&["http://me:pass@127.0.0.1:1/", "--data", DATA]);
    assert_eq!(probed.code, 2, "{probed}");
    assert!(probed.stderr.contains("--credential"), "{probed}");
}

#[test]
fn the_json_has_the_shape_that_is_promised() {
    let server = Server::wrong(Defect::NoRetryAfter);
    let probed = probe_counted(&server, &[]);
    let document = probed.json();
    assert_eq!(document["url"], server.url("/payments"));
    assert_eq!(document["profile"], "onceward");
    assert!(document["score"].as_u64().is_some_and(|score| (90..100).contains(&score)));
    assert_eq!(document["checks"].as_array().unwrap().len(), 30);
    for check in probed.checks() {
        for member in ["id", "title", "severity", "result", "detail", "fix"] {
            assert!(check[member].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        }
        assert!(["pass", "fail", "skip"].contains(&check["result"].as_str().unwrap()));
        let severity = check["severity"].as_str().unwrap();
        assert!(["info", "minor", "major", "critical"].contains(&severity), "{check}");
    }
    // What is for people is on standard error.
    assert!(probed.stderr.contains("[retry-after]"), "{probed}");
}

#[test]
fn people_get_the_harm_the_remedy_and_a_command() {
    let server = Server::wrong(Defect::NoRetryAfter);
    let (url, [one, _]) = (server.url("/payments"), CALLERS);
    let credential = format!("x-api-key: {one}");
    let only = ["--only", "retry-after"];
    let arguments = [&url, "--credential", &credential, "--data", DATA, "--rate", "1000"];
    let probed = onceward_probe(&[&arguments[..], &only].concat());
    assert_eq!(probed.code, 3, "{probed}");
    // The same words as in the document for programs.
    let finding = probe_counted(&server, &only).checks().remove(0);
    for member in ["id", "title", "severity", "harm", "fix"] {
        let text = finding[member].as_str().unwrap();
        assert!(probed.stdout.contains(text), "no {member}: {probed}");
    }
    let command = probed.stdout.lines().find(|line| line.trim_start().starts_with("$ curl "));
    assert!(command.is_some_and(|command| command.contains(&url)), "{probed}");
    assert!(server.made() > 0);
}
