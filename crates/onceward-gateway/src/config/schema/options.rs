//! The table of options of a route, as they are written in `[[route]]` and `[defaults]`.

use std::time::Duration;

use http::{HeaderName, Method, Uri, uri::PathAndQuery};
use onceward::{
    Effect, Profile,
    retry::Priority,
    server::{Errors, Idempotency},
};

use super::{
    addresses,
    backoff::BackoffRule,
    delivery::{self, Delivery, Fallback, RetryRule},
    key,
    kinds::{
        as_is, as_text, choice, count, duration, duration_or_never, failures, flag, headers, list,
        parsed, share, size, status, text,
    },
    limits, scope, statuses,
    table::{options, settings},
};
use crate::{
    config::{
        Authorize, InFlightRule, KeyHeader, KeyRule, KeySource, Names, Pattern, Rebuild, ScopePart,
        SourceLocation,
        diagnostics::mistake::Mistakes,
        parse::reader::{Placed, Setting, Value},
        show_url,
    },
    redact::Pointer,
};

settings! {
    /// What says which requests a route is for: never in `[defaults]`.
    HeadOptions;
    "Which requests" {
        /// Methods (POST, PATCH, PUT, DELETE) and a path: {name} stands for one segment, {*rest} at the end
        /// for all that follow. The first route that matches wins; for a request that matches none see
        /// `unmatched`.
        matched as "match": String = text("\"POST /v1/charges\""), required "\"POST,PATCH /{*rest}\"";
        /// The gateway tells operations apart by name; by default it is method and path, as
        /// "POST /v1/charges/{id}". Two routes with one name share their keys.
        name: String = text("\"charge.create\""), example "\"charge.create\"";
        /// The names of operations and of the parts of a scope are part of what identifies a key. A parameter
        /// may be renamed; if anything else of them changes while there are records of before, the gateway
        /// does not start, because completed keys would run again. true: it starts nevertheless; remove it
        /// after that start.
        accept_identity_change: bool = flag(), default false;
    }
}

