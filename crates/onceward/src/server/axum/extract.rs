//! The claim, made or deferred, as an axum extractor.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::request::Parts;

use crate::server::{Claim, Code, Deferred, Problem, claim::Passed, options::checked::Options};

/// Refuses a request without a key: the handler cannot do without a claim.
impl<S: Sync> FromRequestParts<S> for Claim {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let claim = find(parts)?;
        claim.ok_or_else(|| match parts.extensions.get() {
            Some(Passed::StoreDown(id)) => as_routed(parts, store_down().of(*id)),
            _ => as_routed(parts, key_missing(parts)),
        })
    }
}

/// `None` for a request without a key, and while the store is down on a route that runs without it.
impl<S: Sync> OptionalFromRequestParts<S> for Claim {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        find(parts)
    }
}

/// Refuses a request without a key.
impl<S: Sync> FromRequestParts<S> for Deferred {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        find_deferred(parts)?.ok_or_else(|| as_routed(parts, key_missing(parts)))
    }
}

/// `None` for a request without a key.
impl<S: Sync> OptionalFromRequestParts<S> for Deferred {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        find_deferred(parts)
    }
}

fn find_deferred(parts: &Parts) -> Result<Option<Deferred>, Problem> {
    let deferred = parts.extensions.get::<Deferred>().cloned();
    if deferred.is_none() && parts.extensions.get::<Passed>().is_none() {
        let text = "the handler asks for a deferred claim but its route is covered by no layer that \
                    defers; add `.deferred()` to its idempotency layer, or ask for a `Claim`";
        return Err(as_routed(parts, Problem::new(Code::Misconfigured, text)));
    }
    Ok(deferred)
}

/// Written as its layer refuses, if there is one.
fn as_routed(parts: &Parts, problem: Problem) -> Problem {
    match parts.extensions.get::<Arc<Options>>() {
        Some(options) => problem.errors(options.errors),
        None => problem,
    }
}

fn key_missing(parts: &Parts) -> Problem {
    match parts.extensions.get::<Arc<Options>>() {
        Some(options) => options.key_source.missing(),
        // No key helps a method that its layer does not cover.
        None => Problem::new(Code::KeyMissing, "this operation runs only with an idempotency key"),
    }
}

/// The route would run without a record, but its handler does not.
fn store_down() -> Problem {
    let text = "nothing was run; try again with the same key";
    Problem::new(Code::StoreUnavailable, text).retry_after(Duration::from_secs(1))
}

fn find(parts: &Parts) -> Result<Option<Claim>, Problem> {
    let claim = parts.extensions.get::<Claim>().cloned();
    if parts.extensions.get::<Deferred>().is_some() {
        let text = "the handler asks for a claim but its idempotency layer leaves that to the handler; \
                    ask for `Deferred` and call `run_in`, or leave `.deferred()` out";
        return Err(as_routed(parts, Problem::new(Code::Misconfigured, text)));
    }
    if claim.is_none() && parts.extensions.get::<Passed>().is_none() {
        let text = "the handler asks for a claim but no idempotency layer covers its route; add \
                    `.layer(idempotency)` to the router";
        return Err(as_routed(parts, Problem::new(Code::Misconfigured, text)));
    }
    Ok(claim)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        Self::into_response(self).map(axum::body::Body::new)
    }
}
