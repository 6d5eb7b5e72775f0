//! Whether the options of one route fit together: everything that the library would refuse, and
//! what only the gateway knows.

use std::time::Duration;

use http::Method;
use onceward::{Effect, Profile, server::Errors};

use super::{mistake::Mistakes, names::Names};
use crate::config::{
    Authorize, InFlightRule, KeyRule, Pattern, Route, ScopePart, SourceLocation,
    parse::{
        reader::{Placed, Setting},
        units::show_duration,
    },
    schema::{
        delivery, key, limits,
        options::{EffectWord, FittedRoute, RouteOptions},
        scope::{self, Offered},
        statuses, transactional,
    },
};

/// What `match` and `name` say; each is `None` if it was wrong.
pub(crate) struct Head {
    pub(crate) place: SourceLocation,
    pub(crate) matched: Option<(Vec<Method>, Pattern)>,
    pub(crate) name: Option<Option<String>>,
    pub(crate) accepts_identity_change: Option<bool>,
}

/// Checks a route, with the defaults already in it; `None` if something about it is wrong.
pub(crate) fn route(
    head: Head,
    own: &RouteOptions,
    options: &RouteOptions,
    offered: Offered,
    mistakes: &mut Mistakes,
) -> Option<Route> {
    let place = &head.place;
    let identity = identity(&head, options, offered, mistakes);
    let times = times(options, place, mistakes);
    let effect = effect(own, options, times.as_ref(), place, mistakes);
    let is_transactional = options.is_transactional();
    match is_transactional {
        true => transactional::check(own, options, offered.commits, mistakes),
        false => statuses::check(options, mistakes),
    }
    let key_source = key::fit(own, options, mistakes);
    check_keep(options, mistakes);
    let delivery = delivery::fit(&head, own, options, mistakes);
    warn(own, options, times.as_ref(), mistakes);
    let (methods, pattern) = head.matched?;
    let (name, (key, scope, authorize)) = (head.name?, identity?);
    let (times, (effect, profile)) = (times?, effect?);
    let kept_as =
        methods.iter().map(|method| Names::of(method, &pattern, name.as_ref(), &scope)).collect();
    let errors = options.errors.value_or(usual_errors(profile))?;
    let fitted = FittedRoute {
        methods,
        pattern,
        name,
        key,
        key_source: key_source?,
        scope,
        authorize,
        effect,
        profile,
        lease: times.lease.value,
        max_run: times.max_run.value,
        retain: times.retain.value,
        errors,
        mismatch: options.mismatch.value_or(limits::mismatch(errors))?,
        delivery: delivery?,
        accepts_identity_change: head.accepts_identity_change?,
        names: kept_as,
    };
    match is_transactional {
        true => options.clone().without_meanings().complete(fitted),
        false => options.complete(fitted),
    }
}

type Identity = (KeyRule, Vec<ScopePart>, Authorize);

/// A route that takes no keys needs neither a scope nor a check of replays.
fn identity(
    head: &Head,
    options: &RouteOptions,
    offered: Offered,
    mistakes: &mut Mistakes,
) -> Option<Identity> {
    let key = options.key.or_default(KeyRule::Optional, &head.place)?.value;
    if key == KeyRule::Off {
        return Some((key, options.scope.values()?, options.authorize.value_or(Authorize::None)?));
    }
    match &options.scope {
        Setting::Missing => {
            let message = "`scope` is missing, and there is no default: it says to whom a key \
                           belongs, and a guess would show one caller's answers to another";
            let help = said_here(&head.place, "--scope", scope::SCOPE_CHOICES);
            mistakes.error(&head.place, message, help);
        }
        Setting::Wrong => {}
        Setting::Given(parts) => {
            let pattern = head.matched.as_ref().map(|(_, pattern)| pattern);
            scope::check_scope(parts, pattern, offered, mistakes);
        }
    }
    match &options.authorize {
        Setting::Missing => {
            let message = "`authorize` is missing, and there is no default: it says who checks \
                           that a stored answer may be seen again";
            let help = said_here(&head.place, "--authorize", scope::AUTHORIZE_CHOICES);
            mistakes.error(&head.place, message, help);
        }
        Setting::Wrong => {}
        Setting::Given(authorize) => scope::check_authorize(authorize, offered, mistakes),
    }
    let authorize = options.authorize.given()?.value.clone();
    options.scope.given()?;
    Some((key, options.scope.values()?, authorize))
}

