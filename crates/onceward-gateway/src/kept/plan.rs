//! What each route keeps its records as, by what the configuration says and the store knows. Nothing here asks
//! a store.

use onceward::store::KeptRoute;

use super::{
    Change,
    tally::{Named, Tally},
};
use crate::config::{Config, Names, Pattern, Route, is_of_path, template_of};

pub(super) struct Plan {
    pub(super) rows: Vec<KeptRoute>,
    pub(super) wants: Vec<PlannedName>,
    pub(super) changes: Vec<Change>,
    /// That of the configuration. A row with another one was written by a gateway that serves other routes.
    upstream: String,
}

pub(super) struct PlannedName {
    pub(super) route: usize,
    pub(super) method: usize,
    pub(super) takes_keys: bool,
    /// The names that it gets, and the row that says so.
    pub(super) names: Names,
    pub(super) kept: KeptRoute,
    standing: StoredName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredName {
    /// The same names, whatever parameters are called now.
    Same,
    Changed,
    /// Nothing: the route is new, or its records are older than such rows.
    NotStored,
    /// Nothing, and it takes no keys.
    Idle,
}

impl Plan {
    pub(super) fn new(config: &Config, rows: Vec<KeptRoute>) -> Self {
        let mut wants = Vec::new();
        for (at, route) in config.routes.iter().enumerate() {
            for method in 0..route.methods.len() {
                let template = template(route, method);
                // Requests that an earlier route takes never come here.
                let is_hidden =
                    config.routes[..at].iter().any(|earlier| earlier.hides(route, method));
                if !is_hidden
                    && !wants.iter().any(|want: &PlannedName| want.kept.template == template)
                {
                    wants.push(PlannedName::new(config, at, method, &template, &rows));
                }
            }
        }
        Self { rows, wants, changes: Vec::new(), upstream: config.upstream.to_string() }
    }

    /// Whether live records have to be counted before it can be decided. Not if all is as it was.
    pub(super) fn needs_tally(&self) -> bool {
        let is_open = |want: &PlannedName| {
            matches!(want.standing, StoredName::Changed | StoredName::NotStored)
        };
        self.wants.iter().any(is_open) || self.unserved().next().is_some()
    }

    /// The rows of this gateway that no route of the configuration has any more.
    pub(super) fn unserved(&self) -> impl Iterator<Item = &KeptRoute> {
        let is_own = |row: &KeptRoute| row.upstream == self.upstream && !row.parts.is_empty();
        self.rows.iter().filter(move |row| is_own(row) && !self.serves(row))
    }

    fn serves(&self, row: &KeptRoute) -> bool {
        self.wants.iter().any(|want| want.kept.template == row.template)
    }

    /// Whose record this was, if no route finds it now, and which route takes its requests instead.
    pub(super) fn uncovered(
        &self,
        config: &Config,
        operation: &str,
        parts: &str,
    ) -> Option<(&KeptRoute, Option<usize>)> {
        let is_lost = |row: &KeptRoute, taker: Option<usize>| {
            match self.wants.iter().find(|want| want.kept.template == row.template) {
                None => true,
                // Where each path is a name, a route that is new may take some of them.
                Some(want) => {
                    let is_new = |other: &PlannedName| {
                        Some(other.route) == taker && other.standing != StoredName::Same
                    };
                    want.standing == StoredName::Same
                        && row.operation.is_empty()
                        && self.wants.iter().any(is_new)
                }
            }
        };
        let mut own = self.rows.iter().filter(|row| row.upstream == self.upstream);
        own.find_map(|row| {
            if !yields(row, operation, parts) || self.finds(config, row, operation, parts) {
                return None;
            }
            let taker = taker(config, row, operation);
            is_lost(row, taker).then_some((row, taker))
        })
    }

    pub(super) fn decide(&mut self, config: &Config, tally: &Tally) {
        for want in &mut self.wants {
            want.adopt(&config.routes[want.route], tally);
        }
        let mut changes = Vec::new();
        for want in &self.wants {
            let row = self.rows.iter().find(|row| row.template == want.kept.template);
            // What a row says was the route's own, even if another route has such names by now.
            let is_changed = want.standing == StoredName::Changed;
            let is_lost = |(named, parts, _): &(&Named, &str, u64)| {
                want.lost(row, named, parts) && (is_changed || !self.is_found(named, parts))
            };
            let route = &config.routes[want.route];
            let change = |group| change(route, want, row, group);
            changes.extend(tally.iter().filter(is_lost).map(change));
        }
        for ((template, taker), count) in &tally.uncovered {
            let row = self.rows.iter().find(|row| row.template == *template);
            changes.extend(row.map(|row| uncovered(config, row, *taker, *count)));
        }
        self.changes = changes;
    }

