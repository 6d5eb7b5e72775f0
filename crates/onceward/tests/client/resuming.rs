//! Calls that survive a process that is killed.

use std::{process::Command, time::Duration};

use http::HeaderValue;
use http_body_util::BodyExt as _;
use onceward::{
    client::{Report, Resume, Within},
    retry::{Stop, StopReason},
};
use testbed::{Process, TEST_TIMEOUT};

use crate::{
    fast::{impatient, post, retry, send},
    server::{Server, Step},
    shop::Shop,
};

const URL: &str = "ONCEWARD_TEST_URL";
const FILE: &str = "ONCEWARD_TEST_FILE";

/// What the process does that is killed: it sends one charge, and never hears of it.
#[tokio::test]
#[ignore = "started by `a_call_of_a_killed_process_is_finished_with_the_same_key`"]
async fn the_process_that_is_killed() {
    let (Ok(url), Ok(file)) = (std::env::var(URL), std::env::var(FILE)) else { return };
    let resume = Resume::open(file).unwrap();
    let mut request = post(&url);
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer secret"));
    let _ = send(&retry().resumable(&resume), request).await;
}

#[tokio::test]
async fn a_call_of_a_killed_process_is_finished_with_the_same_key() {
    let shop = Shop::open(Duration::from_secs(1)).await;
    let directory = testbed::directory();
    let file = directory.path().join("calls.db");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "resuming::the_process_that_is_killed", "--ignored"]);
    let caller = Process::start(command.env(URL, shop.url()).env(FILE, &file)).unwrap();
    let charged = tokio::time::timeout(TEST_TIMEOUT, shop.charged()).await;
    caller.kill().unwrap();
    charged.expect("the charge was made before the process died");

    let resume = Resume::open(&file).unwrap();
    let pending = resume.pending().await.unwrap();
    assert_eq!(pending.len(), 1, "it was written down before it was sent");
    assert_eq!((pending[0].method().as_str(), pending[0].uri().path()), ("POST", "/charges"));
    let request = pending[0].request();
    assert!(!request.headers().contains_key("authorization"), "secrets are not written down");
    let response = send(&retry().resumable(&resume), request).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(report.key(), Some(pending[0].key()));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "charge 1");
    assert_eq!(shop.effects(), 1, "it landed once");
    assert!(resume.pending().await.unwrap().is_empty(), "its outcome is known");
}

#[tokio::test]
async fn a_call_is_kept_until_its_outcome_is_known() {
    let directory = testbed::directory();
    let resume = Resume::open(directory.path().join("calls.db")).unwrap();
    for (step, kept) in [
        (Step::status(200), 0),
        (Step::status(422), 0),
        (Step::status(500), 1),
        (Step::status(303), 0),
        (Step::with(307, "location", "/elsewhere"), 1),
        (
            Step::Answer(
                202,
                vec![("onceward-operation", "1".into()), ("location", "/s".into())],
                "",
            ),
            1,
        ),
        (Step::Reset, 1),
        (Step::Silence, 1),
    ] {
        let server = Server::script([step.clone()]).await;
        let _ = send(&impatient().resumable(&resume), post(&server.url("/"))).await;
        let pending = resume.pending().await.unwrap();
        assert_eq!(pending.len(), kept, "{step:?}");
        for call in pending {
            resume.forget(&call).await.unwrap();
        }
    }
    let get = http::Request::get("http://127.0.0.1:1/").body(onceward::Body::empty());
    let _ = send(&retry().resumable(&resume), get.unwrap()).await;
    assert!(resume.pending().await.unwrap().is_empty(), "without a key nothing is kept");
}

