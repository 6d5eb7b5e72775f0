//! What a client gets when there is no answer of its operation: rule 24 of the contract.

pub(super) mod stripe;

use std::{borrow::Cow, time::Duration};

use http::{HeaderValue, Response, StatusCode, header};
use onceward_core::Digest;

use super::{
    Body,
    headers::{OUTCOME, UNKNOWN},
    steps::respond,
};
use crate::telemetry::RejectReason;

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $status:literal, $retryable:literal, $safe:literal;)*) => {
        /// The kinds of refusal, with what a client may do about each.
        ///
        /// ```
        /// use onceward::server::Code;
        ///
        /// assert_eq!(Code::InProgress.as_str(), "in-progress");
        /// assert!(Code::InProgress.is_retryable() && !Code::InProgress.is_new_key_safe());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $code,)* }

        impl Code {
            /// All of them, in the order of this enumeration.
            pub const ALL: [Self; 24] = [$(Self::$code),*];

            /// Name, status, retryable, new key is safe.
            const fn row(self) -> (&'static str, u16, bool, bool) {
                match self { $(Self::$code => ($name, $status, $retryable, $safe),)* }
            }
        }
    };
}

// Each with its name, its usual status, whether the same request with the same key makes sense later, and
// whether a new key cannot double an effect.
codes! {
    /// The route needs an `Idempotency-Key`.
    KeyMissing = "key-missing", 400, false, true;
    /// The `Idempotency-Key` is malformed.
    KeyInvalid = "key-invalid", 400, false, true;
    /// The key says that it is older than the answers that are kept.
    KeyExpired = "key-expired", 400, false, false;
    /// It is not known whose operation this is.
    ScopeMissing = "scope-missing", 401, false, true;
    /// The key was used for a request that means something else.
    KeyReused = "key-reused", 422, false, true;
    /// Another execution is running.
    InProgress = "in-progress", 409, true, false;
    /// It cannot be proven whether the effect happened.
    OutcomeUnknown = "outcome-unknown", 409, false, false;
    /// The operation has ended, but its answer could not be kept.
    ResultUnavailable = "result-unavailable", 409, false, false;
    /// Another execution took over.
    LeaseLost = "lease-lost", 409, true, false;
    /// The request is larger than the route allows.
    BodyTooLarge = "body-too-large", 413, false, true;
    /// The store does not answer; nothing was run.
    StoreUnavailable = "store-unavailable", 503, true, false;
    /// The store's clock jumped, and only by that the operation would be forgotten; nothing was run.
    ClockSuspect = "clock-suspect", 503, true, false;
    /// Too much is going on here; nothing was run.
    Overloaded = "overloaded", 503, true, false;
    /// Too many operations of this caller are running; nothing was run.
    TooManyOpen = "too-many-open", 429, true, false;
    /// Too many of the requests that would run are retries; nothing was run.
    RetryBudgetExhausted = "retry-budget-exhausted", 429, true, false;
    /// The client's deadline was over before anything was run.
    DeadlineExceeded = "deadline-exceeded", 504, true, false;
    /// The handler answered well but did not commit its record.
    NotCommitted = "not-committed", 500, true, false;
    /// No complete answer, and another run is safe.
    UpstreamFailed = "upstream-failed", 502, true, false;
    /// The request could not be sent on; nothing was run.
    UpstreamUnreachable = "upstream-unreachable", 502, true, false;
    /// The caller may not see the stored answer.
    ReplayForbidden = "replay-forbidden", 403, false, false;
    /// No such operation, or not the caller's.
    OperationNotFound = "operation-not-found", 404, false, false;
    /// The request has a key, and no route takes it; nothing was run.
    RouteMissing = "route-missing", 404, false, true;
    /// The request cannot be read.
    RequestMalformed = "request-malformed", 400, false, true;
    /// The service is wired wrongly.
    Misconfigured = "misconfigured", 500, false, false;
}

