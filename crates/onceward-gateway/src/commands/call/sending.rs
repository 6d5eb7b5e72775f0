//! The call itself: hyper's client inside the retrying layer of the library.

use bytes::Bytes;
use http::{Request, Response, header, response::Parts};
use http_body_util::BodyExt as _;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use onceward::{
    Body,
    client::{CallError, Report, Retry},
};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::BoxError;

pub(super) struct Ended {
    report: Report,
    answer: Option<(Parts, Bytes)>,
    pub(super) error: Option<String>,
}

impl Ended {
    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    pub(super) fn answer(&self) -> Option<&Parts> {
        self.answer.as_ref().map(|(parts, _)| parts)
    }

    /// Where a redirect points to that was not followed. It was not carried out where it was sent.
    pub(super) fn moved(&self) -> Option<String> {
        let answer = self.answer().filter(|_| self.report.stop.is_none())?;
        let moved = matches!(answer.status.as_u16(), 301 | 302 | 307 | 308);
        let to = answer.headers.get(header::LOCATION).map(http::HeaderValue::as_bytes);
        moved.then(|| String::from_utf8_lossy(to.unwrap_or(b"nowhere")).into_owned())
    }

    pub(super) fn body(&self) -> &[u8] {
        self.answer.as_ref().map_or(&[], |(_, body)| body)
    }
}

pub(super) async fn send(retry: &Retry, request: Request<Body>) -> Result<Ended, BoxError> {
    let connector = HttpsConnectorBuilder::new()
        .with_native_roots()?
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    match retry.layer().layer(client).call(request).await {
        Ok(response) => answered(response).await,
        Err(error) if error.report().stop.is_none() => Err(error.into()),
        Err(error) => Ok(unanswered(&error)),
    }
}

async fn answered<B>(response: Response<B>) -> Result<Ended, BoxError>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let (mut parts, body) = response.into_parts();
    let report = parts.extensions.remove::<Report>().unwrap_or_default();
    match body.collect().await {
        Ok(body) => {
            let answer = Some((parts, body.to_bytes()));
            Ok(Ended { report, answer, error: None })
        }
        // It was longer than is read at once, and broke off after the call had ended.
        Err(error) => Err(format!("the answer broke off: {}", error.into()).into()),
    }
}

fn unanswered(error: &CallError) -> Ended {
    Ended { report: error.report().clone(), answer: None, error: Some(error.to_string()) }
}
