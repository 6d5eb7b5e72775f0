//! What layers add to a call that succeeds at once, without a socket.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body_util::Full;
use onceward::{
    Body,
    client::{Retry, RetryMiddleware},
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use tokio::runtime::{Builder, Runtime};
use tower::{
    Layer as _, Service, ServiceExt as _,
    retry::{
        Policy, RetryLayer,
        budget::{Budget, TpsBudget},
    },
    service_fn,
};

use super::Line;
use crate::Failure;

/// How many calls one turn has.
pub(super) const TURN: u32 = 1_000;

pub(super) const BARE: &str = "a service that answers at once";
pub(super) const OURS: &str = "through our layer, POST with a new key";
pub(super) const TOWER: &str = "through tower's retry with a budget";
pub(super) const REQWEST_BARE: &str = "a client of reqwest-middleware, answered at once";
pub(super) const REQWEST_RETRY: &str = "with reqwest-retry";
pub(super) const REQWEST_OURS: &str = "with our middleware";

pub(super) fn measure(turns: u32) -> Result<Vec<Line>, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answering = || service_fn(answer);
    let tower = RetryLayer::new(Budgeted(Arc::default())).layer(answering());
    let ours = Retry::standard().layer().layer(answering());
    let plain = client(|builder| builder);
    let retrying = client(|builder| {
        let policy = ExponentialBackoff::builder().build_with_max_retries(3);
        builder.with(RetryTransientMiddleware::new_with_policy(policy))
    });
    let with_ours = client(|builder| builder.with(RetryMiddleware::new(Retry::standard())));
    let names = [BARE, OURS, TOWER, REQWEST_BARE, REQWEST_RETRY, REQWEST_OURS];
    let mut lines = names.map(Line::new).to_vec();
    for turn in 0..=turns {
        let took = [
            services(&runtime, &answering()),
            services(&runtime, &ours),
            services(&runtime, &tower),
            clients(&runtime, &plain),
            clients(&runtime, &retrying),
            clients(&runtime, &with_ours),
        ];
        // The first turn of each warms up.
        for (line, took) in lines.iter_mut().zip(took).filter(|_| turn > 0) {
            line.nanos.push(took.as_nanos() as f64 / f64::from(TURN));
        }
    }
    Ok(lines)
}

fn answer(request: Request<Body>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    black_box(request);
    ready(Ok(Response::new(Full::default())))
}

/// Calls of a tower service, one after the other.
fn services<S, B>(runtime: &Runtime, service: &S) -> Duration
where
    S: Service<Request<Body>, Response = Response<B>, Error: std::fmt::Debug> + Clone,
{
    runtime.block_on(async {
        let started = Instant::now();
        for _ in 0..TURN {
            let request = Request::post("http://shop.example/charges").body(Body::from("{}"));
            let request = request.expect("it is well formed");
            let response = service.clone().oneshot(request).await.expect("it always succeeds");
            black_box(response);
        }
        started.elapsed()
    })
}

/// Calls of a reqwest client, one after the other.
fn clients(runtime: &Runtime, client: &ClientWithMiddleware) -> Duration {
    runtime.block_on(async {
        let started = Instant::now();
        for _ in 0..TURN {
            let call = client.post("http://shop.example/charges").body("{}").send();
            black_box(call.await.expect("it always succeeds"));
        }
        started.elapsed()
    })
}

fn client(with: impl FnOnce(ClientBuilder) -> ClientBuilder) -> ClientWithMiddleware {
    with(ClientBuilder::new(reqwest::Client::new())).with(AtOnce).build()
}

/// The end of a chain that asks nobody.
struct AtOnce;

#[async_trait::async_trait]
impl Middleware for AtOnce {
    async fn handle(
        &self,
        request: reqwest::Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        black_box(request);
        Ok(Response::new("").into())
    }
}

/// tower's retry as its documentation has it: a budget, and nothing to be retried here.
#[derive(Clone)]
struct Budgeted(Arc<TpsBudget>);

impl<B> Policy<Request<Body>, Response<B>, Infallible> for Budgeted {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<Response<B>, Infallible>,
    ) -> Option<Ready<()>> {
        match result {
            Ok(response) if response.status().is_server_error() => {
                self.0.withdraw().then(|| ready(()))
            }
            _ => {
                self.0.deposit();
                None
            }
        }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut copy = Request::post(request.uri()).body(Body::from("{}")).ok()?;
        *copy.headers_mut() = request.headers().clone();
        Some(copy)
    }
}
