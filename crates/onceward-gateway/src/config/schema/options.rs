//! The options of a route, as they are written in `[[route]]` and `[defaults]`.

use std::time::Duration;

use http::{HeaderName, Uri, uri::PathAndQuery};
use onceward::server::Errors;

use super::{addresses, delivery::DeliveryOptions, key, limits, scope, statuses};
use crate::{
    config::{
        Authorize, InFlightRule, KeyHeader, KeyRule, KeySource, Rebuild, RouteProfile, ScopePart,
        SourceLocation,
        diagnostics::mistake::Mistakes,
        parse::reader::{Placed, Reader, Setting, Value},
    },
    redact::Pointer,
};

/// What a route or `[defaults]` says. Sizes are in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteOptions {
    pub(crate) key: Setting<KeyRule>,
    pub(crate) key_header: Setting<Vec<Placed<KeyHeader>>>,
    pub(crate) key_from: Setting<KeySource>,
    pub(crate) scope: Setting<Vec<Placed<ScopePart>>>,
    pub(crate) authorize: Setting<Authorize>,
    pub(crate) effect: Setting<EffectWord>,
    pub(crate) rerun_within: Setting<Duration>,
    pub(crate) profile: Setting<RouteProfile>,
    pub(crate) hold_500: Setting<bool>,
    pub(crate) not_applied: Setting<Vec<Placed<u16>>>,
    pub(crate) released: Setting<Vec<Placed<u16>>>,
    pub(crate) finals: Setting<Vec<Placed<u16>>>,
    pub(crate) timeout: Setting<Duration>,
    pub(crate) in_flight: Setting<InFlightRule>,
    pub(crate) wait: Setting<Duration>,
    pub(crate) lease: Setting<Duration>,
    pub(crate) max_run: Setting<Duration>,
    pub(crate) retain: Setting<Duration>,
    pub(crate) retry_window: Setting<Duration>,
    /// `None`: never forgotten.
    pub(crate) unknown_retain: Setting<Option<Duration>>,
    pub(crate) max_request: Setting<u64>,
    pub(crate) max_response: Setting<u64>,
    pub(crate) errors: Setting<Errors>,
    pub(crate) mismatch: Setting<u16>,
    pub(crate) refuse_stale_keys: Setting<bool>,
    pub(crate) fingerprint_headers: Setting<Vec<Placed<HeaderName>>>,
    pub(crate) keep_headers: Setting<Vec<Placed<HeaderName>>>,
    pub(crate) drop_headers: Setting<Vec<Placed<HeaderName>>>,
    pub(crate) reconcile: Setting<Uri>,
    pub(crate) rebuild: Setting<Rebuild>,
    pub(crate) pass_when_store_is_down: Setting<bool>,
    pub(crate) status_only: Setting<bool>,
    pub(crate) redact_headers: Setting<Vec<Placed<HeaderName>>>,
    pub(crate) redact_json: Setting<Vec<Placed<Pointer>>>,
    pub(crate) max_open: Setting<usize>,
    pub(crate) delivery: DeliveryOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectWord {
    External,
    Transactional,
    Repeatable,
}

