//! What `onceward serve` is told to do: read from a file, the environment and the command line, and
//! checked as a whole before anything is served.

mod diagnostics;
mod library;
mod parse;
mod schema;
mod shown;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::Method;
use ipnet::IpNet;
use onceward::server::Errors;

use crate::redact::Redact;

#[allow(unused_imports, reason = "for `onceward serve`, which refuses such paths itself")]
pub(crate) use schema::pattern::has_dot_segments;
pub(crate) use {
    diagnostics::{
        mistake::{Mistake, Severity, SourceLocation},
        names::{Names, is_of_path, template_of},
    },
    parse::{
        source::{Overrides, Sources},
        units::{parse_duration as duration, show_duration, show_size},
    },
    schema::{
        backoff::{BackoffRule, CAP, PATIENT_CAP},
        delivery::{Delivery, Fallback, RetryRule},
        encryption::{Encryption, are_same},
        postgres::PostgresUrl,
    },
    shown::show_url,
};

/// Everything, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The public listener.
    pub(crate) listen: SocketAddr,
    /// The operators' listener, if there is one.
    pub(crate) admin: Option<SocketAddr>,
    /// Where requests go: `http://` or `https://`, host and port, no path.
    pub(crate) upstream: http::Uri,
    /// Where the records are.
    pub(crate) store: StoreUrl,
    /// Whether the store must keep what it acknowledges.
    pub(crate) guarantee: Guarantee,
    /// The part of all places and of all memory that one client may hold.
    pub(crate) peer_share: f64,
    /// The slowest that a client may send a body, in bytes per second; 0 is any.
    pub(crate) min_body_rate: u64,
    /// How long a client may take nothing of its answer.
    pub(crate) client_timeout: Duration,
    /// How many answers may be on their way from the upstream at once.
    pub(crate) max_answers: usize,
    /// Only from these are `header:<name>` scopes and `Forwarded` believed.
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) tls: Option<Tls>,
    pub(crate) jwt: Option<Jwt>,
    /// Who may use the operators' listener; nobody is named: whoever is on this machine.
    pub(crate) admin_tokens: Vec<AdminToken>,
    /// Whether stored answers are hidden.
    pub(crate) encryption: Option<Encryption>,
    /// What becomes of a write with a key that matches no route.
    pub(crate) unmatched: Unmatched,
    /// How requests are refused of which no route is known.
    pub(crate) errors: Errors,
    /// Whether records may be left without a route that finds them.
    pub(crate) accepts_identity_change: bool,
    /// First match wins.
    pub(crate) routes: Vec<Route>,
    /// What is allowed and should be known: warnings and notes, by line.
    pub(crate) notes: Vec<Mistake>,
}

/// Where the records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// `sqlite://<file>`
    Sqlite(PathBuf),
    /// `postgres://<user>@<host>/<database>`
    Postgres(PostgresUrl),
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

/// One `[[route]]`, with what it leaves out taken from `[defaults]` and the built-in defaults.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) methods: Vec<Method>,
    /// `/v1/charges/{id}`, as written.
    pub(crate) pattern: Pattern,
    pub(crate) name: Option<String>,
    pub(crate) key: KeyRule,
    pub(crate) key_source: KeySource,
    pub(crate) scope: Vec<ScopePart>,
    pub(crate) authorize: Authorize,
    pub(crate) effect: RouteEffect,
    pub(crate) profile: Option<RouteProfile>,
    pub(crate) hold_500: bool,
    pub(crate) not_applied: Vec<u16>,
    /// Client errors that release the key.
    pub(crate) released: Vec<u16>,
    /// Errors whose answer is kept.
    pub(crate) finals: Vec<u16>,
    /// How long the upstream may take to answer.
    pub(crate) timeout: Duration,
    pub(crate) in_flight: InFlightRule,
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    pub(crate) max_run: Duration,
    pub(crate) retain: Duration,
    pub(crate) retry_window: Option<Duration>,
    /// `None`: never forgotten.
    pub(crate) unknown_retain: Option<Duration>,
    pub(crate) max_request: usize,
    pub(crate) max_response: usize,
    pub(crate) errors: Errors,
    pub(crate) mismatch: u16,
    pub(crate) refuse_stale_keys: bool,
    pub(crate) fingerprint_headers: Vec<String>,
    pub(crate) keep_headers: Vec<String>,
    pub(crate) drop_headers: Vec<String>,
    pub(crate) reconcile: Option<http::Uri>,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) pass_when_store_is_down: bool,
    /// Only the status of an answer is kept.
    pub(crate) status_only: bool,
    /// What is hidden in an answer before it is stored.
    pub(crate) redact: Redact,
    /// How many operations of one scope may run at once.
    pub(crate) max_open: usize,
    /// How its requests are sent on.
    pub(crate) delivery: Delivery,
    /// Whether it may keep its records under other names than before, so that completed keys run again.
    pub(crate) accepts_identity_change: bool,
    /// For each method the names of its records: as it says itself, or as its store knows them.
    pub(crate) names: Vec<Names>,
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
pub(crate) enum RouteEffect {
    External,
    /// It ends in the commit of the service behind the gateway, and in no other way.
    Transactional,
    Repeatable {
        within: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteProfile {
    Standard,
    Strict,
    Stripe,
    Rerun,
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