    /// Whether some route of the configuration finds such records.
    fn is_found(&self, named: &Named, parts: &str) -> bool {
        let finds = |want: &PlannedName| match named {
            Named::Operation(operation) => want.kept.operation == *operation,
            Named::Paths(template) => {
                want.kept.operation.is_empty() && want.kept.template == *template
            }
        };
        self.wants.iter().any(|want| want.takes_keys && want.kept.parts == parts && finds(want))
    }

    /// The same for one record, which this row was of; the names of the configuration are settled.
    pub(super) fn finds(
        &self,
        config: &Config,
        row: &KeptRoute,
        operation: &str,
        parts: &str,
    ) -> bool {
        let is_named = |want: &PlannedName| want.kept.operation == operation;
        let is_path = |want: &PlannedName| {
            let route = &config.routes[want.route];
            let is_covered = is_of_path(operation, want.names.method.as_str(), &route.pattern);
            want.kept.operation.is_empty() && is_covered && is_first(config, want.route, operation)
        };
        // A template is no path, though it looks like one.
        let is_template = self.rows.iter().any(|row| row.operation == operation);
        let is_alike = |want: &&PlannedName| {
            let reads_keys = config.routes[want.route].key_source.finds_keys_of(&row.key_source);
            want.takes_keys && want.kept.parts == parts && reads_keys
        };
        self.wants
            .iter()
            .filter(is_alike)
            .any(|want| is_named(want) || !is_template && is_path(want))
    }

    pub(super) fn may_leave_some_uncovered(&self, has_news: bool) -> bool {
        // Where each path is a name, a new route may cover some of them.
        self.rows.iter().any(|row| !self.serves(row) || has_news && row.operation.is_empty())
    }
}

impl PlannedName {
    fn new(config: &Config, at: usize, method: usize, template: &str, rows: &[KeptRoute]) -> Self {
        let route = &config.routes[at];
        let (names, path) = (route.names[method].clone(), route.pattern.text.clone());
        let takes_keys = route.takes_keys();
        let (key_source, upstream) = (route.key_source.stored_name(), config.upstream.to_string());
        let usual = match takes_keys {
            true => KeptRoute { key_source, upstream, ..names.kept(template.to_owned(), path) },
            false => {
                KeptRoute { template: template.to_owned(), path, upstream, ..KeptRoute::default() }
            }
        };
        let row = rows.iter().find(|row| row.template == template);
        let stored = row.filter(|row| !row.parts.is_empty());
        let (names, kept, standing) = match (takes_keys, stored) {
            (false, None) => (names, row.cloned().unwrap_or(usual), StoredName::Idle),
            (true, None) => (names, usual, StoredName::NotStored),
            (false, Some(_)) => (names, usual, StoredName::Changed),
            (true, Some(row)) => match route.names_kept_by(row, &names) {
                Some(names) => {
                    let KeptRoute { key_source, upstream, .. } = usual;
                    let standing = match route.key_source.finds_keys_of(&row.key_source) {
                        true => StoredName::Same,
                        false => StoredName::Changed,
                    };
                    (names, KeptRoute { key_source, upstream, ..row.clone() }, standing)
                }
                None => (names, usual, StoredName::Changed),
            },
        };
        Self { route: at, method, takes_keys, names, kept, standing }
    }

    /// Whether operations of this name are its own, now or before.
    pub(super) fn is_known_as(&self, operation: &str, rows: &[KeptRoute]) -> bool {
        let is_row =
            |row: &KeptRoute| row.template == self.kept.template && row.operation == operation;
        self.kept.operation == operation || rows.iter().any(is_row)
    }

    /// A route without a row takes over the names of live records that differ in the names of parameters alone:
    /// its own, if there are such records, else those of most.
    fn adopt(&mut self, route: &Route, tally: &Tally) {
        if self.standing != StoredName::NotStored || route.name.is_some() {
            return;
        }
        let candidates = tally.iter().filter_map(|(named, parts, count)| {
            let Named::Operation(operation) = named else { return None };
            let path = operation.split_once(' ')?.1.to_owned();
            let (operation, parts) = (operation.clone(), parts.to_owned());
            let row = KeptRoute { path, operation, parts, ..self.kept.clone() };
            Some((route.names_kept_by(&row, &self.names)?, row, count))
        });
        let best = candidates.max_by_key(|(_, row, count)| (*row == self.kept, *count));
        if let Some((names, kept, _)) = best {
            (self.names, self.kept) = (names, kept);
        }
    }

