//! How many live records have which names, as far as routes may be concerned.

use std::collections::BTreeMap;

use super::plan::{Plan, yields};
use crate::config::{Config, is_of_path, template_of};

/// What tells records apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Operation(String),
    /// The paths of one template, each of which is a name of its own: too many to list them.
    Paths(String),
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    groups: BTreeMap<(Named, String), u64>,
    /// Those that no route finds any more: by the template of their row and the route that takes their requests.
    pub(super) uncovered: BTreeMap<(String, Option<usize>), u64>,
}

impl Tally {
    pub(super) fn add(
        &mut self,
        config: &Config,
        plan: &Plan,
        operation: &str,
        parts: &str,
        count: u64,
    ) {
        if let Some((row, taker)) = plan.uncovered(config, operation, parts) {
            *self.uncovered.entry((row.template.clone(), taker)).or_default() += count;
        } else if let Some(named) = of_interest(config, plan, operation, parts) {
            *self.groups.entry((named, parts.to_owned())).or_default() += count;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Named, &str, u64)> {
        self.groups.iter().map(|((named, parts), count)| (named, parts.as_str(), *count))
    }
}

fn of_interest(config: &Config, plan: &Plan, operation: &str, parts: &str) -> Option<Named> {
    let is_foreign = |template: &str| !plan.wants.iter().any(|want| want.kept.template == template);
    let mut foreign = plan.rows.iter().filter(|row| is_foreign(&row.template));
    if foreign.any(|row| yields(row, operation, parts)) {
        return None;
    }
    let named = || Some(Named::Operation(operation.to_owned()));
    if plan.wants.iter().any(|want| want.is_known_as(operation, &plan.rows)) {
        return named();
    }
    let template = template_of(operation);
    let is_template = plan.wants.iter().any(|want| Some(&want.kept.template) == template.as_ref());
    // A client may send a path with braces in it: where each path is a name, that is a path.
    let is_path =
        plan.rows.iter().any(|row| row.operation.is_empty() && yields(row, operation, parts));
    if is_template && !is_path {
        return named();
    }
    let (method, path) = operation.split_once(' ')?;
    let covers = |want: &&super::PlannedName| {
        let route = &config.routes[want.route];
        route.pattern.has_rest()
            && is_of_path(operation, want.names.method.as_str(), &route.pattern)
    };
    let method = http::Method::from_bytes(method.as_bytes()).ok()?;
    let first = config.routes.iter().position(|route| route.matches(&method, path).is_some())?;
    let want = plan.wants.iter().filter(|want| want.route == first).find(covers)?;
    Some(Named::Paths(want.kept.template.clone()))
}