options! {
    /// What a route or `[defaults]` says.
    settings RouteOptions;

    /// One `[[route]]`, with what it leaves out taken from `[defaults]` and the built-in defaults.
    becomes Route with FittedRoute {
        methods: Vec<Method>,
        /// `/v1/charges/{id}`, as written.
        pattern: Pattern,
        name: Option<String>,
        key: KeyRule,
        key_source: KeySource,
        scope: Vec<ScopePart>,
        authorize: Authorize,
        effect: Effect,
        profile: Option<Profile>,
        lease: Duration,
        max_run: Duration,
        retain: Duration,
        errors: Errors,
        mismatch: u16,
        /// How its requests are sent on.
        delivery: Delivery,
        /// Whether it may keep its records under other names than before, so that completed keys run again.
        accepts_identity_change: bool,
        /// For each method the names of its records: as it says itself, or as its store knows them.
        names: Vec<Names>,
    }

    fitted {
        "Whose keys they are" {
            /// To whom a key belongs. There is no default: a guess would show one caller's answers to another.
            ///   "jwt:<claim>"      a text of a verified token, as "jwt:sub"; for a whole number "jwt-number:<claim>"
            ///   "cert:subject"     issuer and subject of the client's certificate
            ///   "header:<name>"    a header that a trusted proxy sets
            ///   "secret:<header>"  a credential that never changes, as an API key; the store has only its digest
            ///   "cookie:<name>"    a cookie that keeps its value for as long as clients retry; only its digest too
            ///   "global"           all callers share their keys
            /// and, in addition, "path:<name>" and "json:<pointer>".
            scope: Vec<Placed<ScopePart>> =
                list("[\"secret:x-api-key\"]", scope::part, as_text),
                 required "[\"secret:x-api-key\"]";
            /// Who checks that a caller may see a stored answer again. There is no default: "jwt", "mtls", a URL
            /// that the gateway asks with the caller's headers (2xx allows), or "none": each caller with the scope
            /// and the key may see it.
            authorize: Authorize = parsed("\"none\"", scope::authorize, ToString::to_string), required "\"none\"";
            /// required: the gateway refuses a request without a key. optional: it passes, unprotected. off: keys mean
            /// nothing.
            key: KeyRule = choice(&KeyRule::WORDS), default KeyRule::Optional;
            /// In which headers clients send their keys: the first of them that a request has counts. As
            /// ["Idempotency-Key", "X-Idempotency-Key", "PayPal-Request-Id"]. The service always gets the key as
            /// Idempotency-Key, too.
            key_header: KeyHeader =
                list("[\"Idempotency-Key\"]", key::header, |header| header.shown.as_str().into()), list "[\"Idempotency-Key\"]";
            /// Instead, for webhooks: the id of an event is its key, in a header ("header:X-GitHub-Delivery") or in
            /// a JSON body, where it is a text or a whole number.
            key_from: KeySource =
                parsed("\"json:/id\"", key::source, |source| source.key_from().unwrap_or_default()), example "\"json:/id\"";
        }
        "What the gateway promises" {
            /// external: never run twice; if the gateway does not know what happened, it says so to the client.
            /// repeatable: the service honours the key that it gets, so the gateway may repeat a run for as long as
            /// the service remembers it. transactional, with a store in PostgreSQL: the service ends the operation in
            /// its own transaction, by onceward.complete; then no outcome is ever unknown.
            effect: EffectWord = choice(&EffectWord::WORDS), default EffectWord::External;
            /// Only with repeatable, and then needed: a little shorter than the service remembers a key.
            rerun_within: Duration = duration(&limits::RERUN_WITHIN), example "\"23h\"";
            /// What a server error or no answer means. standard: an error of the service itself is final, a 502, a
            /// 504 or no answer leaves the outcome unknown, and a 503 gives the key free: the gateway trusts the
            /// service to send it only when it did not handle the request. strict: the same without that trust,
            /// where a proxy may send a 503 after the service has begun. stripe: every complete answer is final, but
            /// a 400 gives the key free. rerun: run again, only with repeatable, whose default it is.
            profile: Profile = choice(&PROFILES), default Profile::Standard;
        }
        "Refusals" {
            /// How the gateway writes refusals. problem: application/problem+json. stripe: as Stripe's SDKs read them,
            /// with Stripe-Should-Retry; the default with profile = "stripe". It changes nothing of what binds a key.
            errors: Errors = choice(&ERRORS), default Errors::Problem;
            /// The status for a key that was used for something else. With errors = "stripe" 400 by default.
            mismatch: u16 = status(&[422, 409, 400]), default limits::mismatch(Errors::Problem);
        }
        "Times" {
            /// How long a claim lives if the gateway dies; while the gateway lives, it renews the claim. 60s by
            /// default with effect transactional.
            lease: Duration = duration(&limits::LEASE), default limits::DEFAULT_LEASE;
            /// How long one run may take before the gateway renews its claim no longer; at least the lease.
            max_run: Duration = duration(&limits::MAX_RUN), default limits::DEFAULT_MAX_RUN;
            /// How long a retry gets the same answer. A retry after that runs again.
            retain: Duration = duration(&limits::RETAIN), default limits::DEFAULT_RETAIN;
        }
    }

    plain {
        "Retries and time-outs" {
            /// The longest time in which a client or a queue may still retry: the gateway refuses a shorter `retain`.
            retry_window: Duration = duration(&limits::RETRY_WINDOW), example "\"1h\"";
            /// How long the store remembers an unknown outcome: "never" means that it never forgets it.
            unknown_retain: Option<Duration> = duration_or_never(&limits::UNKNOWN_RETAIN), default None;
            /// How long the service may take to answer.
            timeout: Duration = duration(&limits::TIMEOUT), default limits::DEFAULT_TIMEOUT;
            /// run: a key whose answer is forgotten runs again. refuse: not if it is a `UUIDv7` older than
            /// `retain`.
            refuse_stale_keys as "stale_keys": bool = choice(&[("run", false), ("refuse", true)]), default false;
        }
        "What duplicates get" {
            /// What a duplicate gets while the first is running. wait: the answer, if it comes within `wait`, then
            /// 409. conflict: 409 at once. accepted: 202 and a status URL, while the first gets its answer. async:
            /// 202 and a status URL, also for the first.
            in_flight: InFlightRule = choice(&InFlightRule::WORDS), default InFlightRule::Wait;
            /// How long a duplicate waits with `in_flight = "wait"`.
            wait: Duration = duration(&limits::WAIT), default limits::DEFAULT_WAIT;
        }
        "What single statuses mean" {
            /// replay: a 500 is final and replayed. hold: its outcome is unknown. Only with standard and strict.
            hold_500 as "on_500": bool = choice(&[("replay", false), ("hold", true)]), default false;
            /// Other server errors that the service sends only before it does anything: they give the key free. As
            /// [529].
            not_applied: u16 = list("[503]", statuses::not_applied, as_is), list "[]";
            /// Client errors that the service sends only when it did nothing: they give the key free, so that a retry
            /// runs, as 401, 403, 408, 412, 423, 425 and 429 do anyway. As [409].
            released: u16 = list("[409]", statuses::released, as_is), list "[]";
            /// Errors whose answer is kept and replayed, whatever the profile says. As [429], where it means that a
            /// quota is used up.
            finals as "final": u16 = list("[429]", statuses::last, as_is), list "[]";
        }
        "What is read and kept" {
            /// The largest request with a key.
            max_request: usize = size(&limits::BODY), default limits::DEFAULT_MAX_REQUEST;
            /// The largest answer that the gateway keeps.
            max_response: usize = size(&limits::BODY), default limits::DEFAULT_MAX_RESPONSE;
            /// Headers that are part of what a request means, as ["x-currency"].
            fingerprint_headers: HeaderName = headers(), list "[]";
            /// Headers of an answer that are replayed though they usually are not, as ["set-cookie"].
            keep_headers: HeaderName = headers(), list "[]";
            /// Headers of an answer that are not replayed.
            drop_headers: HeaderName = headers(), list "[]";
            /// full: answers are kept and replayed. status: only the status and `Location` are kept, and a retry
            /// gets 409 `result-unavailable`; it never runs again.
            status_only as "keep": bool = choice(&[("full", false), ("status", true)]), default false;
            /// Header lines that the gateway hides in an answer before it stores it, as ["x-secret"]. The first client
            /// gets the whole answer; a replay has "[redacted]" there and says `Onceward-Redacted: true`.
            redact_headers: HeaderName = headers(), list "[]";
            /// Values in JSON that the gateway hides likewise, as ["/card/number", "/items/*/cvv"]. A body that is not
            /// JSON is not kept then.
            redact_json: Pointer = list("[\"/card/number\"]", pointer, as_text), list "[]";
            /// Makes the answer again for which the service sent `Onceward-Resource: payment/7` instead of
            /// keeping it.
            rebuild: Rebuild =
                parsed("\"GET /v1/payments/{id}\"", rebuild, |rebuild| format!("GET {}", rebuild.template)), example "\"GET /v1/payments/{id}\"";
        }
        "When something is wrong" {
            /// Asked what became of an unknown outcome, with a POST.
            reconcile: Uri =
                parsed("\"http://127.0.0.1:3000/did-it-happen\"", |text, place, mistakes| addresses::url("reconcile", text, place, mistakes), show_url), example "\"http://127.0.0.1:3000/did-it-happen\"";
            /// refuse: 503 while the store is down. pass: requests run unprotected, and their answers say so.
            pass_when_store_is_down as "on_store_down": bool = choice(&[("refuse", false), ("pass", true)]), default false;
            /// How many operations of one scope may run at once; one more that is new gets 429 `too-many-open`.
            max_open: usize = count(&limits::MAX_OPEN), default Idempotency::MAX_OPEN;
            /// For how many late answers, which come after `timeout`, the process may listen when this route begins to
            /// listen for one. A quarter of `max_answers` is the most, whatever is said here. 0: the route listens for none.
            max_late: usize = count(&limits::MAX_LATE), default Idempotency::MAX_LATE;
        }
    }

    fitted {
        "How requests are sent to the service, also in routes of GET and HEAD (with key = \"off\")" {
            /// What may be repeated: GET, HEAD, PUT and DELETE without a key; with a key whatever certainly never
            /// reached the service or was refused by it (`not_applied`), and with effect repeatable everything.
            /// Successes pay for retries, so that a service which is down gets hardly more than usual. off: one
            /// attempt. standard: 3. patient: 8. All of them within `timeout`.
            retry: RetryRule = choice(&RetryRule::WORDS), default RetryRule::Off;
            /// With `retry`: another number of attempts.
            attempts: usize = count(&limits::ATTEMPTS), example "4";
            /// With `retry`: how long one attempt may take, where it may be repeated: half of `timeout` if not said,
            /// so that there is time for another.
            attempt_timeout: Duration = duration(&limits::TIMEOUT), example "\"2s\"";
            /// With `retry`: how long to wait between attempts. full, equal, decorrelated or additive jitter, with
            /// base and cap as in "equal:100ms..10s"; "fixed:500ms"; "ranges:100ms..200ms,1s..2s"; or "none". "full"
            /// if not said.
            backoff: BackoffRule = parsed("\"equal\"", delivery::backoff, ToString::to_string), example "\"equal:100ms..10s\"";
            /// With `retry`: statuses of the service after which the gateway asks it again, where that is safe, unlike
            /// usual. Usual are 500, 502, 503 and 504, and 423 and other 5xx with Retry-After.
            retry_status: Vec<Placed<u16>> = failures("[423, 507]"), example "[404, 507]";
            /// With `retry`: statuses of the service after which the gateway does not ask it again, unlike usual.
            no_retry_status: Vec<Placed<u16>> = failures("[500]"), example "[500]";
            /// Leaves a service alone that does nothing but fail: 503 `overloaded` at once instead of another wait.
            breaker: bool = flag(), default Delivery::default().breaker;
            /// Sends a second GET or HEAD when the first is later than 95 of 100 others; the first answer counts.
            hedge: bool = flag(), default Delivery::default().hedge;
            /// lowest, low, normal or highest, or 0 to 3: who gives way first when there is too much. A client may
            /// ask for less with `Onceward-Priority`, and for more only through a trusted proxy.
            priority: Priority = delivery::priority(), default Priority::NORMAL;
            /// How many requests of this route may be at the service at once: it then has places, a breaker and a
            /// retry budget of its own. All routes that do not say it share 1024 places.
            limit: usize = count(&limits::LIMIT), example "64";
            /// Of all that would run, at most this part may be retries of clients, once there are 50 requests in 10
            /// seconds; others get 429 `retry-budget-exhausted`. Replays are never refused so.
            retry_share: f64 = share(), default limits::DEFAULT_RETRY_SHARE;
            /// Only in routes of GET and HEAD: what a client gets when there is no good answer, marked with
            /// `Onceward-Fallback: true`.
            fallback: Fallback = delivery::fallback(),
                example "{ status = 200, body = \"[]\", content_type = \"application/json\" }";
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectWord {
    External,
    Transactional,
    Repeatable,
}

const PROFILES: [(&str, Profile); 4] = [
    ("standard", Profile::Standard),
    ("strict", Profile::Strict),
    ("stripe", Profile::Stripe),
    ("rerun", Profile::Rerun),
];

const ERRORS: [(&str, Errors); 2] = [("problem", Errors::Problem), ("stripe", Errors::Stripe)];

impl RouteOptions {
    pub(crate) fn is_transactional(&self) -> bool {
        self.effect.given().is_some_and(|effect| effect.value == EffectWord::Transactional)
    }

    /// Those of `[defaults]` that say what an answer means are for the other routes: a commit leaves no doubt.
    pub(crate) fn without_meanings(mut self) -> Self {
        self.hold_500 = Setting::Missing;
        for statuses in [&mut self.not_applied, &mut self.released, &mut self.finals] {
            *statuses = Setting::Missing;
        }
        self
    }
}

fn pointer(value: &Value, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Pointer> {
    let pointer = match value {
        Value::Text(text) => Pointer::parse(text),
        _ => None,
    };
    if pointer.is_none() {
        let message = "`redact_json` has an item that is no JSON pointer to a part of a document";
        let help = "write \"/card/number\", with * for every element or member, as \
                    \"/items/*/cvv\"; ~0 stands for ~ and ~1 for /";
        mistakes.error(place, message, help);
    }
    pointer
}

fn rebuild(text: &str, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Rebuild> {
    const EXAMPLE: &str = "write \"GET /v1/payments/{id}\"";
    let mut refuse = |message: &str| {
        mistakes.error(place, message, EXAMPLE);
        None
    };
    let Some((method, template)) = text.split_once(' ') else {
        return refuse("`rebuild` is not a method and a path");
    };
    if method != "GET" {
        return refuse("`rebuild` only reads: its method is GET");
    }
    let mut around = template.split("{id}");
    let (before, after) = (around.next().unwrap_or_default(), around.next());
    let has_one = after.is_some() && around.next().is_none();
    if !has_one
        || before.contains(['{', '}'])
        || after.is_some_and(|text| text.contains(['{', '}']))
    {
        return refuse("`rebuild` has one `{id}` in its path, and no other braces");
    }
    let example = template.replace("{id}", "7");
    if !template.starts_with('/') || example.parse::<PathAndQuery>().is_err() {
        return refuse("`rebuild` has something that is not a path behind its method");
    }
    Some(Rebuild { template: template.to_owned() })
}
