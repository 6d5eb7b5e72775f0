//! `onceward call` and the library's client through a gateway that does not keep the key: a write whose
//! answer was lost is not sent again. The upstream is the ledger: what it saw, it did.

use http_body_util::BodyExt as _;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use onceward::{
    Body,
    client::{Report, Retry},
    retry::{Stop, StopReason},
};
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{
    gateway_support::{Finished, Gateway, route, run},
    keyless, start,
    switched::{Mode, Switched},
};

/// One call to its end.
async fn call(gateway: &Gateway, method: &str, path: &str, more: &[&str]) -> Finished {
    let url = format!("http://{}{path}", gateway.address);
    let line = ["call", method, &url, "-d", "{\"cents\": 5}", "-H", "x-api-key: alice", "--json"];
    let line: Vec<String> = line.iter().chain(more).map(ToString::to_string).collect();
    let calling = move || run(&line.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(calling).await.unwrap()
}

#[tokio::test]
async fn a_write_that_the_gateway_passes_on_is_done_once() {
    let upstream = Switched::start().await;
    let text = format!("{}{}", keyless(""), route("key = \"optional\""));
    let gateway = start(&upstream, &text);
    for (path, more) in [
        // The route takes no keys; there is no route; the client has no key.
        ("/x/1", &[][..]),
        ("/elsewhere", &[]),
        ("/x/1", &["--no-key"]),
        ("/pay", &["--no-key"]),
    ] {
        let before = upstream.count();
        upstream.then([Mode::Reset, Mode::Reset]);
        let called = call(&gateway, "POST", path, more).await;
        assert_eq!(upstream.count() - before, 1, "{path} {more:?} {called}");
        assert_eq!((called.code, &called.json()["stop"]), (4, &"unsafe".into()), "{called}");
        assert!(called.stderr.contains("before you send it again"), "{called}");
        upstream.start_anew();
    }
    // Its method makes a repeat harmless, and a key that the gateway keeps does.
    upstream.then([Mode::Reset]);
    let put = call(&gateway, "PUT", "/x/1", &[]).await;
    assert_eq!((put.code, put.json()["attempts"].as_array().unwrap().len()), (0, 2), "{put}");
    let before = upstream.count();
    upstream.then([Mode::Reset]);
    let paid = call(&gateway, "POST", "/pay", &[]).await;
    assert_eq!((paid.code, upstream.count() - before), (4, 1), "an external effect: {paid}");
}

#[tokio::test]
async fn a_write_that_the_gateway_passes_on_is_done_once_with_stripes_errors_too() {
    let upstream = Switched::start().await;
    for lines in ["errors = \"stripe\"", "profile = \"stripe\""] {
        let text = format!("[defaults]\n{lines}\n{}{}", keyless(""), route(""));
        let gateway = start(&upstream, &text);
        for path in ["/x/1", "/elsewhere"] {
            for mode in [Mode::Reset, Mode::CutShort] {
                let before = upstream.count();
                upstream.then([mode.clone(), mode.clone()]);
                let called = call(&gateway, "POST", path, &[]).await;
                assert_eq!(upstream.count() - before, 1, "{path} {mode:?} {called}");
                assert_eq!((called.code, &called.json()["stop"]), (4, &"unsafe".into()));
                assert_eq!(called.json()["unprotected"], true, "{called}");
                upstream.start_anew();
            }
        }
    }
}

#[tokio::test]
async fn a_write_that_the_gateway_passes_on_is_done_once_also_when_its_answer_breaks_off() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(""));
    for path in ["/x/1", "/elsewhere"] {
        let before = upstream.count();
        upstream.then([Mode::CutShort, Mode::CutShort]);
        let called = call(&gateway, "POST", path, &[]).await;
        assert_eq!((called.code, upstream.count() - before), (4, 1), "{path} {called}");
        upstream.start_anew();
    }
}

#[tokio::test]
async fn a_write_that_the_gateway_passes_on_is_done_once_also_by_the_library() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(""));
    for retry in [Retry::standard(), Retry::standard().without_keys(), Retry::patient()] {
        let before = upstream.count();
        upstream.then([Mode::Reset, Mode::Reset]);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = http::Request::post(format!("http://{}/x/1", gateway.address));
        let request = request.body(Body::from("{\"cents\": 5}")).unwrap();
        let response = retry.layer().layer(client).call(request).await.unwrap();
        let report = response.extensions().get::<Report>().unwrap().clone();
        assert_eq!(report.stop, Some(Stop::Unknown(StopReason::Unsafe)), "{report:?}");
        assert_eq!(upstream.count() - before, 1);
        let _ = response.into_body().collect().await;
        upstream.start_anew();
    }
}

/// All of them are answered by the gateway, which has a budget of its own for all its clients.
#[tokio::test]
async fn a_call_makes_all_the_attempts_that_it_was_given() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &keyless(""));
    upstream.mode(Mode::Status(500));
    let called = call(&gateway, "PUT", "/x/1", &["--attempts", "6", "--backoff", "none"]).await;
    assert_eq!((called.code, upstream.count()), (5, 6), "{called}");
}
