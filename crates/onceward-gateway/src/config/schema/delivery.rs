//! How the requests of a route are sent on: retries, breaker, hedges, priority, limit and fallback.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use onceward::retry::{Hedge, Priority, Rules, RulesError};

use super::{
    backoff::{self, BackoffRule},
    kinds::Kind,
    limits,
    options::RouteOptions,
};
use crate::config::{
    diagnostics::{
        fit::Head,
        mistake::{Mistakes, SourceLocation, listed, nearest},
    },
    parse::{
        reader::{Placed, Reader, Section, Setting, Value},
        units::show_duration,
    },
};

/// The words for priorities, by their number.
const PRIORITIES: [(&str, Priority); 4] = [
    ("lowest", Priority::LOWEST),
    ("low", Priority::LOW),
    ("normal", Priority::NORMAL),
    ("highest", Priority::HIGHEST),
];

/// How requests are sent on, as checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    pub(crate) retry: RetryRule,
    /// How many attempts there are in all.
    pub(crate) attempts: u32,
    /// How long one attempt may take; `None`: nothing was said, see [`Self::attempt_timeout`].
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) backoff: BackoffRule,
    /// Statuses of the upstream after which it is asked again, or not, unlike usual.
    pub(crate) retry_status: Vec<u16>,
    pub(crate) no_retry_status: Vec<u16>,
    pub(crate) breaker: bool,
    pub(crate) hedge: bool,
    pub(crate) priority: Priority,
    /// `None`: it shares the upstream's with all others.
    pub(crate) limit: Option<u32>,
    pub(crate) retry_share: f64,
    pub(crate) fallback: Option<Fallback>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    Off,
    Standard,
    Patient,
}

/// What is said instead when there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fallback {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    pub(crate) content_type: HeaderValue,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            retry: RetryRule::Off,
            attempts: RetryRule::Off.attempts(),
            attempt_timeout: None,
            backoff: BackoffRule::default(),
            retry_status: Vec::new(),
            no_retry_status: Vec::new(),
            breaker: true,
            hedge: false,
            priority: Priority::NORMAL,
            limit: None,
            retry_share: limits::DEFAULT_RETRY_SHARE,
            fallback: None,
        }
    }
}

impl Delivery {
    /// The numbers for a call that may take so long in all.
    pub(crate) fn rules(&self, timeout: Duration) -> Result<Rules, RulesError> {
        let (named, cap) = match self.retry {
            RetryRule::Off | RetryRule::Standard => (Rules::standard(), backoff::CAP),
            RetryRule::Patient => (Rules::patient(), backoff::PATIENT_CAP),
        };
        let builder = named.to_builder();
        let builder = if self.hedge { builder.hedge(Hedge::standard()) } else { builder };
        builder
            .attempts(self.attempts)
            .deadline(timeout)
            .attempt_timeout(self.attempt_timeout(timeout))
            .backoff(self.backoff.backoff(cap))
            .retry_status(self.retry_status.iter().copied())
            .no_retry_status(self.no_retry_status.iter().copied())
            .build()
    }

    /// How long one attempt may take where it may be repeated, if all of them have so long: half of it,
    /// so that there is time for another.
    pub(crate) fn attempt_timeout(&self, timeout: Duration) -> Duration {
        let usual = if self.attempts > 1 { timeout / 2 } else { timeout };
        self.attempt_timeout.unwrap_or(usual)
    }
}

pub(crate) fn priority_text(priority: Priority) -> &'static str {
    PRIORITIES[usize::from(priority.number())].0
}

pub(crate) fn fallback_document(fallback: &Fallback) -> serde_json::Value {
    serde_json::json!({
        "status": fallback.status.as_u16(),
        "body": String::from_utf8_lossy(&fallback.body),
        "content_type": fallback.content_type.to_str().unwrap_or_default(),
    })
}

