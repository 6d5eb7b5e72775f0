//! The last word: a route is built as the library builds it, so that nothing is refused later.

use std::{convert::Infallible, future::ready};

use http::{HeaderName, request::Parts};
use onceward::{
    Digest, Outcome, Scope, Store, StoreError,
    protocol::{Found, StoredBody},
    server::{Idempotency, IdempotencyBuilder, InFlight, OptionsError},
    store::{BoxFuture, Change, Swap},
};

use super::{
    InFlightRule, KeyRule, KeySource, Route, ScopePart, SourceLocation,
    diagnostics::mistake::Mistakes, schema::options::RouteOptions,
};

/// Reports what the library would refuse.
pub(super) fn check(
    route: &Route,
    options: &RouteOptions,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) {
    // It covers nothing, and may have methods that no layer covers.
    if route.key == KeyRule::Off {
        return;
    }
    let Err(error) = builder(route).build() else { return };
    let kept = options.keep_headers.given().map(|names| &names.place);
    let named = options.key_header.given().map(|names| &names.place);
    let from = options.key_from.given().map(|from| &from.place);
    let is_event = route.key_source.key_from().is_some();
    let place = match &error {
        OptionsError::Option { option: "keep_header", .. } => kept.unwrap_or(place),
        OptionsError::Option { option: "key_header", .. } if is_event => from.unwrap_or(place),
        OptionsError::Option { option: "key_header", .. } => named.unwrap_or(place),
        _ => place,
    };
    let key_option = if is_event { "`key_from`" } else { "`key_header`" };
    let text = error.to_string().replace("`keep_header`", "`keep_headers`");
    let text = text.replace("`key_header`", key_option);
    mistakes.error(place, text, "change it as the message says");
}

/// A layer that is only built: nothing is ever stored in it.
fn builder(route: &Route) -> IdempotencyBuilder {
    let scope = |_: &Parts| Ok::<_, Infallible>(Scope::global());
    route.choose(Idempotency::builder(Nowhere, scope))
}

impl Route {
    /// What this route keeps of an answer that an operator gives.
    pub(crate) fn kept(&self, found_out: Outcome) -> Outcome {
        match builder(self).build() {
            Ok(layer) => layer.kept(found_out),
            // A route that was checked is built; if not, nothing is kept that it might hide.
            Err(_) => Outcome {
                body: StoredBody::Unavailable,
                ..Outcome::inline(found_out.status, Vec::new())
            },
        }
    }

    /// The options of this route, as the library calls them.
    pub(crate) fn choose(&self, builder: IdempotencyBuilder) -> IdempotencyBuilder {
        let mut builder = builder
            .methods(self.methods.iter().cloned())
            .effect(self.effect)
            .in_flight(match self.in_flight {
                InFlightRule::Wait => InFlight::Wait(self.wait),
                InFlightRule::Conflict => InFlight::Conflict,
                InFlightRule::Accepted => InFlight::Accepted,
                InFlightRule::Async => InFlight::Async,
            })
            .lease(self.lease)
            .max_run(self.max_run)
            .retain(self.retain)
            .not_applied(self.not_applied.iter().copied())
            .released_statuses(self.released.iter().copied())
            .final_statuses(self.finals.iter().copied())
            .errors(self.errors)
            .mismatch_status(self.mismatch)
            .max_request(self.max_request)
            .max_inline(self.max_inline())
            .max_response(self.max_response)
            .max_open(self.max_open)
            // The gateway counts retries itself, those without a key as well.
            .retry_share(1.0);
        if self.scope.iter().any(|part| matches!(part, ScopePart::Path(_) | ScopePart::Json(_))) {
            // What comes from the request's path and body is chosen by the caller.
            let says_who = |part: &str| !part.starts_with("path:") && !part.starts_with("json:");
            builder = builder.principal(says_who);
        }
        let key_headers = self.key_source.headers().iter().map(|header| header.shown.clone());
        if !matches!(self.key_source, KeySource::Json(_)) {
            builder = builder.key_header(key_headers);
        }
        builder = self.name.iter().fold(builder, IdempotencyBuilder::operation);
        builder = self.retry_window.into_iter().fold(builder, IdempotencyBuilder::retry_window);
        builder = self.unknown_retain.into_iter().fold(builder, IdempotencyBuilder::unknown_retain);
        for (headers, add) in [
            (&self.fingerprint_headers, IdempotencyBuilder::fingerprint_header as fn(_, _) -> _),
            (&self.keep_headers, IdempotencyBuilder::keep_header),
            (&self.drop_headers, IdempotencyBuilder::drop_header),
        ] {
            builder = headers.iter().map(HeaderName::as_str).fold(builder, add);
        }
        builder = self.profile.into_iter().fold(builder, IdempotencyBuilder::profile);
        let redact = self.redact();
        if !redact.is_empty() {
            builder = builder.redact(move |outcome| redact.apply(outcome));
        }
        let switches = [
            (self.key == KeyRule::Required, IdempotencyBuilder::require_key as fn(_) -> _),
            (self.hold_500, IdempotencyBuilder::hold_500),
            (self.refuse_stale_keys, IdempotencyBuilder::refuse_stale_keys),
            (self.pass_when_store_is_down, IdempotencyBuilder::pass_when_store_is_down),
            (self.status_only, IdempotencyBuilder::status_only),
        ];
        let chosen = switches.into_iter().filter(|(is_chosen, _)| *is_chosen);
        chosen.fold(builder, |builder, (_, choose)| choose(builder))
    }
}

/// The store of a layer that serves nothing.
struct Nowhere;

impl Store for Nowhere {
    fn swap<'a>(&'a self, _: &'a Change) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(ready(Err(StoreError::Unusable("nothing is served".to_owned()))))
    }

    fn get<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(ready(Ok(Found::Nothing)))
    }

    fn sweep(&self, _: u32) -> BoxFuture<'_, Result<u32, StoreError>> {
        Box::pin(ready(Ok(0)))
    }
}