impl Code {
    /// The word for it in problem documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The status that it is usually sent with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().1).expect("the table has valid statuses")
    }

    /// Whether the same request with the same key makes sense later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        self.row().2
    }

    /// Whether a new key cannot double an effect.
    #[must_use]
    pub const fn is_new_key_safe(self) -> bool {
        self.row().3
    }

    /// Where it is explained.
    ///
    /// ```
    /// # use onceward::server::Code;
    /// assert!(Code::KeyReused.doc_url().ends_with("/server/enum.Code.html#variant.KeyReused"));
    /// ```
    #[must_use]
    pub fn doc_url(self) -> String {
        format!("https://docs.rs/onceward/latest/onceward/server/enum.Code.html#variant.{self:?}")
    }

    /// As the draft of `Idempotency-Key` asks for it.
    fn link(self) -> HeaderValue {
        let link = format!("<{}>; rel=\"describedby\"; type=\"text/html\"", self.doc_url());
        HeaderValue::try_from(link).expect("it is visible ASCII")
    }
}

/// How refusals are written.
///
/// ```
/// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
/// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
/// let layer = Idempotency::builder(MemoryStore::not_durable(), scope).errors(Errors::Stripe);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Errors {
    /// As `application/problem+json`: RFC 9457.
    #[default]
    Problem,
    /// As Stripe does, for its SDKs: `{"error": {"type", "code", "message", "doc_url"}}` with
    /// `Stripe-Should-Retry`, and 400 for a key that was used for something else.
    Stripe,
}

/// A refusal, sent as `application/problem+json`, or as [`Errors`] says.
///
/// A service inside of the layer may have one in the extensions of its answer: if that answer is not
/// kept, the layer writes the refusal itself, as its route does, and names the operation.
///
/// ```
/// use onceward::server::{Code, Problem};
///
/// let response = Problem::new(Code::KeyMissing, "send an Idempotency-Key").into_response();
/// assert_eq!(response.status(), 400);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    retryable: bool,
    safe_new_key: bool,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    operation: Option<Digest>,
    // In boxes: few refusals have them, and every result has room for one.
    location: Option<Box<HeaderValue>>,
    challenge: Option<Box<HeaderValue>>,
    cause: Option<Box<str>>,
    errors: Errors,
    rejected: Option<RejectReason>,
}

impl Problem {
    /// What a 401 asks for if not said otherwise.
    pub(super) const CHALLENGE: &str = "Bearer";

