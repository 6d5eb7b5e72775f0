//! Slow and strange answers.

use std::sync::{Arc, Mutex};

use axum::{
    body::Body as AxumBody,
    http::{StatusCode, header},
    response::IntoResponse as _,
};
use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tower::ServiceExt as _;

use crate::{
    executions::charges::{Charges, LEASE, in_pieces, is_answer, is_replay, request},
    server_support::{Pieces, broken, data, is_problem, post, send},
};

#[tokio::test(start_paused = true)]
async fn the_claim_of_a_slow_handler_is_renewed_while_it_trickles() {
    let charges = Charges::new(
        |layer| layer.lease(LEASE),
        |_| async {
            sleep(LEASE * 2).await;
            let (sender, body) = Pieces::channel();
            tokio::spawn(async move {
                for piece in ["sl", "ow", "ly"] {
                    sleep(LEASE).await;
                    sender.send(data(piece)).unwrap();
                }
            });
            in_pieces(body)
        },
    );
    let app = charges.app.clone();
    let first = tokio::spawn(async move { send(&app, request()).await });
    let mut refused = 0;
    let replay = loop {
        sleep(LEASE / 2).await;
        let reply = charges.send().await;
        if reply.is_replay() {
            break reply;
        }
        is_problem(&reply, 409, "in-progress");
        refused += 1;
    };
    assert!(refused >= 8, "{refused} retries met it, in four times its lease");
    is_replay(&replay, "slowly");
    is_answer(&first.await.unwrap(), "slowly");
    assert_eq!(charges.ledger.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_is_passed_on_as_it_comes_and_never_run_again() {
    let (events, body) = Pieces::channel();
    let body = Arc::new(Mutex::new(Some(body)));
    let charges = Charges::new(
        |layer| layer,
        move |_| {
            let body = body.lock().unwrap().take().unwrap();
            async move { ([("content-type", "text/event-stream")], AxumBody::new(body)).into_response() }
        },
    );
    let mut response = charges.app.clone().oneshot(request()).await.unwrap();
    assert_eq!((response.status().as_u16(), charges.engine.unsettled()), (200, 0));
    is_problem(&charges.send().await, 409, "result-unavailable");
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(data(event)).unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    events.send(broken()).unwrap();
    assert!(response.body_mut().frame().await.unwrap().is_err(), "the client sees that it broke");
    is_problem(&charges.send().await, 409, "result-unavailable");
    assert_eq!(charges.ledger.len(), 1);
}

/// What is too large to be kept has ended when it is passed on; what broke before has not.
#[tokio::test(start_paused = true)]
async fn a_large_answer_that_breaks_off_is_not_a_success_to_anybody() {
    for (pieces, first, retry) in
        [(3, None, "result-unavailable"), (1, Some((504, "outcome-unknown")), "outcome-unknown")]
    {
        let charges = Charges::new(
            |layer| layer.max_inline(10).max_response(25),
            move |_| async move {
                let pieces = (0..pieces).map(|_| data("ten bytes!")).chain([broken()]);
                in_pieces(Pieces::of(pieces))
            },
        );
        let response = charges.app.clone().oneshot(request()).await.unwrap();
        match first {
            None => assert!(response.into_body().collect().await.is_err(), "it is seen to break"),
            Some((status, _)) => assert_eq!(response.status(), status),
        }
        for _ in 0..2 {
            is_problem(&charges.send().await, 409, retry);
        }
        assert_eq!(charges.ledger.len(), 1);
    }
}

#[tokio::test]
async fn an_answer_or_a_request_without_a_body_is_whole() {
    for (answered, length) in [(204, None), (201, None), (201, Some(0)), (304, Some(512))] {
        let charges = Charges::new(
            |layer| layer,
            move |_| async move {
                let mut response = StatusCode::from_u16(answered).unwrap().into_response();
                response.headers_mut().remove(header::CONTENT_LENGTH);
                if let Some(length) = length {
                    response.headers_mut().insert(header::CONTENT_LENGTH, u64::into(length));
                }
                response
            },
        );
        let request = || post("/charges", "k", AxumBody::empty());
        let first = send(&charges.app, request()).await;
        let replay = send(&charges.app, request()).await;
        for reply in [&first, &replay] {
            assert_eq!((reply.status.as_u16(), reply.text()), (answered, ""));
        }
        // Without a word of the handler the router says 0.
        let length = length.unwrap_or(0).to_string();
        assert_eq!(first.header("content-length"), Some(&*length), "{answered}");
        assert_eq!(replay.header("content-length"), Some(&*length), "{answered}");
        assert!(replay.is_replay() && charges.ledger.len() == 1, "{answered}: {replay:?}");
    }
}
