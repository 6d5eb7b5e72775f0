//! `[[route]]` and `[defaults]`: every route by itself, then all of them together.

use http::Method;
use onceward::server::Errors;

use super::{
    limits,
    options::{HeadOptions, RouteOptions},
    scope::{self, Offered},
};
use crate::config::{
    Authorize, InFlightRule, KeyRule, Pattern, Route, SourceLocation,
    diagnostics::{
        fit::{self, Head},
        mistake::{Mistakes, nearest},
    },
    library,
    parse::{
        reader::{Placed, Reader, Section, Setting, Value},
        source::Overrides,
    },
};

/// Those that change something (rule 3).
const METHODS: [&str; 4] = ["POST", "PATCH", "PUT", "DELETE"];

/// Those that change nothing: a route of them says how they are sent on, and takes no keys.
const SAFE: [&str; 2] = ["GET", "HEAD"];

/// All routes that are right, in their order, and how requests are refused that none of them speaks of.
pub(crate) fn read(
    section: &mut Reader<'_>,
    overrides: &Overrides,
    offered: Offered,
    whole: &SourceLocation,
) -> (Vec<Route>, Errors) {
    let defaults = section.table("defaults");
    let list = section.list("route", "[[route]]", |value, place, mistakes| match value {
        Value::Table(section) => Some(section.clone()),
        _ => {
            let help = "write [[route]] on a line of its own and its options below it";
            mistakes.error(place, "`route` has an item that is not a table", help);
            None
        }
    });
    let mistakes = &mut *section.mistakes;
    let mut defaults = match defaults {
        Setting::Given(defaults) => read_defaults(defaults.value, mistakes),
        _ => RouteOptions::default(),
    };
    let errors = fit::errors_of(&defaults);
    let forced = forced(overrides, mistakes);
    let sections = match list {
        Setting::Wrong => return (Vec::new(), errors),
        Setting::Given(sections) if !sections.value.is_empty() => sections.value,
        _ => {
            defaults = forced.or(&defaults);
            return (only_route(&defaults, offered, whole, mistakes), errors);
        }
    };
    note_forced(overrides, mistakes);
    let mut routes: Vec<(SourceLocation, Route)> = Vec::new();
    for Placed { value, place } in sections {
        if let Some(route) = one(value, &forced, &defaults, offered, mistakes) {
            compare(&route, &place, &routes, mistakes);
            routes.push((place, route));
        }
    }
    (routes.into_iter().map(|(_, route)| route).collect(), errors)
}

fn read_defaults(section: Section, mistakes: &mut Mistakes) -> RouteOptions {
    let mut reader = Reader::new(section, mistakes);
    for option in ["match", "name", "accept_identity_change"] {
        if let Some(found) = reader.take(option) {
            let message = format!("`{option}` belongs to one route");
            reader.mistakes.error(&found.place, message, "move it below a [[route]]");
        }
    }
    let options = RouteOptions::read(&mut reader);
    reader.finish();
    options
}

/// What the command line says about every route.
fn forced(overrides: &Overrides, mistakes: &mut Mistakes) -> RouteOptions {
    let Overrides { scope, authorize, .. } = overrides;
    let mut section = Section::empty(SourceLocation::CommandLine);
    if !scope.is_empty() {
        let place = SourceLocation::Argument("--scope");
        let part =
            |text: &String| Placed { value: Value::Text(text.clone()), place: place.clone() };
        section.replace("scope", place.clone(), Value::List(scope.iter().map(part).collect()));
    }
    if let Some(authorize) = authorize {
        let place = SourceLocation::Argument("--authorize");
        section.replace("authorize", place, Value::Text(authorize.clone()));
    }
    RouteOptions::read(&mut Reader::new(section, mistakes))
}

fn note_forced(overrides: &Overrides, mistakes: &mut Mistakes) {
    for (argument, is_given) in
        [("--scope", !overrides.scope.is_empty()), ("--authorize", overrides.authorize.is_some())]
    {
        if is_given {
            let message = "it replaces what every route of the file says";
            let help =
                "leave it out where routes differ; a changed scope forgets all keys of before";
            mistakes.warning(&SourceLocation::Argument(argument), message, help);
        }
    }
}

