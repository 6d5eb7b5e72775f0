//! The words of a configuration, as they are written in a file.

use std::fmt;

use http::header::AUTHORIZATION;
use onceward::{
    Effect, Profile,
    outbox::{DeadLetters, OtherTopics, StartFrom},
};

use super::{
    Authorize, Config, Guarantee, InFlightRule, KeyRule, RetryRule, Role, Route, ScopePart,
    StoreUrl, Unmatched,
    schema::{kinds::word, limits, options::EffectWord},
};
use crate::redact::Redact;

impl fmt::Display for ScopePart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jwt(claim) => write!(formatter, "jwt:{claim}"),
            Self::JwtNumber(claim) => write!(formatter, "jwt-number:{claim}"),
            Self::CertificateSubject => formatter.write_str("cert:subject"),
            Self::Header(name) => write!(formatter, "header:{name}"),
            Self::Secret(name) => write!(formatter, "secret:{name}"),
            Self::Cookie(name) => write!(formatter, "cookie:{name}"),
            Self::Global => formatter.write_str("global"),
            Self::Path(name) => write!(formatter, "path:{name}"),
            Self::Json(pointer) => write!(formatter, "json:{pointer}"),
        }
    }
}

impl ScopePart {
    /// What the part is called in a record. It says how the value was made: the same name never stands for
    /// values that were made in another way, so that a change of it shows.
    pub(crate) fn stored_name(&self) -> String {
        match self {
            // A claim of one route has one type, see `check_scope`.
            Self::JwtNumber(claim) => format!("jwt:{claim}"),
            Self::CertificateSubject => "cert:subject-sha256".to_owned(),
            part => part.to_string(),
        }
    }
}

/// A URL without its query, which may hold a token.
pub(crate) fn show_url(uri: &http::Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    format!("{scheme}://{host}{}", uri.path())
}

impl fmt::Display for Authorize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jwt => formatter.write_str("jwt"),
            Self::Mtls => formatter.write_str("mtls"),
            Self::None => formatter.write_str("none"),
            Self::Url(uri) => formatter.write_str(&show_url(uri)),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(formatter, "sqlite://{}", file.display()),
            Self::Postgres(url) => write!(formatter, "{url}"),
            Self::Redis(url) => write!(formatter, "{url}"),
        }
    }
}

/// The words for the variants of a type, as an option takes them and a document shows them.
macro_rules! words {
    ($($Type:ident { $($Variant:ident = $word:literal),* })*) => {$(
        #[allow(dead_code, reason = "documents show some of them by their option")]
        impl $Type {
            pub(crate) const WORDS: [(&'static str, Self); [$($word),*].len()] =
                [$(($word, Self::$Variant)),*];

            pub(crate) fn as_str(self) -> &'static str {
                word(&Self::WORDS, &self)
            }
        }
    )*};
}

words! {
    EffectWord { External = "external", Transactional = "transactional", Repeatable = "repeatable" }
    Guarantee { Strict = "strict", Relaxed = "relaxed" }
    InFlightRule { Wait = "wait", Conflict = "conflict", Accepted = "accepted", Async = "async" }
    KeyRule { Required = "required", Optional = "optional", Off = "off" }
    RetryRule { Off = "off", Standard = "standard", Patient = "patient" }
    Role { Read = "read", Resolve = "resolve", Purge = "purge" }
    Unmatched { Pass = "pass", Refuse = "refuse" }
}

/// Words for variants of the library's own types.
pub(crate) const DEAD_LETTERS: [(&str, DeadLetters); 2] =
    [("block", DeadLetters::Block), ("skip", DeadLetters::Skip)];
pub(crate) const START_FROM: [(&str, StartFrom); 2] =
    [("now", StartFrom::Now), ("oldest", StartFrom::Oldest)];
pub(crate) const OTHER_TOPICS: [(&str, OtherTopics); 2] =
    [("die", OtherTopics::Die), ("pass", OtherTopics::Pass)];

impl Config {
    /// Whether what is acknowledged survives a crash. A server that may lose it is refused when the
    /// gateway starts, unless `guarantee` allows it.
    pub(crate) fn is_strict(&self) -> bool {
        match &self.store {
            StoreUrl::Sqlite(_) => true,
            StoreUrl::Postgres(_) => self.guarantee == Guarantee::Strict,
            StoreUrl::Redis(_) => false,
        }
    }

    /// Whether the service behind this route can end its operations on this store, with these answers
    /// sealed or not.
    pub(crate) fn allows(&self, route: &Route) -> bool {
        let has_functions = matches!(&self.store, StoreUrl::Postgres(url) if !url.is_relative());
        let commits = has_functions && (self.encryption.is_none() || route.status_only);
        route.effect != Effect::Transactional || commits
    }

    /// The routes whose operations have this name; they may differ in their scope.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(move |route| route.takes_keys() && route.is_named(name))
    }
}

