//! A configuration as JSON: every option in the words and units of the file, and no secret.

use onceward::{Effect, server::Errors};
use serde_json::{Map, Value, json};

use crate::config::{
    Config, Jwt, JwtKeys, Route, Sink, Tls, fallback_document, priority_text, show_duration,
};

/// What is in effect, without the names of environment variables: an operator may have written the secret
/// itself there.
pub(crate) fn config_document(config: &Config) -> Value {
    let tokens: Map<_, _> = config
        .admin_tokens
        .iter()
        .map(|token| (token.name.clone(), json!({ "role": token.role.as_str() })))
        .collect();
    let mut document = config.plain();
    document.extend(members([
        ("listen", config.listen.to_string().into()),
        ("admin", config.admin.map(|admin| admin.to_string()).into()),
        ("admin_tokens", tokens.into()),
        ("upstream", config.serves.then(|| upstream(config)).into()),
        ("store", config.store.to_string().into()),
        ("tls", config.tls.as_ref().map(tls_document).into()),
        ("jwt", config.jwt.as_ref().map(jwt_document).into()),
        ("encryption", config.encryption.is_some().into()),
        ("routes", config.routes.iter().map(route_document).collect()),
        ("relay", config.relay.document()),
        ("sinks", config.sinks.iter().map(Sink::document).collect()),
    ]));
    document.into()
}

/// What is promised, on what it rests, and how records that were acknowledged can be lost all the same.
pub(crate) fn capabilities(config: &Config, losses: &[String]) -> Value {
    let promised = |route: &Route| {
        let names = [
            "match",
            "name",
            "key",
            "effect",
            "tier",
            "profile",
            "lease",
            "retain",
            "on_store_down",
        ];
        let whole = route_document(route);
        members(names.map(|name| (name, whole[name].clone())))
    };
    let routes = config.routes.iter().filter(|route| route.takes_keys()).map(promised);
    json!({
        "store": if config.is_strict() { "strict" } else { "relaxed" },
        "losses": losses,
        "encryption": config.encryption.is_some(),
        "routes": routes.collect::<Vec<_>>(),
    })
}

/// As it is written: without the slash that every URL has behind its host.
pub(super) fn upstream(config: &Config) -> String {
    config.upstream.to_string().trim_end_matches('/').to_owned()
}

fn tls_document(tls: &Tls) -> Value {
    json!({ "cert": tls.certificate, "key": tls.key, "client_ca": tls.client_ca })
}

fn jwt_document(jwt: &Jwt) -> Value {
    let (verified_by, jwks) = match &jwt.keys {
        JwtKeys::Jwks(file) => ("jwks", Some(file)),
        JwtKeys::SecretEnv(_) => ("secret_env", None),
    };
    json!({
        "verified_by": verified_by,
        "jwks": jwks,
        "issuer": jwt.issuer,
        "audience": jwt.audience,
    })
}

fn route_document(route: &Route) -> Value {
    let mut document = route.plain();
    document.extend(identity(route));
    document.extend(promise(route));
    document.extend(delivery(route));
    document.into()
}

/// Which requests, and whose they are.
fn identity(route: &Route) -> Map<String, Value> {
    let methods: Vec<_> = route.methods.iter().map(http::Method::as_str).collect();
    members([
        ("match", route.match_text().into()),
        ("methods", methods.into()),
        ("path", route.pattern.text.clone().into()),
        ("name", route.name.clone().into()),
        ("key", route.key.as_str().into()),
        ("key_header", route.key_source.key_header().into()),
        ("key_from", route.key_source.key_from().into()),
        ("scope", texts(&route.scope).into()),
        ("authorize", route.authorize.to_string().into()),
        ("accept_identity_change", route.accepts_identity_change.into()),
    ])
}

/// What several options say together.
fn promise(route: &Route) -> Map<String, Value> {
    let within = match route.effect {
        Effect::External | Effect::Transactional => None,
        Effect::Repeatable { within } => Some(show_duration(within)),
    };
    let errors = match route.errors {
        Errors::Problem => "problem",
        Errors::Stripe => "stripe",
    };
    members([
        ("effect", route.effect.as_str().into()),
        ("tier", route.effect.tier().into()),
        ("rerun_within", within.into()),
        ("profile", route.profile_text().into()),
        ("errors", errors.into()),
        ("mismatch", route.mismatch.into()),
        ("lease", show_duration(route.lease).into()),
        ("max_run", show_duration(route.max_run).into()),
        ("retain", show_duration(route.retain).into()),
    ])
}

/// How requests are sent on.
fn delivery(route: &Route) -> Map<String, Value> {
    let delivery = &route.delivery;
    members([
        ("retry", delivery.retry.as_str().into()),
        ("attempts", delivery.attempts.into()),
        ("attempt_timeout", show_duration(delivery.attempt_timeout(route.timeout)).into()),
        ("backoff", delivery.backoff.to_string().into()),
        ("retry_status", delivery.retry_status.clone().into()),
        ("no_retry_status", delivery.no_retry_status.clone().into()),
        ("breaker", delivery.breaker.into()),
        ("hedge", delivery.hedge.into()),
        ("priority", priority_text(delivery.priority).into()),
        ("limit", delivery.limit.into()),
        ("retry_share", delivery.retry_share.into()),
        ("fallback", delivery.fallback.as_ref().map(fallback_document).into()),
    ])
}

fn members<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