    /// Whether such records were its own before.
    fn lost(&self, row: Option<&KeptRoute>, named: &Named, parts: &str) -> bool {
        match (self.standing, row, named) {
            (StoredName::Same | StoredName::Idle, ..) => false,
            (StoredName::Changed, Some(row), Named::Operation(operation)) => {
                row.operation == *operation && row.parts == parts
            }
            (StoredName::Changed, Some(row), Named::Paths(template)) => {
                row.operation.is_empty() && row.template == *template && row.parts == parts
            }
            (_, _, Named::Operation(operation)) => {
                let is_template = template_of(operation).as_ref() == Some(&self.kept.template);
                is_template || self.kept.operation == *operation
            }
            (_, _, Named::Paths(template)) => self.kept.template == *template,
        }
    }
}

impl Route {
    /// Whether it takes all requests of this method that the other one matches.
    fn hides(&self, other: &Self, method: usize) -> bool {
        self.methods.contains(&other.methods[method]) && self.pattern.covers(&other.pattern)
    }
}

/// Whether the records of this row are kept under such names.
pub(super) fn yields(row: &KeptRoute, operation: &str, parts: &str) -> bool {
    let is_path = || {
        let method = row.template.split(' ').next().unwrap_or_default();
        Pattern::parse(&row.path).is_ok_and(|pattern| is_of_path(operation, method, &pattern))
    };
    let is_named = match row.operation.is_empty() {
        true => is_path(),
        false => row.operation == operation,
    };
    is_named && row.parts == parts
}

/// Whether requests that this operation is the path of come to this route.
fn is_first(config: &Config, route: usize, operation: &str) -> bool {
    let Some((method, path)) = operation.split_once(' ') else { return false };
    let Ok(method) = http::Method::from_bytes(method.as_bytes()) else { return false };
    config.routes.iter().position(|route| route.matches(&method, path).is_some()) == Some(route)
}

fn template(route: &Route, method: usize) -> String {
    format!("{} {}", route.methods[method], route.pattern.without_names())
}

/// The route that takes the requests of such a record.
fn taker(config: &Config, row: &KeptRoute, operation: &str) -> Option<usize> {
    let name = if row.operation.is_empty() { operation } else { &row.template };
    let (method, path) = name.split_once(' ')?;
    let method = http::Method::from_bytes(method.as_bytes()).ok()?;
    let pattern = Pattern::parse(&row.path).ok()?;
    config.routes.iter().position(|route| match row.operation.is_empty() {
        true => route.matches(&method, path).is_some(),
        false => route.methods.contains(&method) && route.pattern.covers(&pattern),
    })
}

fn change(
    route: &Route,
    want: &PlannedName,
    row: Option<&KeptRoute>,
    (named, parts, count): (&Named, &str, u64),
) -> Change {
    let operation = match named {
        Named::Operation(operation) => operation,
        Named::Paths(_) => "",
    };
    // Names that stay are not why it changes.
    let before = row.filter(|row| {
        want.takes_keys && row.operation == want.kept.operation && row.parts == want.kept.parts
    });
    let now = match (want.takes_keys, before, want.kept.operation.as_str()) {
        (false, ..) => "it takes no keys".to_owned(),
        (true, Some(row), _) => format!(
            "their keys were in `{}`, and would be read from `{}`",
            row.key_source, want.kept.key_source
        ),
        (true, None, "") => {
            format!("the name would be the path, and the scope `{}`", want.kept.parts)
        }
        (true, None, name) => {
            format!("the name would be `{name}`, and the scope `{}`", want.kept.parts)
        }
    };
    Change {
        route: route.match_text(),
        kept: format!("{} and the scope `{parts}`", named_so(operation, count)),
        now,
        is_accepted: route.accepts_identity_change,
    }
}

fn uncovered(config: &Config, row: &KeptRoute, taker: Option<usize>, count: u64) -> Change {
    let method = row.template.split(' ').next().unwrap_or_default();
    let before = format!("{method} {}", row.path);
    let kept = format!("{} and the scope `{}`", named_so(&row.operation, count), row.parts);
    match taker.map(|at| &config.routes[at]) {
        Some(route) => Change {
            route: route.match_text(),
            kept: format!("{kept}, by `{before}`"),
            now: format!("`{}` takes its requests and does not find them", route.match_text()),
            is_accepted: route.accepts_identity_change,
        },
        None => Change {
            route: before,
            kept,
            now: "no route takes its requests".to_owned(),
            is_accepted: config.accepts_identity_change,
        },
    }
}

fn named_so(operation: &str, count: u64) -> String {
    let noun = if count == 1 { "live record has" } else { "live records have" };
    match operation {
        "" => format!("{count} {noun} the name of their path"),
        operation => format!("{count} {noun} the name `{operation}`"),
    }
}