    /// A refusal with the usual status of its code; `detail` tells a person what to do.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            status: code.status(),
            retryable: code.is_retryable(),
            safe_new_key: code.is_new_key_safe(),
            detail: detail.into(),
            retry_after: None,
            operation: None,
            location: None,
            challenge: None,
            cause: None,
            errors: Errors::default(),
            rejected: None,
        }
    }

    /// Why the request was refused.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// With another status than the usual one.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Says that the same request must not simply be sent again: it may have been carried out, and
    /// there is no key by which a repeat would be known.
    ///
    /// ```
    /// # use onceward::server::{Code, Problem};
    /// let text = "the ledger gave no answer; look before you send it again";
    /// let problem = Problem::new(Code::UpstreamFailed, text).not_retryable();
    /// # let _ = problem;
    /// ```
    #[must_use]
    pub fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self.safe_new_key = false;
        self
    }

    /// When it makes sense to ask again.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// How to sign in: `WWW-Authenticate` of a 401, which says `Bearer` without it.
    #[must_use]
    pub fn challenge(mut self, challenge: HeaderValue) -> Self {
        self.challenge = Some(Box::new(challenge));
        self
    }

    /// Written in this shape.
    #[must_use]
    pub fn errors(mut self, errors: Errors) -> Self {
        self.errors = errors;
        self
    }

    /// Says why nothing was run, in the extensions of its response.
    ///
    /// Code that counts refusals reads it there.
    ///
    /// ```
    /// use onceward::{server::{Code, Problem}, telemetry::RejectReason};
    ///
    /// let full = Problem::new(Code::Overloaded, "try again later").rejected(RejectReason::Limit);
    /// assert_eq!(full.into_response().extensions().get(), Some(&RejectReason::Limit));
    /// ```
    #[must_use]
    pub fn rejected(mut self, reason: RejectReason) -> Self {
        self.rejected = Some(reason);
        self
    }

    /// Why the outcome is unknown.
    pub(super) fn because(mut self, cause: Option<String>) -> Self {
        self.cause = cause.map(String::into_boxed_str);
        self
    }

    pub(super) fn location(mut self, location: Option<HeaderValue>) -> Self {
        self.location = location.map(Box::new);
        self
    }

    pub(super) fn of(mut self, operation: Digest) -> Self {
        self.operation = Some(operation);
        self
    }

    /// The HTTP answer.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let document = match self.errors {
            Errors::Problem => self.document(),
            Errors::Stripe => stripe::document(&self),
        };
        let mut response = respond::json(self.status, &document);
        let headers = response.headers_mut();
        if self.errors == Errors::Problem {
            let kind = HeaderValue::from_static("application/problem+json");
            headers.insert(header::CONTENT_TYPE, kind);
        } else {
            headers.insert(stripe::SHOULD_RETRY, stripe::should_retry(self.retryable));
        }
        if let Some(pause) = self.retry_after {
            headers.insert(header::RETRY_AFTER, respond::whole_seconds(pause));
        }
        if let Some(operation) = self.operation {
            respond::name_operation(headers, operation);
        }
        headers.insert(header::LINK, self.code.link());
        // 503: the outcome is known, and the store will give it in a moment.
        if self.code == Code::OutcomeUnknown && self.status != StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(OUTCOME, UNKNOWN);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = self.challenge.map(|challenge| *challenge);
            let challenge = challenge.unwrap_or(HeaderValue::from_static(Self::CHALLENGE));
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(location) = self.location {
            headers.insert(header::LOCATION, *location);
        }
        if let Some(reason) = self.rejected {
            response.extensions_mut().insert(reason);
        }
        response
    }

    fn document(&self) -> serde_json::Value {
        let name = self.code.as_str();
        let mut document = serde_json::json!({
            "type": format!("urn:onceward:problem:{name}"),
            "title": name.replace('-', " "),
            "status": self.status.as_u16(),
            "code": name,
            "detail": self.detail,
            "retryable": self.retryable,
            "safe_new_key": self.safe_new_key,
            "doc_url": self.code.doc_url(),
        });
        if let Some(operation) = self.operation {
            document["operation"] = operation.to_string().into();
        }
        if let Some(cause) = &self.cause {
            document["cause"] = (&**cause).into();
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::collections::HashSet;

    #[test]
    fn every_code_has_its_own_name() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[tokio::test]
    async fn a_problem_says_what_the_contract_asks_for() {
        let operation = Digest([7; 32]);
        let problem = Problem::new(Code::InProgress, "it \"runs\"").of(operation);
        let response = problem.retry_after(Duration::from_millis(1200)).into_response();
        assert_eq!(response.status(), 409);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["retry-after"], "2", "rounded up: never too early");
        let link =
            format!("<{}>; rel=\"describedby\"; type=\"text/html\"", Code::InProgress.doc_url());
        assert_eq!(headers["link"], link.as_str());
        assert_eq!(headers["onceward-operation"], operation.to_string().as_str());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = serde_json::json!({
            "type": "urn:onceward:problem:in-progress", "title": "in progress", "status": 409,
            "code": "in-progress", "detail": "it \"runs\"", "retryable": true,
            "safe_new_key": false, "operation": operation.to_string(),
            "doc_url": Code::InProgress.doc_url(),
        });
        assert_eq!(document, expected);
    }
}