/// How to say it where there is no file.
fn said_here(place: &SourceLocation, argument: &str, choices: &str) -> String {
    match place {
        SourceLocation::CommandLine => format!("say {argument}: {choices}"),
        _ => choices.to_owned(),
    }
}

struct Times {
    lease: Placed<Duration>,
    max_run: Placed<Duration>,
    retain: Placed<Duration>,
}

fn times(options: &RouteOptions, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Times> {
    let usual = match options.is_transactional() {
        true => limits::TRANSACTIONAL_LEASE,
        false => limits::DEFAULT_LEASE,
    };
    let lease = options.lease.or_default(usual, place)?;
    let retain = options.retain.or_default(limits::DEFAULT_RETAIN, place)?;
    let usual = limits::DEFAULT_MAX_RUN.max(lease.value);
    let max_run = options.max_run.or_default(usual, place)?;
    let show = |placed: &Placed<Duration>| show_duration(placed.value);
    if max_run.value < lease.value {
        let message = format!("`max_run` is {}, shorter than `lease`", show(&max_run));
        let help = format!(
            "a claim lives for its lease in any case: raise `max_run` to {} or shorten `lease`",
            show(&lease)
        );
        mistakes.error(&max_run.place, message, help);
    }
    let mut covers = |other: &str, than: &Placed<Duration>| {
        if retain.value < than.value {
            let place = if options.retain.given().is_some() { &retain.place } else { &than.place };
            let message = format!(
                "`retain` is {}, shorter than `{other}` of {}: a retry after it would run again",
                show(&retain),
                show(than)
            );
            let help = format!("raise `retain` to at least \"{}\"", show(than));
            mistakes.error(place, message, help);
        }
    };
    covers("lease", &lease);
    if let Some(window) = options.retry_window.given() {
        covers("retry_window", window);
    }
    if let Some(Placed { value: Some(unknown), place }) = options.unknown_retain.given()
        && *unknown < retain.value
    {
        let message = format!(
            "`unknown_retain` is {}, shorter than `retain` of {}: a retry after it would run again",
            show_duration(*unknown),
            show(&retain)
        );
        let help = format!("write \"never\", or at least \"{}\"", show(&retain));
        mistakes.error(place, message, help);
    }
    Some(Times { lease, max_run, retain })
}

type EffectAndProfile = (Effect, Option<Profile>);

/// Rule 12: which effect goes with which profile.
fn effect(
    own: &RouteOptions,
    options: &RouteOptions,
    times: Option<&Times>,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<EffectAndProfile> {
    let word = options.effect.or_default(EffectWord::External, place)?;
    // In [defaults] it is there for those routes that are repeatable.
    if let Some(within) = own.rerun_within.given().filter(|_| word.value != EffectWord::Repeatable)
    {
        let message = "`rerun_within` goes only with effect = \"repeatable\"";
        let help = "remove it, or write effect = \"repeatable\" if the service honours the key \
                    that it is given";
        mistakes.error(&within.place, message, help);
    }
    let effect = match word.value {
        EffectWord::External => Some(Effect::External),
        EffectWord::Transactional => return Some((Effect::Transactional, None)),
        EffectWord::Repeatable => repeatable(options, times, &word.place, mistakes),
    };
    let profile = options.profile.optional()?;
    if let Some(given) = options.profile.given()
        && given.value == Profile::Rerun
        && word.value == EffectWord::External
    {
        let message = "`profile = \"rerun\"` runs failures again, and effect external never does";
        let help = "write effect = \"repeatable\" and `rerun_within` if the service honours the \
                    key that it is given; else profile = \"standard\", \"strict\" or \"stripe\"";
        mistakes.error(&given.place, message, help);
    }
    check_hold(options, word.value, profile, mistakes);
    Some((effect?, profile))
}

fn repeatable(
    options: &RouteOptions,
    times: Option<&Times>,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Effect> {
    if options.rerun_within.is_missing() {
        let message = "effect \"repeatable\" needs `rerun_within`: how long the service behind the \
                       gateway remembers a key";
        let help = "write it a little shorter than that, as rerun_within = \"23h\" for 24 hours";
        mistakes.error(place, message, help);
    }
    let within = options.rerun_within.given()?;
    if let Some(lease) = times.map(|times| &times.lease).filter(|lease| within.value < lease.value)
    {
        let message = format!(
            "`rerun_within` is {}, shorter than the lease of {}: nothing could ever be run again",
            show_duration(within.value),
            show_duration(lease.value)
        );
        mistakes.error(&within.place, message, "raise `rerun_within`, or shorten `lease`");
    }
    Some(Effect::Repeatable { within: within.value })
}

/// How requests are refused that no route speaks of: as `[defaults]` say. What is wrong there is reported with
/// the routes.
pub(crate) fn errors_of(defaults: &RouteOptions) -> Errors {
    let profile = defaults.profile.given().map(|profile| profile.value);
    defaults.errors.given().map_or(usual_errors(profile), |errors| errors.value)
}

/// An operator whose clients are of Stripe refuses in their words.
fn usual_errors(profile: Option<Profile>) -> Errors {
    match profile {
        Some(Profile::Stripe) => Errors::Stripe,
        _ => Errors::Problem,
    }
}

fn check_hold(
    options: &RouteOptions,
    effect: EffectWord,
    profile: Option<Profile>,
    mistakes: &mut Mistakes,
) {
    let may_hold = match profile {
        Some(profile) => matches!(profile, Profile::Standard | Profile::Strict),
        None => effect == EffectWord::External,
    };
    if let Some(hold) = options.hold_500.given().filter(|hold| hold.value && !may_hold) {
        let message = "`on_500 = \"hold\"` goes only with the profiles \"standard\" and \"strict\"";
        let help = "leave it out: the other profiles read server errors in their own way";
        mistakes.error(&hold.place, message, help);
    }
}

fn check_keep(options: &RouteOptions, mistakes: &mut Mistakes) {
    let json = options.redact_json.given().filter(|json| !json.value.is_empty());
    if let (Some(json), Some(_)) = (json, options.rebuild.given()) {
        let message =
            "`redact_json` and `rebuild` exclude each other: what is made again is not redacted";
        mistakes.error(&json.place, message, "remove one of the two");
    }
    let Some(keep) = options.status_only.given().filter(|keep| keep.value) else { return };
    if options.rebuild.given().is_some() {
        let message = "`keep = \"status\"` and `rebuild` exclude each other: one stores only the \
                       status, the other where the answer is made again";
        mistakes.error(&keep.place, message, "remove one of the two");
    }
    if let Some(json) = json {
        let message = "`redact_json` means nothing with keep = \"status\": no body is stored";
        mistakes.warning(&json.place, message, "remove it, or write keep = \"full\"");
    }
}

/// What is allowed and probably not meant.
fn warn(
    own: &RouteOptions,
    options: &RouteOptions,
    times: Option<&Times>,
    mistakes: &mut Mistakes,
) {
    let waits = options.in_flight.given().is_none_or(|rule| rule.value == InFlightRule::Wait);
    if let Some(wait) = own.wait.given().filter(|_| !waits) {
        let help = "write in_flight = \"wait\", or remove it";
        mistakes.warning(&wait.place, "`wait` means nothing without in_flight = \"wait\"", help);
    }
    let max_run = times.map(|times| times.max_run.value);
    let timeout = options.timeout.value_or(limits::DEFAULT_TIMEOUT);
    if let (Some(timeout), Some(max_run)) = (timeout, max_run)
        && timeout > max_run
    {
        let message = format!(
            "`timeout` of {} is longer than `max_run` of {}: a request with a key is given up when its \
             claim ends, and its connection is reset",
            show_duration(timeout),
            show_duration(max_run)
        );
        let places = [
            options.timeout.given().map(|given| &given.place),
            options.max_run.given().map(|given| &given.place),
        ];
        if let Some(place) = places.into_iter().flatten().next() {
            mistakes.warning(place, message, "raise `max_run`, or lower `timeout`");
        }
    }
    let names = options.fingerprint_headers.given().map_or(&[][..], |names| names.value.as_slice());
    for name in names.iter().filter(|name| name.value == http::header::AUTHORIZATION) {
        let message = "`fingerprint_headers` has `authorization`: with a refreshed token a retry \
                       would be refused as another request";
        mistakes.warning(&name.place, message, "remove it: the scope says who asks");
    }
}