impl RetryRule {
    fn attempts(self) -> u32 {
        match self {
            Self::Off => 1,
            Self::Standard => Rules::standard().attempts(),
            Self::Patient => Rules::patient().attempts(),
        }
    }
}

pub(crate) fn backoff(
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<BackoffRule> {
    let wrong = |help: &String| {
        let message = format!("`backoff` is no kind of back-off: \"{text}\"");
        mistakes.error(place, message, help.as_str());
    };
    text.parse().inspect_err(wrong).ok()
}

pub(crate) fn priority() -> Kind<Priority> {
    let values = "`\"lowest\"`, `\"low\"`, `\"normal\"`, `\"highest\"`, or 0 to 3";
    let show = |priority: &_| priority_text(*priority).into();
    Kind::new(values, |reader, _| read_priority(reader), show)
}

/// A word, or its number as in `Onceward-Priority`.
fn read_priority(reader: &mut Reader<'_>) -> Setting<Priority> {
    let Some(found) = reader.take("priority") else { return Setting::Missing };
    let words = PRIORITIES.map(|(word, _)| word);
    let number = match &found.value {
        Value::Text(text) => words.iter().position(|word| word == text),
        Value::Integer(number) => number.and_then(|number| usize::try_from(number).ok()),
        _ => None,
    };
    if let Some((_, priority)) = number.and_then(|number| PRIORITIES.get(number)) {
        return Setting::Given(Placed { value: *priority, place: found.place });
    }
    let message = format!("`priority` must be one of {}, or 0 to 3", listed(&words));
    let near = match &found.value {
        Value::Text(text) => nearest(text, words),
        _ => None,
    };
    let help = match near {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "write priority = \"low\" for what gives way first when there is too much".into(),
    };
    reader.mistakes.error(&found.place, message, help);
    Setting::Wrong
}

const FALLBACK: &str =
    "write fallback = { status = 200, body = \"[]\", content_type = \"application/json\" }";

pub(crate) fn fallback() -> Kind<Fallback> {
    let values = "a table with `status`, `body` and `content_type`";
    Kind::new(values, |reader, _| read_whole_fallback(reader), fallback_document)
}

fn read_whole_fallback(reader: &mut Reader<'_>) -> Setting<Fallback> {
    match reader.take("fallback") {
        None => Setting::Missing,
        Some(Placed { value: Value::Table(section), place }) => {
            match read_fallback(section, reader.mistakes) {
                Some(value) => Setting::Given(Placed { value, place }),
                None => Setting::Wrong,
            }
        }
        Some(found) => reader.wrong_type("fallback", &found, "a table", FALLBACK),
    }
}

fn read_fallback(section: Section, mistakes: &mut Mistakes) -> Option<Fallback> {
    let mut reader = Reader::new(section, mistakes);
    let status = match reader.take("status") {
        None => Some(StatusCode::OK),
        Some(Placed { value: Value::Integer(Some(number @ 200..=599)), .. }) => {
            u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok())
        }
        Some(found) => {
            let message = "`status` of a fallback is no status from 200 to 599";
            reader.mistakes.error(&found.place, message, FALLBACK);
            None
        }
    };
    let body = reader.text("body", "\"[]\"");
    let content_type = reader.text("content_type", "\"application/json\"").then(|text, place| {
        let line = HeaderValue::from_str(text).ok().filter(|_| text.contains('/'));
        if line.is_none() {
            reader.mistakes.error(place, "`content_type` is not a media type", FALLBACK);
        }
        line
    });
    reader.finish();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    Some(Fallback {
        status: status?,
        body: body.value_or(String::new())?.into(),
        content_type: content_type.value_or(plain)?,
    })
}

