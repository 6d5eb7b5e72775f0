//! The layer for tower services.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use onceward_core::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

use super::exchange::Served;
use crate::client::{AnswerBody, Body, BoxError, CallError, Retry, call::call};

/// Retries the calls of a tower service: see [`Retry::layer`].
///
/// ```
/// use http_body_util::{BodyExt as _, Full};
/// use onceward::{Body, client::{CallError, Report, Retry}};
/// use tower::{Layer as _, Service as _, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // Any client over `http`, such as hyper-util's.
/// let client = service_fn(|_: http::Request<Body>| async {
///     Ok::<_, std::io::Error>(http::Response::new(Full::new(bytes::Bytes::from("charged"))))
/// });
/// let mut client = Retry::standard().layer().layer(client);
///
/// let request = http::Request::post("http://shop.example/charges").body(Body::from("{}"))?;
/// let response = client.call(request).await?;
/// let report: &Report = response.extensions().get().expect("there is one in every answer");
/// assert!(report.key().is_some(), "a POST gets a key");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer(pub(crate) Retry);

impl<S> Layer<S> for RetryLayer {
    type Service = Retrying<S>;

    fn layer(&self, service: S) -> Retrying<S> {
        Retrying { retry: self.0.clone(), service }
    }
}

/// A service whose calls are retried: see [`RetryLayer`].
///
/// ```
/// use onceward::client::{Retry, Retrying};
/// use tower::Layer as _;
///
/// fn retrying<S>(service: S) -> Retrying<S> {
///     Retry::standard().layer().layer(service)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Retrying<S> {
    retry: Retry,
    service: S,
}

impl<S, B, R> Service<Request<B>> for Retrying<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<AnswerBody<R>>;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Self::Response, CallError>>;

    /// Always ready: each attempt waits for the service by itself, within its own time.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (retry, mut exchange) = (self.retry.clone(), Served(self.service.clone()));
        Box::pin(async move { call(&retry, &mut exchange, request).await })
    }
}