impl Route {
    /// Whether its operations have this name, or may have it.
    fn is_named(&self, name: &str) -> bool {
        match &self.name {
            Some(fixed) => fixed == name,
            None => name.split_once(' ').is_some_and(|(method, path)| {
                self.methods.iter().any(|known| known.as_str() == method)
                    && (path == self.pattern.text || self.pattern.parameters(path).is_some())
            }),
        }
    }

    /// The profile that counts: the one that was said, or the effect's own (rule 12). A transactional
    /// effect has none: nothing is read from its answers.
    pub(crate) fn profile_in_force(&self) -> Option<Profile> {
        self.profile.or(match self.effect {
            Effect::External => Some(Profile::Standard),
            Effect::Transactional => None,
            Effect::Repeatable { .. } => Some(Profile::Rerun),
        })
    }

    /// That profile in a word.
    pub(crate) fn profile_text(&self) -> &'static str {
        self.profile_in_force().map_or("none", Profile::as_str)
    }

    /// Whether it does anything: a route that takes no keys only keeps later ones away.
    pub(crate) fn takes_keys(&self) -> bool {
        self.key != KeyRule::Off
    }

    /// The largest answer that is kept in the record itself; the library refuses more than
    /// `max_response`.
    pub(crate) fn max_inline(&self) -> usize {
        self.max_response.min(limits::MAX_INLINE)
    }

    /// What is hidden in an answer before it is stored.
    pub(crate) fn redact(&self) -> Redact {
        Redact { headers: self.redact_headers.clone(), json: self.redact_json.clone() }
    }

    /// `POST,PATCH /v1/charges/{id}`, as in `match`.
    pub(crate) fn match_text(&self) -> String {
        format!("{} {}", self.methods_text(), self.pattern.text)
    }

    /// `POST,PATCH`, as in `match`.
    pub(crate) fn methods_text(&self) -> String {
        self.methods.iter().map(http::Method::as_str).collect::<Vec<_>>().join(",")
    }

    /// What a caller without a scope is asked for: `WWW-Authenticate` of the 401.
    pub(crate) fn challenge(&self) -> String {
        let of_part = |part: &ScopePart| match part {
            ScopePart::Jwt(_) | ScopePart::JwtNumber(_) => Some("Bearer".to_owned()),
            ScopePart::CertificateSubject => Some("Certificate".to_owned()),
            ScopePart::Header(name) | ScopePart::Secret(name) if *name != AUTHORIZATION => {
                Some(format!("ApiKey header=\"{name}\""))
            }
            ScopePart::Header(_) | ScopePart::Secret(_) => Some("Bearer".to_owned()),
            ScopePart::Cookie(name) => Some(format!("Cookie cookie-name=\"{name}\"")),
            ScopePart::Global | ScopePart::Path(_) | ScopePart::Json(_) => None,
        };
        self.scope.iter().find_map(of_part).unwrap_or_else(|| "Bearer".to_owned())
    }

    /// `jwt:sub,path:tenant`.
    pub(crate) fn scope_text(&self) -> String {
        self.scope.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}