/// Without a `[[route]]`: one that covers everything, if it is said whose keys they are.
fn only_route(
    options: &RouteOptions,
    offered: Offered,
    whole: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Vec<Route> {
    let has_neither = options.scope.is_missing() && options.authorize.is_missing();
    if has_neither && matches!(whole, SourceLocation::File(_)) {
        let help = "add [[route]] with match = \"POST /v1/charges\", scope and authorize";
        mistakes.error(whole, "there is no [[route]]: nothing would be protected", help);
        return Vec::new();
    }
    let matched = matched(limits::DEFAULT_MATCH, whole, mistakes);
    let head = Head {
        place: whole.clone(),
        matched,
        name: Some(None),
        accepts_identity_change: Some(false),
    };
    let message = format!("there is no [[route]]: one covers {}", limits::DEFAULT_MATCH);
    mistakes.note(whole, message);
    finish(head, &RouteOptions::default(), options, offered, mistakes).into_iter().collect()
}

fn one(
    section: Section,
    forced: &RouteOptions,
    defaults: &RouteOptions,
    offered: Offered,
    mistakes: &mut Mistakes,
) -> Option<Route> {
    let mut reader = Reader::new(section, mistakes);
    let place = reader.place().clone();
    let HeadOptions { matched: line, name, accept_identity_change: accepts } =
        HeadOptions::read(&mut reader);
    if line.is_missing() {
        let help = "write match = \"POST /v1/charges\": methods, a space, and a path";
        reader.mistakes.error(&place, "this route has no `match`", help);
    }
    let matched = line.then(|text, place| matched(text, place, reader.mistakes));
    let name = name.then(|name, place| match onceward::OperationName::new(name) {
        Ok(_) => Some(name.clone()),
        Err(error) => {
            let help = "write name = \"charge.create\"";
            reader.mistakes.error(place, format!("`name`: {error}"), help);
            None
        }
    });
    if let Some(accepts) = accepts.given().filter(|accepts| accepts.value) {
        let message = "`accept_identity_change = true`: if this route keeps its records under other names than \
                       before, completed keys run again, and the gateway starts nevertheless; remove \
                       this line when it has";
        reader.mistakes.note(&accepts.place, message);
    }
    let own = RouteOptions::read(&mut reader);
    reader.finish();
    let options = forced.or(&own).or(defaults);
    let takes_keys = !options.key.given().is_some_and(|key| key.value == KeyRule::Off);
    let matched = matched.given().filter(|matched| {
        !takes_keys || must_take_keys(&matched.value.0, &matched.place, mistakes)
    });
    let head = Head {
        place,
        matched: matched.map(|matched| matched.value.clone()),
        name: name.optional(),
        accepts_identity_change: accepts.value_or(false),
    };
    finish(head, &own, &options, offered, mistakes)
}

fn finish(
    head: Head,
    own: &RouteOptions,
    options: &RouteOptions,
    offered: Offered,
    mistakes: &mut Mistakes,
) -> Option<Route> {
    let place = head.place.clone();
    let before = mistakes.errors();
    let route = fit::route(head, own, options, offered, mistakes)?;
    // What was said above is not said again in the library's words.
    if mistakes.errors() == before {
        library::check(&route, options, &place, mistakes);
    }
    note(&route, options, &place, mistakes);
    Some(route)
}

fn note(route: &Route, options: &RouteOptions, place: &SourceLocation, mistakes: &mut Mistakes) {
    let at = |setting: Option<&SourceLocation>| setting.unwrap_or(place).clone();
    if route.key == KeyRule::Off {
        return;
    }
    if route.authorize == Authorize::None {
        let place = at(options.authorize.given().map(|given| &given.place));
        mistakes.note(&place, scope::NONE_NOTE);
    }
    if route.scope == [crate::config::ScopePart::Global] {
        let place = at(options.scope.given().map(|given| &given.place));
        let message = "`scope = [\"global\"]`: all callers share their keys, so two who choose \
                       the same key get one answer";
        mistakes.note(&place, message);
    }
    if route.key == KeyRule::Optional
        && route.key_source.key_header().is_some()
        && !route.key_source.takes_usual_header()
    {
        let place = at(options.key_header.given().map(|given| &given.place));
        let message = "`key_header` is without \"Idempotency-Key\": requests that have their key there \
                       pass, unprotected";
        mistakes.note(&place, message);
    }
    let answers_early = matches!(route.in_flight, InFlightRule::Accepted | InFlightRule::Async);
    if answers_early && route.errors == Errors::Stripe {
        let place = at(options.in_flight.given().map(|given| &given.place));
        let message = "`in_flight`: Stripe's SDKs take the 202 of a request that is running for the object \
                       that they asked for; leave it out, and duplicates wait";
        mistakes.note(&place, message);
    }
    if route.pass_when_store_is_down {
        let place = at(options.pass_when_store_is_down.given().map(|given| &given.place));
        let message = "`on_store_down = \"pass\"`: while the store is down, retries may run twice";
        mistakes.note(&place, message);
    }
}

/// `POST,PATCH /v1/charges/{id}`.
fn matched(
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<(Vec<Method>, Pattern)> {
    let Some((methods, path)) = text.split_once(' ') else {
        let help = "write \"POST /v1/charges\"; several methods as \"POST,PATCH /v1/charges\"";
        mistakes.error(place, "`match` is not a method, a space and a path", help);
        return None;
    };
    let methods: Vec<_> =
        methods.split(',').map(|method| self::method(method, place, mistakes)).collect();
    let methods: Option<Vec<_>> = methods.into_iter().collect();
    let pattern = match Pattern::parse(path.trim_start()) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            mistakes.error(place, format!("`match`: {}", error.message), error.help);
            None
        }
    };
    let methods = methods?;
    if let Some((_, method)) =
        methods.iter().enumerate().find(|(index, method)| methods[..*index].contains(method))
    {
        mistakes.error(place, format!("`match` has {method} twice"), "remove one of them");
        return None;
    }
    Some((methods, pattern?))
}