impl RouteOptions {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            key: reader.choice(
                "key",
                &[
                    ("required", KeyRule::Required),
                    ("optional", KeyRule::Optional),
                    ("off", KeyRule::Off),
                ],
            ),
            key_header: key::headers(reader),
            key_from: key::from(reader),
            scope: reader.list("scope", "[\"secret:x-api-key\"]", scope::part),
            authorize: reader
                .text("authorize", "\"none\"")
                .then(|text, place| scope::authorize(text, place, reader.mistakes)),
            effect: reader.choice(
                "effect",
                &[
                    ("external", EffectWord::External),
                    ("transactional", EffectWord::Transactional),
                    ("repeatable", EffectWord::Repeatable),
                ],
            ),
            rerun_within: reader.duration("rerun_within", &limits::RERUN_WITHIN),
            profile: reader.choice(
                "profile",
                &[
                    ("standard", RouteProfile::Standard),
                    ("strict", RouteProfile::Strict),
                    ("stripe", RouteProfile::Stripe),
                    ("rerun", RouteProfile::Rerun),
                ],
            ),
            hold_500: reader.choice("on_500", &[("replay", false), ("hold", true)]),
            not_applied: reader.list("not_applied", "[503]", statuses::not_applied),
            released: reader.list("released", "[409]", statuses::released),
            finals: reader.list("final", "[429]", statuses::last),
            timeout: reader.duration("timeout", &limits::TIMEOUT),
            in_flight: reader.choice(
                "in_flight",
                &[
                    ("wait", InFlightRule::Wait),
                    ("conflict", InFlightRule::Conflict),
                    ("accepted", InFlightRule::Accepted),
                    ("async", InFlightRule::Async),
                ],
            ),
            wait: reader.duration("wait", &limits::WAIT),
            lease: reader.duration("lease", &limits::LEASE),
            max_run: reader.duration("max_run", &limits::MAX_RUN),
            retain: reader.duration("retain", &limits::RETAIN),
            retry_window: reader.duration("retry_window", &limits::RETRY_WINDOW),
            unknown_retain: unknown_retain(reader),
            max_request: reader.size("max_request", &limits::BODY),
            max_response: reader.size("max_response", &limits::BODY),
            errors: reader
                .choice("errors", &[("problem", Errors::Problem), ("stripe", Errors::Stripe)]),
            mismatch: reader.status("mismatch", &[422, 409, 400]),
            refuse_stale_keys: reader.choice("stale_keys", &[("run", false), ("refuse", true)]),
            fingerprint_headers: headers(reader, "fingerprint_headers"),
            keep_headers: headers(reader, "keep_headers"),
            drop_headers: headers(reader, "drop_headers"),
            reconcile: reader
                .text("reconcile", "\"http://127.0.0.1:3000/did-it-happen\"")
                .then(|text, place| addresses::url("reconcile", text, place, reader.mistakes)),
            rebuild: reader
                .text("rebuild", "\"GET /v1/payments/{id}\"")
                .then(|text, place| rebuild(text, place, reader.mistakes)),
            pass_when_store_is_down: reader
                .choice("on_store_down", &[("refuse", false), ("pass", true)]),
            status_only: reader.choice("keep", &[("full", false), ("status", true)]),
            redact_headers: headers(reader, "redact_headers"),
            redact_json: reader.list("redact_json", "[\"/card/number\"]", pointer),
            max_open: reader.count("max_open", &limits::MAX_OPEN),
            delivery: DeliveryOptions::read(reader),
        }
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.effect.given().is_some_and(|effect| effect.value == EffectWord::Transactional)
    }

    /// What counts: this, then the defaults.
    pub(crate) fn or(&self, defaults: &Self) -> Self {
        macro_rules! first_said {
            ($($option:ident)*) => { Self { $($option: self.$option.or(&defaults.$option)),* } };
        }
        first_said! {
            key key_header key_from scope authorize effect rerun_within profile hold_500 not_applied
            released finals timeout in_flight wait lease max_run retain retry_window unknown_retain max_request max_response errors
            mismatch refuse_stale_keys fingerprint_headers keep_headers drop_headers reconcile rebuild
            pass_when_store_is_down status_only redact_headers redact_json max_open delivery
        }
    }
}

fn unknown_retain(reader: &mut Reader<'_>) -> Setting<Option<Duration>> {
    const OPTION: &str = "unknown_retain";
    match reader.text(OPTION, "\"never\"") {
        Setting::Missing => Setting::Missing,
        Setting::Wrong => Setting::Wrong,
        Setting::Given(Placed { value, place }) if value == "never" => {
            Setting::Given(Placed { value: None, place })
        }
        Setting::Given(text) => reader
            .parsed_duration(OPTION, text, &limits::UNKNOWN_RETAIN)
            .then(|duration, _| Some(Some(*duration))),
    }
}

fn headers(reader: &mut Reader<'_>, option: &'static str) -> Setting<Vec<Placed<HeaderName>>> {
    reader.list(option, "[\"x-currency\"]", |value, place, mistakes| {
        let name = match value {
            Value::Text(text) => HeaderName::try_from(text).ok(),
            _ => None,
        };
        if name.is_none() {
            let message = format!("`{option}` has an item that is no header name");
            mistakes.error(place, message, "write names like \"x-currency\"");
        }
        name
    })
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
