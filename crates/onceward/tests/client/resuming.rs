//! Calls that survive a process that is killed.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use http::HeaderValue;
use http_body_util::BodyExt as _;
use onceward::client::{Report, Resume};

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
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resuming::the_process_that_is_killed", "--ignored"])
        .env(URL, shop.url())
        .env(FILE, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let charged = tokio::time::timeout(Duration::from_secs(60), shop.charged()).await;
    child.kill().unwrap();
    child.wait().unwrap();
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
    let directory = tempfile::tempdir().unwrap();
    let resume = Resume::open(directory.path().join("calls.db")).unwrap();
    for (step, kept) in [
        (Step::status(200), 0),
        (Step::status(422), 0),
        (Step::status(500), 0),
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
    let get = http::Request::get("http://127.0.0.1:1/").body(onceward::client::Body::empty());
    let _ = send(&retry().resumable(&resume), get.unwrap()).await;
    assert!(resume.pending().await.unwrap().is_empty(), "without a key nothing is kept");
}

#[tokio::test]
async fn a_resumed_call_that_cannot_be_sent_stays_unknown_and_stays_kept() {
    let directory = tempfile::tempdir().unwrap();
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
