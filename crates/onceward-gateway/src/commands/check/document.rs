//! A configuration as JSON: every option in the words and units of the file, and no secret.

use serde_json::{Map, Value, json};

use crate::config::{
    Config, Jwt, JwtKeys, Route, RouteEffect, Tls, show_duration, show_size, show_url,
};

/// What is in effect. Names of environment variables are left out as well: somebody may have written
/// the secret itself there.
pub(crate) fn config_document(config: &Config) -> Value {
    let tokens: Map<_, _> = config
        .admin_tokens
        .iter()
        .map(|token| (token.name.clone(), json!({ "role": token.role.as_str() })))
        .collect();
    json!({
        "listen": config.listen.to_string(),
        "admin": config.admin.map(|admin| admin.to_string()),
        "admin_tokens": tokens,
        "upstream": upstream(config),
        "store": config.store.to_string(),
        "guarantee": config.guarantee.as_str(),
        "unmatched": config.unmatched.as_str(),
        "peer_share": config.peer_share,
        "min_body_rate": show_size(config.min_body_rate),
        "client_timeout": show_duration(config.client_timeout),
        "max_answers": config.max_answers,
        "trusted_proxies": texts(&config.trusted_proxies),
        "tls": config.tls.as_ref().map(tls_document),
        "jwt": config.jwt.as_ref().map(jwt_document),
        "encryption": config.encryption.is_some(),
        "routes": config.routes.iter().map(route_document).collect::<Vec<_>>(),
    })
}

/// What is promised, and on what it rests.
pub(crate) fn capabilities(config: &Config) -> Value {
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
    let mut document = identity(route);
    document.extend(meaning(route));
    document.extend(times(route));
    document.extend(contents(route));
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

/// What an answer, or none, means.
fn meaning(route: &Route) -> Map<String, Value> {
    let within = match route.effect {
        RouteEffect::External | RouteEffect::Transactional => None,
        RouteEffect::Repeatable { within } => Some(show_duration(within)),
    };
    let rebuild = route.rebuild.as_ref().map(|rebuild| format!("GET {}", rebuild.template));
    members([
        ("effect", route.effect.as_str().into()),
        ("tier", route.effect.tier().into()),
        ("rerun_within", within.into()),
        ("profile", route.profile_text().into()),
        ("on_500", if route.hold_500 { "hold" } else { "replay" }.into()),
        ("not_applied", route.not_applied.clone().into()),
        ("released", route.released.clone().into()),
        ("final", route.finals.clone().into()),
        ("reconcile", route.reconcile.as_ref().map(show_url).into()),
        ("rebuild", rebuild.into()),
        ("on_store_down", if route.pass_when_store_is_down { "pass" } else { "refuse" }.into()),
        ("stale_keys", if route.refuse_stale_keys { "refuse" } else { "run" }.into()),
        ("errors", route.errors_text().into()),
        ("mismatch", route.mismatch.into()),
    ])
}

fn times(route: &Route) -> Map<String, Value> {
    let unknown = route.unknown_retain.map_or_else(|| "never".to_owned(), show_duration);
    members([
        ("timeout", show_duration(route.timeout).into()),
        ("in_flight", route.in_flight.as_str().into()),
        ("wait", show_duration(route.wait).into()),
        ("lease", show_duration(route.lease).into()),
        ("max_run", show_duration(route.max_run).into()),
        ("retain", show_duration(route.retain).into()),
        ("retry_window", route.retry_window.map(show_duration).into()),
        ("unknown_retain", unknown.into()),
    ])
}

fn contents(route: &Route) -> Map<String, Value> {
    let redact = &route.redact;
    members([
        ("max_request", show_size(route.max_request as u64).into()),
        ("max_response", show_size(route.max_response as u64).into()),
        ("fingerprint_headers", route.fingerprint_headers.clone().into()),
        ("keep_headers", route.keep_headers.clone().into()),
        ("drop_headers", route.drop_headers.clone().into()),
        ("keep", route.keep_text().into()),
        ("redact_headers", texts(&redact.headers).into()),
        ("redact_json", texts(&redact.json).into()),
        ("max_open", route.max_open.into()),
    ])
}

/// How requests are sent on.
fn delivery(route: &Route) -> Map<String, Value> {
    let delivery = &route.delivery;
    let fallback = delivery.fallback.as_ref().map(|fallback| {
        json!({
            "status": fallback.status.as_u16(),
            "body": String::from_utf8_lossy(&fallback.body),
            "content_type": fallback.content_type.to_str().unwrap_or_default(),
        })
    });
    members([
        ("retry", delivery.retry.as_str().into()),
        ("attempts", delivery.attempts.into()),
        ("attempt_timeout", show_duration(delivery.attempt_timeout(route.timeout)).into()),
        ("backoff", delivery.backoff.to_string().into()),
        ("retry_status", delivery.retry_status.clone().into()),
        ("no_retry_status", delivery.no_retry_status.clone().into()),
        ("breaker", delivery.breaker.into()),
        ("hedge", delivery.hedge.into()),
        ("priority", delivery.priority_text().into()),
        ("limit", delivery.limit.into()),
        ("retry_share", delivery.retry_share.into()),
        ("fallback", fallback.into()),
    ])
}

fn members<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