#[tokio::test]
async fn a_resumed_call_that_cannot_be_sent_stays_unknown_and_stays_kept() {
    let directory = testbed::directory();
    let resume = Resume::open(directory.path().join("calls.db")).unwrap();
    let server = Server::script([Step::Reset]).await;
    send(&retry().resumable(&resume), post(&server.url("/"))).await.unwrap_err();
    drop(server);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let request = resume.pending().await.unwrap()[0].request();
    let error = send(&retry().resumable(&resume), request).await.unwrap_err();
    assert!(error.is_unknown(), "nobody listens now, but the first attempt was heard: {error}");
    assert_eq!(resume.pending().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_of_a_resumed_call_says_nothing_about_what_was_sent_before() {
    for status in [401, 403, 404, 412] {
        let directory = testbed::directory();
        let resume = Resume::open(directory.path().join("calls.db")).unwrap();
        let steps = [Step::Reset, Step::Reset, Step::Reset, Step::status(status)];
        let server = Server::script(steps).await;
        send(&retry().resumable(&resume), post(&server.url("/"))).await.unwrap_err();
        let request = resume.pending().await.unwrap()[0].request();
        let answer = send(&retry().resumable(&resume), request).await.unwrap();
        let stop = answer.extensions().get::<Report>().unwrap().stop.unwrap();
        assert_eq!((answer.status().as_u16(), stop.is_unknown()), (status, true));
        assert_eq!(resume.pending().await.unwrap().len(), 1, "{status}: the key is not lost");
    }
}

#[tokio::test]
async fn another_request_under_a_pending_key_is_not_sent_and_what_cannot_be_kept_neither() {
    let directory = testbed::directory();
    let resume = Resume::open(directory.path().join("calls.db")).unwrap();
    let server = Server::script([Step::Reset]).await;
    let keyed = |body: &'static str| {
        let request = http::Request::post(server.url("/")).header("idempotency-key", "k");
        request.body(onceward::Body::from(body)).unwrap()
    };
    let retry = retry().resumable(&resume);
    send(&retry, keyed("one")).await.unwrap_err();
    let sent = server.observation().len();
    for (retry, request, words) in [
        (retry.clone(), keyed("two"), "another request is pending"),
        (retry.clone().max_body(2), keyed("one"), "max_body"),
        (retry.clone().without_keys(), post(&server.url("/")), "only a call with a key"),
    ] {
        let error = send(&retry, request).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(server.observation().len(), sent, "nothing is sent that is not written down");
    let pending = resume.pending().await.unwrap();
    assert_eq!((pending.len(), &pending[0].body()[..]), (1, &b"one"[..]));
}

#[tokio::test]
async fn credentials_are_not_written_down_whatever_they_are_called() {
    let directory = testbed::directory();
    let resume = Resume::open(directory.path().join("calls.db")).unwrap();
    let server = Server::script([Step::Reset]).await;
    let mut request = post(&server.url("/"));
    for name in ["authorization", "api-key", "x-apikey", "x-vault-token", "x-secret", "x-password"]
    {
        request.headers_mut().insert(name, HeaderValue::from_static("hidden"));
    }
    let mut marked = HeaderValue::from_static("hidden");
    marked.set_sensitive(true);
    request.headers_mut().insert("x-plain", marked);
    request.headers_mut().insert("x-open", HeaderValue::from_static("seen"));
    send(&retry().resumable(&resume), request).await.unwrap_err();
    let request = resume.pending().await.unwrap()[0].request();
    let mut names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["idempotency-key", "x-open"]);
}

#[tokio::test]
async fn a_file_that_is_busy_does_not_hold_a_call_beyond_its_deadline() {
    let directory = testbed::directory();
    let file = directory.path().join("calls.db");
    let resume = Resume::open(&file).unwrap();
    let server = Server::script([Step::status(200)]).await;
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut request = post(&server.url("/"));
    request.extensions_mut().insert(Within(Duration::from_millis(100)));
    let error = send(&retry().resumable(&resume), request).await.unwrap_err();
    assert_eq!(error.report().stop, Some(Stop::Failed(StopReason::Deadline)));
    assert!(server.observation().is_empty(), "it was not written down, so it is not sent");
    other.execute_batch("ROLLBACK").unwrap();
    for _ in 0..500 {
        // It may be written down now; then it is removed again.
        tokio::time::sleep(Duration::from_millis(10)).await;
        if resume.pending().await.unwrap().is_empty() {
            return;
        }
    }
    panic!("what was reported as not sent would be sent after a restart");
}
