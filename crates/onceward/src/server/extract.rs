//! The claim as an axum extractor.

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
        find(parts)?.ok_or_else(|| {
            let text =
                "this operation needs an Idempotency-Key; send a new UUID for each operation";
            Problem::new(Code::KeyMissing, text)
        })
    }
}

/// `None` for a request without a key.
impl<S: Sync> OptionalFromRequestParts<S> for Claim {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        find(parts)
    }
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
