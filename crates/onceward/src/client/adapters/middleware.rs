//! The same as a middleware of reqwest-middleware, because people have it.

use std::pin::Pin;

use http::{Extensions, Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use super::{
    exchange::{Exchange, Sent},
    reqwest::{execute, incoming, noting_redirects, outgoing},
};
use crate::client::{Body, BoxError, Retry, failure::Later};

/// Retries what goes through a chain of reqwest-middleware.
///
/// Put it in front of middlewares that belong to one attempt (tracing, signing), and behind none that
/// retries. An error of it is a [`CallError`](crate::client::CallError) inside `Error::Middleware`.
///
/// ```
/// use onceward::client::{self, Retry, RetryMiddleware};
///
/// let client = reqwest_middleware::ClientBuilder::new(client::reqwest_client().build()?)
///     .with(RetryMiddleware::new(Retry::standard()))
///     .build();
/// # let _ = client;
/// # Ok::<(), reqwest::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryMiddleware(Retry);

impl RetryMiddleware {
    /// By these rules.
    #[must_use]
    pub fn new(retry: Retry) -> Self {
        Self(retry)
    }
}

impl Middleware for RetryMiddleware {
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: reqwest::Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> Pin<Box<dyn Future<Output = Result<reqwest::Response>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let mut rest = Rest { next, extensions: extensions.clone() };
            let mut response =
                execute(&self.0, &mut rest, request).await.map_err(Error::middleware)?;
            if let Some(Carried(inner)) = response.extensions_mut().remove() {
                extensions.extend(inner);
            }
            Ok(response)
        })
    }
}

/// What the rest of the chain left behind for those before it, from the attempt whose answer is taken.
#[derive(Clone)]
struct Carried(Extensions);

/// The rest of the chain, as a way to send one request.
struct Rest<'a> {
    next: Next<'a>,
    extensions: Extensions,
}

impl<'a> Exchange for Rest<'a> {
    type Body = reqwest::Body;

    fn send(
        &mut self,
        request: Request<Body>,
        sent: Sent,
    ) -> impl Future<Output = std::result::Result<Response<reqwest::Body>, BoxError>> + Send + use<'a>
    {
        let (next, mut extensions) = (self.next.clone(), self.extensions.clone());
        async move {
            let request = outgoing(request)?;
            sent.raise();
            let (method, url) = (request.method().clone(), request.url().clone());
            let exchange = async {
                let answer = next.run(request, &mut extensions).await;
                answer.map_err(|error| of_chain(error, &url))
            };
            let mut response = incoming(noting_redirects(&method, exchange).await?);
            response.extensions_mut().insert(Carried(extensions));
            Ok(response)
        }
    }
}

/// An error of the chain. An error of another request, or of a middleware after it, proves nothing about ours.
fn of_chain(error: Error, url: &reqwest::Url) -> BoxError {
    match error {
        Error::Reqwest(error) if error.url() == Some(url) => error.without_url().into(),
        Error::Reqwest(error) => Later(error.without_url().into()).into(),
        Error::Middleware(error) => Later(error.into()).into(),
    }
}
