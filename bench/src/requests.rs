//! Requests through the server layer, in this process and without sockets.

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::ValueEnum;
use http::{Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use onceward::{
    Body, Digest, Key, OperationId, OperationName, Scope, Store, StoreError, Timestamp,
    protocol::{Found, Stored},
    server::Idempotency,
    store::{BoxFuture, Change, Swap, memory::MemoryStore},
};
use tokio::runtime::Runtime;
use tower::{Layer as _, Service, service_fn};

use crate::Failure;

/// The length of a request's JSON document.
pub(crate) const REQUEST_BYTES: usize = 1024;

/// The number of the operation whose answer is replayed.
const REPLAYED: u128 = u128::MAX;

/// What is asked of which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The service itself, without a key.
    BareUnkeyed,
    /// The service itself, with a key that means nothing to it.
    BareKeyed,
    /// Through the layer, without a key: it passes.
    Unkeyed,
    /// Through the layer, with a new key: it runs.
    First,
    /// Through the layer, with the key of a stored answer: it is replayed.
    Replay,
}

impl Kind {
    /// The same request without the layer.
    pub(crate) fn bare(self) -> Self {
        match self {
            Self::BareUnkeyed | Self::Unkeyed => Self::BareUnkeyed,
            Self::BareKeyed | Self::First | Self::Replay => Self::BareKeyed,
        }
    }

    /// As it is called in a report.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::BareUnkeyed => "no layer, no key",
            Self::BareKeyed => "no layer, a key",
            Self::Unkeyed => "no key, passes through",
            Self::First => "new key, runs",
            Self::Replay => "known key, is replayed",
        }
    }

    fn request(self) -> Request<Body> {
        request(match self {
            Self::BareUnkeyed | Self::Unkeyed => None,
            Self::BareKeyed | Self::First => Some(fastrand::u128(..)),
            Self::Replay => Some(REPLAYED),
        })
    }
}

/// A request with the key of the operation with this number, or without a key.
pub(crate) fn request(number: Option<u128>) -> Request<Body> {
    let request = Request::post("/v1/charges").header(header::CONTENT_TYPE, "application/json");
    let request = match number {
        None => request,
        Some(number) => request.header("idempotency-key", key(number)),
    };
    request.body(Body::from(document())).expect("a valid request")
}

fn key(number: u128) -> String {
    format!("{number:032x}")
}

/// An order in JSON, [`REQUEST_BYTES`] long.
fn document() -> Vec<u8> {
    let mut text = String::with_capacity(REQUEST_BYTES);
    text.push_str(r#"{"customer": "cus_8e03978e", "currency": "eur", "items": ["#);
    for item in ["anvil", "rocket skates", "tornado seeds", "jet bike", "earthquake pills"] {
        text.push_str(r#"{"name": ""#);
        text.push_str(item);
        text.push_str(r#"", "quantity": 2, "cents": 1999, "gift": false, "weight": 12.5}, "#);
    }
    text.push_str(r#"null], "memo": ""#);
    text.extend(std::iter::repeat_n('m', REQUEST_BYTES - 2 - text.len()));
    text.push_str("\"}");
    text.into_bytes()
}

/// A store that answers at once, so that its time is not the layer's.
///
/// It takes every change; or it tells everybody that a certain answer is stored, of which it makes a
/// copy, as every store has to.
struct Prompt {
    stored: Option<Box<Stored>>,
}

impl Store for Prompt {
    fn swap<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        let swap = match &self.stored {
            None => Swap::Stored { at: Timestamp::from_unix_micros(1_794_700_800_000_000) },
            Some(stored) => Swap::Conflict(Found::Record(stored.clone())),
        };
        Box::pin(ready(Ok(swap)))
    }

    fn get<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(ready(Ok(Found::Nothing)))
    }

    fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(ready(Ok(0)))
    }
}

/// Services with and without the layer, on a runtime of one thread.
pub(crate) struct Bench {
    runtime: Runtime,
    replayed: Box<Stored>,
}

impl Bench {
    /// Makes the runtime and the answer that is replayed.
    pub(crate) fn new() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let replayed = runtime.block_on(stored_answer())?;
        Ok(Self { runtime, replayed })
    }

    /// How long so many requests of a kind take, one after the other.
    pub(crate) fn turn(&self, kind: Kind, requests: usize) -> Result<Duration, Failure> {
        let requests: Vec<_> = (0..requests).map(|_| kind.request()).collect();
        let layered = |stored| layer(Prompt { stored }).map(|layer| layer.layer(service()));
        let took = match kind {
            Kind::BareUnkeyed | Kind::BareKeyed => {
                self.runtime.block_on(one_by_one(service(), requests))
            }
            Kind::Unkeyed | Kind::First => {
                self.runtime.block_on(one_by_one(layered(None)?, requests))
            }
            Kind::Replay => {
                let stored = Some(self.replayed.clone());
                self.runtime.block_on(one_by_one(layered(stored)?, requests))
            }
        };
        took.map_err(|wrong| format!("{}: {wrong}", kind.words()).into())
    }
}

