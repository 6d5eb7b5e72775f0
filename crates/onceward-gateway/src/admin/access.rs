//! Who may use the operators' listener, and for what.

use std::{env, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, uri::Authority};
use onceward::telemetry::event;
use sha2::{Digest as _, Sha256};

use super::refusal::Refusal;
use crate::config::{AdminToken, Role};

/// A shorter token can be guessed.
const MIN_TOKEN: usize = 16;

/// The longest name that a person may give themselves in the trail.
const MAX_ACTOR: usize = 64;

/// The person who makes a change, as the CLI says it: written beside the token's name, and no proof.
pub(crate) const ACTOR: &str = "onceward-actor";

/// Who may do what. Without tokens every process on this machine may do everything.
#[derive(Clone)]
pub(crate) struct Access {
    tokens: Arc<[Token]>,
}

struct Token {
    name: String,
    role: Role,
    digest: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    /// As it is written in the trail.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Access {
    pub(crate) fn new(tokens: &[AdminToken]) -> Result<Self, String> {
        let read = |token: &AdminToken| {
            let AdminToken { name, token_env, role } = token;
            let value = env::var(token_env).unwrap_or_default();
            if value.len() < MIN_TOKEN {
                let wrong = match value.is_empty() {
                    true => "is not set".to_owned(),
                    false => format!("has fewer than {MIN_TOKEN} characters"),
                };
                return Err(format!(
                    "the token `{name}` is the environment variable {token_env}, which {wrong}; try: \
                     export {token_env}=$(openssl rand -hex 32)"
                ));
            }
            Ok(Token { name: name.clone(), role: *role, digest: digest(value.as_bytes()) })
        };
        let (tokens, wrong): (Vec<_>, Vec<_>) = tokens.iter().map(read).partition(Result::is_ok);
        let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        let tokens: Vec<Token> = tokens.into_iter().flatten().collect();
        let digests = |from: usize| tokens[from..].iter().map(|token| token.digest);
        for (index, token) in tokens.iter().enumerate() {
            if digests(index + 1).any(|other| other == token.digest) {
                return Err(format!(
                    "the token of `{}` has a second name: give each its own",
                    token.name
                ));
            }
        }
        Ok(Self { tokens: tokens.into() })
    }

    fn operator(&self, uri: &Uri, headers: &HeaderMap) -> Result<Operator, Refusal> {
        let actor = actor(headers)?;
        let named = |name: &str| match &actor {
            Some(actor) => format!("{name}/{actor}"),
            None => name.to_owned(),
        };
        if self.tokens.is_empty() {
            only_this_machine(uri, headers)?;
            return Ok(Operator { name: named("loopback"), role: Role::Purge });
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let Some(given) = given.map(digest) else {
            return Err(unauthorized("send `Authorization: Bearer <token>`"));
        };
        // What is compared are digests, of which a guesser cannot choose the first bytes.
        match self.tokens.iter().find(|token| token.digest == given) {
            Some(Token { name, role, .. }) => Ok(Operator { name: named(name), role: *role }),
            None => Err(unauthorized("this token is not known here: use one of [admin_tokens]")),
        }
    }
}

/// Lets a request pass whose operator may do what needs this role.
pub(super) async fn require(
    State((access, role)): State<(Access, Role)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let operator = access.operator(request.uri(), request.headers()).inspect_err(log)?;
    if operator.role < role {
        let text = format!(
            "the role of `{}` is `{}`, and this needs `{}`",
            operator.name,
            operator.role.as_str(),
            role.as_str()
        );
        return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", text)).inspect_err(log);
    }
    if request.method() == Method::POST {
        is_json(request.headers())?;
    }
    request.extensions_mut().insert(operator);
    Ok(next.run(request).await)
}

/// Logs a request that its sender had no right to.
fn log(refusal: &Refusal) {
    tracing::warn!(event = event::OPERATOR_REFUSED, code = refusal.code, "an operator was refused");
}

/// A page in a browser can send requests to this machine, but this content type only after asking first.
fn is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
    match kind.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        true => Ok(()),
        false => {
            let text = "send a JSON document, with `Content-Type: application/json`";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", text))
        }
    }
}

/// Without tokens only the address protects the listener: no page of another host may use it, and no name
/// that resolves to this machine.
fn only_this_machine(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // With HTTP/2 the host is in the target.
    let host = text(header::HOST).or_else(|| Some(uri.authority()?.as_str()));
    let host = host.is_some_and(is_loopback);
    let origin = text(header::ORIGIN).is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(_, authority)| is_loopback(authority))
    });
    match host && origin {
        true => Ok(()),
        false => {
            let text = "without [admin_tokens] only this machine may ask, as 127.0.0.1, [::1] or \
                        localhost";
            Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", text))
        }
    }
}

fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn actor(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(ACTOR) else { return Ok(None) };
    let actor = value.to_str().ok().filter(|actor| (1..=MAX_ACTOR).contains(&actor.len()));
    let text = || format!("`{ACTOR}` has 1 to {MAX_ACTOR} visible characters");
    actor.map(Some).ok_or_else(|| Refusal::malformed(text()))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn unauthorized(text: &'static str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (http::HeaderName::from_static(name), value.parse().unwrap())
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn without_tokens_only_this_machine_may_ask() {
        let access = Access { tokens: Arc::new([]) };
        for (lines, may) in [
            (&[("host", "127.0.0.1:8081")][..], true),
            (&[("host", "localhost")], true),
            (&[("host", "[::1]:8081")], true),
            (&[], false),
            (&[("host", "evil.example")], false),
            (&[("host", "127.0.0.1.evil.example")], false),
            (&[("host", "localhost"), ("origin", "http://localhost:8081")], true),
            (&[("host", "localhost"), ("origin", "https://evil.example")], false),
            (&[("host", "localhost"), ("origin", "null")], false),
        ] {
            assert_eq!(access.operator(&Uri::default(), &headers(lines)).is_ok(), may, "{lines:?}");
        }
        let said = headers(&[("host", "localhost"), ("onceward-actor", "ada")]);
        assert_eq!(access.operator(&Uri::default(), &said).unwrap().name, "loopback/ada");
    }

    #[test]
    fn a_token_says_who_asks() {
        let token = |name: &str, role, value: &[u8]| Token {
            name: name.into(),
            role,
            digest: digest(value),
        };
        let tokens =
            [token("ops", Role::Resolve, b"secret-1"), token("eye", Role::Read, b"secret-2")];
        let access = Access { tokens: Arc::new(tokens) };
        for (value, name) in [
            ("Bearer secret-1", Some("ops")),
            ("bearer  secret-2 ", Some("eye")),
            ("Bearer secret-3", None),
            ("Bearer ", None),
            ("Basic secret-1", None),
            ("secret-1", None),
        ] {
            let operator =
                access.operator(&Uri::default(), &headers(&[("authorization", value)])).ok();
            assert_eq!(operator.map(|operator| operator.name).as_deref(), name, "{value}");
        }
        assert!(access.operator(&Uri::default(), &headers(&[("host", "localhost")])).is_err());
    }
}
