//! Rules for tests on real sockets, where nobody wants to wait, and the client they are used with.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use onceward::{
    Body,
    client::{AnswerBody, CallError, Report, Retry},
    retry::{Backoff, Rules, RulesBuilder},
};
use tower::{Layer as _, Service as _};

/// The standard rules with waits of nothing to two milliseconds.
pub(crate) fn rules() -> RulesBuilder {
    let (base, cap) = (Duration::from_millis(1), Duration::from_millis(2));
    Rules::standard().to_builder().backoff(Backoff::Full { base, cap })
}

pub(crate) fn retry() -> Retry {
    Retry::with(rules().build().unwrap())
}

/// With so little time for an attempt that a silent server is soon given up, and enough for an answer
/// on a busy machine.
pub(crate) fn impatient() -> Retry {
    Retry::with(rules().attempt_timeout(Duration::from_secs(1)).build().unwrap())
}

pub(crate) type Answer = Response<AnswerBody<Incoming>>;

/// Sends with hyper-util's client, through the layer.
pub(crate) async fn send(retry: &Retry, request: Request<Body>) -> Result<Answer, CallError> {
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    retry.layer().layer(client).call(request).await
}

pub(crate) fn post(url: &str) -> Request<Body> {
    Request::post(url).body(Body::from("{\"cents\":500}")).unwrap()
}

/// The report of a call, however it ended.
pub(crate) fn report(result: &Result<Answer, CallError>) -> Report {
    match result {
        Ok(response) => response.extensions().get::<Report>().unwrap().clone(),
        Err(error) => error.report().clone(),
    }
}
