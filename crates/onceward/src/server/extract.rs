//! The claim as an axum extractor.

use std::time::Duration;

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::request::Parts;

use super::{Claim, Code, Problem, claim::Passed};

/// Refuses a request without a key: the handler cannot do without a claim.
impl<S: Sync> FromRequestParts<S> for Claim {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let claim = find(parts)?;
        claim.ok_or_else(|| match parts.extensions.get() {
            Some(Passed::StoreDown(id)) => store_down().of(*id),
            _ => key_missing(),
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

fn key_missing() -> Problem {
    let text = "this operation needs an Idempotency-Key; send a new UUID for each operation";
    Problem::new(Code::KeyMissing, text)
}

/// The route would run without a record, but its handler does not.
fn store_down() -> Problem {
    let text = "nothing was run; try again with the same key";
    Problem::new(Code::StoreUnavailable, text).retry_after(Duration::from_secs(1))
}

fn find(parts: &Parts) -> Result<Option<Claim>, Problem> {
    let claim = parts.extensions.get::<Claim>().cloned();
    if claim.is_none() && parts.extensions.get::<Passed>().is_none() {
        let text = "the handler asks for a claim but no idempotency layer covers its route; add \
                    `.layer(idempotency)` to the router";
        return Err(Problem::new(Code::Misconfigured, text));
    }
    Ok(claim)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        Self::into_response(self).map(axum::body::Body::new)
    }
}
