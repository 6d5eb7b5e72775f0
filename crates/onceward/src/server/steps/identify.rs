//! Step 1: which operation is this? Rules 1 to 6 of the contract.

use http::request::Parts;
use onceward_core::{OperationId, OperationName};

use super::fingerprint::original_uri;
use crate::{
    server::{
        Claim, Code, Problem,
        options::checked::{OperationNaming, Options},
    },
    telemetry::{Route, event},
};

/// `Ok(None)`: the request, of a method that is covered, has no key and passes untouched.
pub(crate) fn operation(options: &Options, parts: &Parts) -> Result<Option<OperationId>, Problem> {
    let Some(key) = options.key_source.key_of(parts)? else {
        return if options.chosen.key_required {
            Err(options.key_source.missing())
        } else {
            Ok(None)
        };
    };
    if parts.extensions.get::<Claim>().is_some() {
        let text = "two idempotency layers cover this route; give it one, made with the other's \
                    `with` where options differ";
        return Err(Problem::new(Code::Misconfigured, text));
    }
    let scope = (options.chosen.scope)(parts).map_err(|reason| {
        tracing::debug!(event = event::SCOPE_MISSING, %reason, "a request has no scope");
        scope_missing(options, &reason, "send the same request")
    })?;
    Ok(Some(OperationId::new(scope, name(options, parts)?, key)))
}

/// Why the layer runs and shows no operation, and what to do then.
pub(crate) fn scope_missing(options: &Options, reason: &str, then: &str) -> Problem {
    let reason = match options.chosen.scope_errors_told {
        true => format!(" ({reason})"),
        false => String::new(),
    };
    let text = format!("it is not known whose operation this is{reason}; sign in and {then}");
    Problem::new(Code::ScopeMissing, text).challenge(options.challenge.clone())
}

fn name(options: &Options, parts: &Parts) -> Result<OperationName, Problem> {
    let name = match &options.name {
        OperationNaming::Fixed(name) => return Ok(name.clone()),
        OperationNaming::By(name) => name(parts),
        OperationNaming::ByRoute => {
            // The template where the router says it, otherwise the path that the client sent.
            let template = matched(parts).unwrap_or_else(|| original_uri(parts).path());
            let name = format!("{} {template}", parts.method);
            OperationName::new(&name).map_err(|error| error.to_string())
        }
    };
    name.map_err(|error| Problem::new(Code::RequestMalformed, error))
}

#[cfg(feature = "axum")]
fn matched(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched(_: &Parts) -> Option<&str> {
    None
}

/// Where a request is counted: never by its path, which may be anything.
pub(crate) fn route(options: &Options, parts: &Parts) -> Route {
    options.route.unwrap_or_else(|| match matched(parts) {
        Some(template) => Route::named(&format!("{} {template}", parts.method)),
        None => Route::other(),
    })
}
