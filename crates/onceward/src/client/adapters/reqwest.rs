//! reqwest: `client.post(url).json(&charge).send_with(&retry)`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use onceward_core::BoxFuture;
use reqwest::{ResponseBuilderExt as _, Url, redirect};
use tower_service::Service;

use super::exchange::{Exchange, Served};
use crate::client::{
    AnswerBody, Body, BoxError, CallError, Report, Retry, call::call, failure::Later,
};

/// Sends a request of reqwest with retries.
///
/// The request's own time-out, if it has one, counts for each attempt. Retries and redirects of the
/// client itself are those that it was built with: use [`reqwest_client`], which does neither behind our
/// back. `reqwest::Client::new()` sends the key wherever a 307 points to, and repeats some requests
/// itself; and a connection that fails after its own redirect looks like one that failed before.
///
/// ```no_run
/// use onceward::client::{self, Report, Retry, SendWith as _};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = client::reqwest_client().build()?;
/// let retry = Retry::standard();
/// let response =
///     client.post("https://shop.example/charges").body("{\"cents\":500}").send_with(&retry).await?;
/// let report: &Report = response.extensions().get().expect("there is one in every answer");
/// println!("{} after {} attempts", response.status(), report.attempts.len());
/// # Ok(())
/// # }
/// ```
pub trait SendWith: sealed::Sealed {
    /// Sends it, again where that is safe and may help.
    ///
    /// # Errors
    ///
    /// There was no answer; the error says whether it may have happened.
    fn send_with(
        self,
        retry: &Retry,
    ) -> impl Future<Output = Result<reqwest::Response, CallError>> + Send;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest::RequestBuilder {}
}

impl SendWith for reqwest::RequestBuilder {
    async fn send_with(self, retry: &Retry) -> Result<reqwest::Response, CallError> {
        let (client, request) = self.build_split();
        let request = request.map_err(unsendable)?;
        execute(retry, &mut Served(ReqwestService(client)), request).await
    }
}

/// A builder for a client of reqwest that leaves retries to us and keeps keys at their host.
///
/// reqwest retries some requests by itself, without a wait and without a word: that is switched off.
/// Its redirects are [`redirects`].
///
/// ```
/// let client = onceward::client::reqwest_client().build()?;
/// # let _ = client;
/// # Ok::<(), reqwest::Error>(())
/// ```
pub fn reqwest_client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().retry(reqwest::retry::never()).redirect(redirects())
}

tokio::task_local! {
    /// The request that is under way.
    static UNDER_WAY: UnderWay;
}

#[derive(Clone)]
struct UnderWay {
    /// It changes nothing.
    safe: bool,
    /// A redirect was followed: from then on a failure says nothing about the first request.
    followed: Arc<AtomicBool>,
}

/// Runs one exchange so that [`redirects`] knows what it is about.
///
/// A connect that fails after a redirect was followed is not one of the request: it had arrived.
pub(crate) async fn noting_redirects<T>(
    method: &http::Method,
    exchange: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    let followed = Arc::new(AtomicBool::new(false));
    let under_way = UnderWay { safe: method.is_safe(), followed: followed.clone() };
    let ended = UNDER_WAY.scope(under_way, exchange).await;
    ended.map_err(|error| match followed.load(Ordering::Relaxed) {
        true => Later(error).into(),
        false => error,
    })
}

/// Follows redirects at the same scheme, host and port only, and at most ten of them.
///
/// Of a call of ours that changes something only 307 and 308 are followed: after a 301, 302 or 303
/// reqwest sends a GET, and its success would be taken for that of the write.
///
/// reqwest repeats a POST with all its headers wherever a 307 points to. A key is a secret between
/// caller and server, and the operation under it is not known elsewhere: there it would be a second
/// one. Any other redirect is given back as it is; follow it yourself if you trust it.
///
/// ```
/// let client = reqwest::Client::builder().redirect(onceward::client::redirects()).build()?;
/// # let _ = client;
/// # Ok::<(), reqwest::Error>(())
/// ```
#[must_use]
pub fn redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let same =
            attempt.previous().iter().all(|before| before.origin() == attempt.url().origin());
        let again = matches!(attempt.status().as_u16(), 307 | 308);
        let may = UNDER_WAY.try_with(|under_way| under_way.safe || again).unwrap_or(true);
        if !same || !may {
            attempt.stop()
        } else if attempt.previous().len() > 10 {
            attempt.error("too many redirects")
        } else {
            let _ = UNDER_WAY.try_with(|now| now.followed.store(true, Ordering::Relaxed));
            attempt.follow()
        }
    })
}

/// The same for every way to send a request of reqwest.
pub(crate) async fn execute<X: Exchange<Body = reqwest::Body>>(
    retry: &Retry,
    exchange: &mut X,
    request: reqwest::Request,
) -> Result<reqwest::Response, CallError> {
    let url = request.url().clone();
    let request = Request::<reqwest::Body>::try_from(request).map_err(unsendable)?;
    let mut response = call(retry, exchange, request).await?;
    if response.extensions().get().is_some_and(|report: &Report| report.fallback) {
        name(&mut response, url);
    }
    Ok(response.map(|body: AnswerBody<reqwest::Body>| reqwest::Body::wrap(body)).into())
}

fn unsendable(error: reqwest::Error) -> CallError {
    CallError::new(Report::default(), Some(error.into()))
}

/// A client of reqwest as a tower service over `http`, for what is made of those.
///
/// ```
/// use onceward::client::{Conditional, ReqwestService, Retry, reqwest_client};
///
/// let service = ReqwestService::new(reqwest_client().build()?);
/// let conditional = Conditional::new(&Retry::standard(), service);
/// # let _ = conditional;
/// # Ok::<(), reqwest::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReqwestService(reqwest::Client);

impl ReqwestService {
    /// Sends with this client.
    #[must_use]
    pub fn new(client: reqwest::Client) -> Self {
        Self(client)
    }
}

impl Service<Request<Body>> for ReqwestService {
    type Response = Response<reqwest::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        let method = request.method().clone();
        let exchange = async move {
            let request = outgoing(request).map_err(nameless)?;
            Ok(incoming(client.execute(request).await.map_err(nameless)?))
        };
        Box::pin(async move { noting_redirects(&method, exchange).await })
    }
}

/// Without its URL: there may be secrets in that, and errors are logged.
fn nameless(error: reqwest::Error) -> BoxError {
    error.without_url().into()
}

pub(crate) fn outgoing(request: Request<Body>) -> Result<reqwest::Request, reqwest::Error> {
    let mut request: reqwest::Request = request
        .map(|body| match body.as_bytes() {
            Some(bytes) => reqwest::Body::from(bytes),
            None => reqwest::Body::wrap(body),
        })
        .try_into()?;
    if request.body().and_then(reqwest::Body::as_bytes).is_some_and(<[u8]>::is_empty) {
        *request.body_mut() = None;
    }
    Ok(request)
}

pub(crate) fn incoming(response: reqwest::Response) -> Response<reqwest::Body> {
    let url = response.url().clone();
    let mut response = Response::from(response);
    name(&mut response, url);
    response
}

/// Notes where an answer came from, as reqwest does.
fn name<B>(response: &mut Response<B>, url: Url) {
    if let Ok(named) = Response::builder().url(url).body(Bytes::new()) {
        response.extensions_mut().extend(named.into_parts().0.extensions);
    }
}