/// What counts for a route; says what does not fit.
pub(crate) fn fit(
    head: &Head,
    own: &RouteOptions,
    options: &RouteOptions,
    mistakes: &mut Mistakes,
) -> Option<Delivery> {
    let methods = head.matched.as_ref().map_or(&[][..], |(methods, _)| methods.as_slice());
    let is_safe = methods.iter().all(|method| [Method::GET, Method::HEAD].contains(method));
    if !is_safe {
        check_unsafe(own, mistakes);
    }
    let usual = Delivery::default();
    let retry = options.retry.value_or(usual.retry)?;
    check_attempts(retry, own, options, mistakes);
    let attempts = match options.attempts.given() {
        Some(given) if retry != RetryRule::Off => u32::try_from(given.value).ok()?,
        _ => retry.attempts(),
    };
    let limit = options.limit.optional()?.map(u32::try_from).transpose().ok()?;
    let attempt_timeout = options.attempt_timeout.optional()?.filter(|_| retry != RetryRule::Off);
    let timeout = options.timeout.value_or(limits::DEFAULT_TIMEOUT)?;
    let delivery = Delivery {
        retry,
        attempts,
        // One of [defaults] may be longer than this route's time.
        attempt_timeout: attempt_timeout.map(|one| one.min(timeout)),
        backoff: options.backoff.value_or(usual.backoff)?,
        retry_status: options.retry_status.values()?,
        no_retry_status: options.no_retry_status.values()?,
        breaker: options.breaker.value_or(usual.breaker)?,
        hedge: options.hedge.value_or(usual.hedge)? && is_safe,
        priority: options.priority.value_or(usual.priority)?,
        limit,
        retry_share: options.retry_share.value_or(usual.retry_share)?,
        fallback: options.fallback.optional()?.filter(|_| is_safe),
    };
    match delivery.rules(timeout) {
        Ok(_) => Some(delivery),
        Err(error) => {
            mistakes.error(&head.place, error.to_string(), HELP);
            None
        }
    }
}

const HELP: &str =
    "change `attempt_timeout`, `timeout`, `backoff`, `retry_status` or `no_retry_status`";

/// Those of [defaults] are for the routes that change nothing.
fn check_unsafe(own: &RouteOptions, mistakes: &mut Mistakes) {
    if let Some(hedge) = own.hedge.given().filter(|hedge| hedge.value) {
        let message = "`hedge` sends a request a second time while the first is running: only for \
                       methods that change nothing";
        let help = "give GET and HEAD a route of their own, with key = \"off\"; or remove it";
        mistakes.error(&hedge.place, message, help);
    }
    if let Some(fallback) = own.fallback.given() {
        let message = "`fallback` would say that something was done which was not: only for methods \
                       that change nothing";
        let help = "give GET and HEAD a route of their own, with key = \"off\"; or remove it";
        mistakes.error(&fallback.place, message, help);
    }
}

fn check_attempts(
    retry: RetryRule,
    own: &RouteOptions,
    options: &RouteOptions,
    mistakes: &mut Mistakes,
) {
    if retry == RetryRule::Off {
        for (option, place) in [
            ("attempts", own.attempts.given().map(|given| &given.place)),
            ("attempt_timeout", own.attempt_timeout.given().map(|given| &given.place)),
            ("backoff", own.backoff.given().map(|given| &given.place)),
            ("retry_status", own.retry_status.given().map(|given| &given.place)),
            ("no_retry_status", own.no_retry_status.given().map(|given| &given.place)),
        ] {
            if let Some(place) = place {
                let message = format!("`{option}` means nothing without `retry`");
                mistakes.error(place, message, "write retry = \"standard\" as well, or remove it");
            }
        }
        return;
    }
    let timeout = options.timeout.value_or(limits::DEFAULT_TIMEOUT);
    if let (Some(one), Some(all)) = (own.attempt_timeout.given(), timeout)
        && one.value > all
    {
        let message = format!(
            "`attempt_timeout` is {}, longer than `timeout` of {}: one attempt cannot take longer \
             than all of them",
            show_duration(one.value),
            show_duration(all)
        );
        mistakes.error(&one.place, message, "lower it, or raise `timeout`");
    }
}
