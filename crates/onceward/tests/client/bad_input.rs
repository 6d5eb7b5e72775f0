//! What servers, callers and clocks do that nobody expects: defined, bounded, and never a panic.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use onceward::{
    Body,
    client::Retry,
    retry::{Backoff, Class, Rules, Stop, StopReason},
};
use testbed::{Pieces, broken};

use crate::{
    fast::{impatient, post, report, retry, rules, send},
    server::{Server, Step},
};

#[tokio::test]
async fn a_retry_after_that_cannot_be_read_says_nothing() {
    let garbage =
        ["soon", "-5", "1.5", "", "0x1f", "Wed, 99 Foo 2015 00:00:00 GMT", "99 red balloons"];
    for value in garbage {
        let server =
            Server::script([Step::with(500, "retry-after", value), Step::status(200)]).await;
        let response = send(&retry(), post(&server.url("/"))).await.unwrap();
        assert_eq!(response.status(), 200, "{value:?}");
        assert_eq!(report(&Ok(response)).attempts[0].hint, None, "{value:?}");
    }
}

#[tokio::test]
async fn a_retry_after_of_ages_ends_the_call_at_once_with_the_hint() {
    let ages = [
        "1000000000000000000",
        "99999999999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "11",
    ];
    for value in ages {
        let server = Server::script([Step::with(503, "retry-after", value)]).await;
        let response = send(&retry(), post(&server.url("/"))).await.unwrap();
        let report = report(&Ok(response));
        assert_eq!(report.stop, Some(Stop::Failed(StopReason::Deadline)), "{value}");
        assert!(report.hint.unwrap() > Duration::from_secs(10), "{value}");
        assert_eq!(server.observation().len(), 1, "{value}");
    }
}

#[tokio::test]
async fn a_date_in_the_past_means_now() {
    let past = "Wed, 21 Oct 2015 07:28:00 GMT";
    let server = Server::script([Step::with(500, "retry-after", past), Step::status(200)]).await;
    let response = send(&retry(), post(&server.url("/"))).await.unwrap();
    assert_eq!(report(&Ok(response)).attempts[0].hint, Some(Duration::ZERO));
}

#[tokio::test]
async fn a_streaming_body_is_sent_once_and_the_report_says_so() {
    let server = Server::script([Step::status(500)]).await;
    let request =
        Request::post(server.url("/")).body(Body::new(Pieces::of(["a", "b", "c"]))).unwrap();
    let result = send(&retry(), request).await;
    let report = report(&result);
    assert!(report.sent_once);
    assert_eq!(report.stop, Some(Stop::Failed(StopReason::BodyGone)));
    assert_eq!(server.observation()[0].body, b"abc");
    assert_eq!(server.observation().len(), 1);
}

#[tokio::test]
async fn a_body_above_the_bound_is_sent_once_and_one_at_the_bound_again() {
    let server = Server::script([Step::status(500)]).await;
    for (length, times) in [(64 << 10, 3), ((64 << 10) + 1, 1)] {
        let before = server.observation().len();
        let body = Body::from(vec![b'x'; length]);
        let result = send(&retry(), Request::post(server.url("/")).body(body).unwrap()).await;
        assert_eq!(report(&result).sent_once, times == 1);
        assert_eq!(server.observation().len() - before, times, "{length} bytes");
        assert!(
            server
                .observation()
                .iter()
                .skip(before)
                .all(|observation| observation.body.len() == length)
        );
    }
}

#[tokio::test]
async fn a_request_body_that_breaks_off_is_an_error_of_the_caller_and_nothing_is_sent() {
    let server = Server::script([Step::status(200)]).await;
    let broken = Pieces::of([broken()]).promising(5);
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<Body>();
    let mut client = tower::Layer::layer(&retry().layer(), client);
    let request = Request::post(server.url("/")).body(broken).unwrap();
    let error = tower::Service::call(&mut client, request).await.unwrap_err();
    assert!(error.to_string().contains("not sent"), "{error}");
    assert_eq!(error.report().stop, None);
    assert!(server.observation().is_empty());
}

#[tokio::test]
async fn a_server_that_trickles_its_head_is_given_up_in_time() {
    let server = Server::script([Step::TrickleHead, Step::status(200)]).await;
    let response = send(&impatient(), post(&server.url("/"))).await.unwrap();
    let report = report(&Ok(response));
    assert_eq!(report.attempts[0].class, Class::Ambiguous);
    assert!(report.attempts[0].failure.as_ref().unwrap().contains("no answer within"));
    assert_eq!(report.attempts.len(), 2);
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_tried_again_where_answers_are_read_whole() {
    let script = || [Step::CutShort, Step::Answer(200, vec![], "all of it")];
    let server = Server::script(script()).await;
    let response = send(&retry().whole_answers(1 << 20), post(&server.url("/"))).await.unwrap();
    assert_eq!(report(&Ok(response)).attempts[0].class, Class::Ambiguous);
    assert_eq!(server.observation().len(), 2);

    let server = Server::script(script()).await;
    let response = send(&retry(), post(&server.url("/"))).await.unwrap();
    assert!(response.into_body().collect().await.is_err(), "else its reader sees it");
    assert_eq!(server.observation().len(), 1);
}

#[tokio::test]
async fn a_body_that_trickles_counts_where_answers_are_read_whole() {
    let slow = Step::TrickleBody("a body that takes its time", Duration::from_millis(200));
    let server = Server::script([slow, Step::status(204)]).await;
    let response = send(&impatient().whole_answers(1 << 20), post(&server.url("/"))).await.unwrap();
    assert_eq!(response.status(), 204);
    assert_eq!(report(&Ok(response)).attempts[0].class, Class::Ambiguous);
}

#[tokio::test]
async fn a_redirect_is_given_back_and_not_followed() {
    let elsewhere = Server::script([Step::status(200)]).await;
    let server = Server::script([Step::with(307, "location", elsewhere.url("/"))]).await;
    let response = send(&retry(), post(&server.url("/"))).await.unwrap();
    assert_eq!(response.status(), 307);
    assert!(
        elsewhere.observation().is_empty(),
        "neither the key nor the write goes to another host"
    );
}

#[tokio::test]
async fn the_wall_clock_of_the_server_does_not_matter() {
    // It is in the year 2001, and asks for a second of its own time.
    let lines = vec![
        ("date", "Mon, 01 Jan 2001 00:00:00 GMT".to_owned()),
        ("retry-after", "Mon, 01 Jan 2001 00:00:01 GMT".to_owned()),
    ];
    let server = Server::script([Step::Answer(503, lines, ""), Step::status(200)]).await;
    let rules = rules().overload_base(Duration::from_millis(1)).build().unwrap();
    let response = send(&Retry::with(rules), post(&server.url("/"))).await.unwrap();
    let report = report(&Ok(response));
    assert_eq!(report.attempts[0].hint, Some(Duration::from_secs(1)));
    assert!(report.attempts[0].wait.unwrap() >= Duration::from_secs(1));
}

#[test]
fn rules_whose_waits_exceed_their_deadline_cannot_be_built() {
    let day = Duration::from_secs(24 * 3600);
    let error = Rules::standard().to_builder().backoff(Backoff::Fixed(day)).build().unwrap_err();
    assert!(error.to_string().contains("outlast the deadline"), "{error}");
}