/// The layer with the options that a user gets.
fn layer(store: impl Store) -> Result<Idempotency, Failure> {
    Ok(Idempotency::builder(store, |_: &Parts| scope()).build()?)
}

/// Whose operations all of them are.
pub(crate) fn scope() -> Result<Scope, &'static str> {
    Scope::of("tenant", "acme").map_err(|_| "not signed in")
}

/// A handler that reads its request and answers with a small JSON document.
fn service()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(|request: Request<Body>| async {
        let read = request.into_body().collect().await.map(|body| body.to_bytes().len());
        let status = match read {
            Ok(REQUEST_BYTES) => StatusCode::CREATED,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut answer = Response::new(Body::from(r#"{"id": "ch_42", "cents": 1999}"#));
        *answer.status_mut() = status;
        let json = header::HeaderValue::from_static("application/json");
        answer.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok::<_, Infallible>(answer)
    })
}

async fn one_by_one<S>(service: S, requests: Vec<Request<Body>>) -> Result<Duration, String>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let begin = Instant::now();
    for request in requests {
        let (status, body) = answer(service.clone(), request).await?;
        if status != StatusCode::CREATED || body.is_empty() {
            return Err(format!("answered with {status}: {}", String::from_utf8_lossy(&body)));
        }
    }
    Ok(begin.elapsed())
}

/// Sends a request and reads the answer to its end.
pub(crate) async fn answer<S>(
    mut service: S,
    request: Request<Body>,
) -> Result<(StatusCode, Bytes), String>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let Ok(answer) = service.call(request).await;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?;
    Ok((head.status, body.to_bytes()))
}

/// What a store holds after the first request.
async fn stored_answer() -> Result<Box<Stored>, Failure> {
    let store = Arc::new(MemoryStore::not_durable());
    let layered = layer(store.clone())?.layer(service());
    answer(layered, Kind::Replay.request()).await?;
    let name = OperationName::new("POST /v1/charges")?;
    let id = OperationId::new(scope()?, name, Key::new(&key(REPLAYED))?).digest();
    match store.get(&id).await? {
        Found::Record(stored) => Ok(stored),
        found => Err(format!("the first request left {found:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_its_length() {
        assert_eq!(document().len(), REQUEST_BYTES);
    }

    #[test]
    fn every_kind_is_answered_well() {
        let bench = Bench::new().unwrap();
        for kind in Kind::value_variants() {
            bench.turn(*kind, 3).unwrap();
        }
    }

    #[test]
    fn a_replay_does_not_run_the_service() {
        let bench = Bench::new().unwrap();
        let nobody = service_fn(|_: Request<Body>| async {
            panic!("the answer is known");
            #[expect(unreachable_code, reason = "it gives the service its type")]
            Ok::<Response<Body>, Infallible>(Response::new(Body::empty()))
        });
        let layer = layer(Prompt { stored: Some(bench.replayed.clone()) }).unwrap();
        let replay = answer(layer.layer(nobody), Kind::Replay.request());
        assert_eq!(bench.runtime.block_on(replay).unwrap().0, StatusCode::CREATED);
    }
}