/// A route that takes keys has no method that takes none.
fn must_take_keys(methods: &[Method], place: &SourceLocation, mistakes: &mut Mistakes) -> bool {
    let Some(safe) = methods.iter().find(|method| SAFE.contains(&method.as_str())) else {
        return true;
    };
    let message = format!("`match`: {safe} changes nothing and takes no key");
    let help = "choose of POST, PATCH, PUT and DELETE; or say key = \"off\", if the route shall only \
                say how such requests are sent on";
    mistakes.error(place, message, help);
    false
}

fn method(word: &str, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Method> {
    if METHODS.contains(&word) || SAFE.contains(&word) {
        return Method::from_bytes(word.as_bytes()).ok();
    }
    let choices = "choose of POST, PATCH, PUT and DELETE";
    if ["OPTIONS", "TRACE", "CONNECT"].contains(&word) {
        let help = format!("{choices}; other requests pass untouched without a route");
        mistakes.error(place, format!("`match`: {word} changes nothing and takes no key"), help);
        return None;
    }
    let help = match nearest(word, METHODS) {
        Some(near) => format!("did you mean {near}? Methods are separated by commas alone"),
        None => format!("{choices}, with commas between them and a space behind the last"),
    };
    mistakes.error(place, "`match` starts with an unknown method", help);
    None
}

/// The first route that matches wins, so a later one may never be reached.
fn compare(
    route: &Route,
    place: &SourceLocation,
    earlier: &[(SourceLocation, Route)],
    mistakes: &mut Mistakes,
) {
    for (at, other) in earlier {
        let shared = |method: &&Method| other.methods.contains(method);
        let covered: Vec<_> = route.methods.iter().filter(shared).map(Method::as_str).collect();
        if !covered.is_empty() && other.pattern.covers(&route.pattern) {
            let covered = covered.join(",");
            let is_same = route.pattern.covers(&other.pattern);
            let help = "remove it, or move it before that one: the first route that matches wins";
            if is_same {
                let message =
                    format!("{covered} {} has a route already, at {at}", route.pattern.text);
                mistakes.error(place, message, help);
            } else {
                let message = format!(
                    "{covered} {} never comes here: the route at {at} covers it",
                    route.pattern.text
                );
                mistakes.warning(place, message, help);
            }
        }
        if route.name.is_some() && route.name == other.name {
            scope::check_types(route, other, at, place, mistakes);
            let message = "this route has the name of the one at";
            mistakes.note(place, format!("{message} {at}: they share their keys"));
        }
    }
}
