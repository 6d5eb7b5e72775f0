//! What `onceward serve` does: read from a file, the environment and the command line, and
//! checked as a whole before anything is served.

mod diagnostics;
mod library;
mod parse;
mod schema;
mod shown;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

#[allow(unused_imports, reason = "for `onceward serve`, which refuses such paths itself")]
pub(crate) use schema::pattern::has_dot_segments;
pub(crate) use {
    diagnostics::{
        mistake::{Mistake, Severity, SourceLocation},
        names::{Names, is_of_path, template_of},
    },
    parse::{
        source::{NamedSink, Overrides, Sources, USUAL_FILE},
        units::{parse_duration as duration, show_duration},
    },
    schema::{
        backoff::{BackoffRule, CAP, PATIENT_CAP},
        delivery::{Delivery, Fallback, RetryRule, fallback_document, priority_text},
        encryption::{Encryption, are_same},
        options::Route,
        postgres::PostgresUrl,
        process::Config,
        redis::RedisUrl,
        sinks::Sink,
        table::{Described, Group, Reference, Shown},
    },
    shown::show_url,
};

/// Where the records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// `sqlite://<file>`
    Sqlite(PathBuf),
    /// `postgres://<user>@<host>/<database>`
    Postgres(PostgresUrl),
    /// `redis://<user>@<host>`
    Redis(RedisUrl),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    Strict,
    Relaxed,
}

/// What becomes of a write with a key that matches no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmatched {
    /// It goes on without protection, and its answer says so.
    Pass,
    Refuse,
}

/// Whose pages may read answers: `https://shop.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WebOrigin {
    /// Those of every origin, without cookies.
    Any,
    /// As browsers write it.
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Who signs the certificates of clients; without it none is asked for.
    pub(crate) client_ca: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Jwt {
    pub(crate) keys: JwtKeys,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JwtKeys {
    /// A file of public keys.
    Jwks(PathBuf),
    /// The name of the environment variable that holds a shared secret.
    SecretEnv(String),
}

/// One line of `[admin_tokens]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminToken {
    /// Who it is, in the trail.
    pub(crate) name: String,
    /// The name of the environment variable that holds the token.
    pub(crate) token_env: String,
    pub(crate) role: Role,
}

/// What an operator may do; each may also do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Read,
    Resolve,
    Purge,
}

/// A path with `{name}` for one segment and, at its end, `{*rest}` for all that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    One(String),
    Rest(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Required,
    Optional,
    Off,
}

/// Where clients put their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// `key_header`: the first of these that a request has.
    Headers(Vec<KeyHeader>),
    /// `key_from = "header:<name>"`: the id of an event.
    EventHeader(KeyHeader),
    /// `key_from = "json:<pointer>"`: the id of an event, in its body.
    Json(String),
}

/// A header that may hold a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyHeader {
    /// As people write it.
    pub(crate) shown: String,
    pub(crate) name: http::HeaderName,
}

/// One part of a scope: `jwt:<claim>`, `cert:subject`, `header:<name>`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScopePart {
    /// A claim that is a text.
    Jwt(String),
    /// A claim that is a whole number.
    JwtNumber(String),
    CertificateSubject,
    Header(http::HeaderName),
    Secret(http::HeaderName),
    Cookie(String),
    Global,
    Path(String),
    Json(String),
}

/// Who checks that a replay may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Authorize {
    Jwt,
    Mtls,
    None,
    Url(http::Uri),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlightRule {
    Wait,
    Conflict,
    Accepted,
    Async,
}

/// `GET /v1/payments/{id}`, for `Onceward-Resource: payment/<id>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rebuild {
    /// The path with `{id}`.
    pub(crate) template: String,
}
