//! Under which names the records of routes are kept, and what a change of them would run again.
//!
//! An operation is identified by scope, operation name and key. The names of both follow from the
//! configuration: another name of a route or of a part of its scope makes every key of before new. So the
//! store remembers the names of every route (one method, one path without the names of its parameters). A
//! parameter that is renamed keeps its records; any other change is refused while records of before live,
//! unless the route accepts it. So is another place of keys, and a route that is gone or hidden.

mod plan;
mod tally;

use std::{fmt, sync::Arc};

use onceward::{StoreError, store::KeptRoute, telemetry::event};

use crate::{config::Config, records::Records};
use plan::{Plan, PlannedName};
use tally::Tally;

/// How often others may change the same rows meanwhile: gateways that start together.
const TRIES: usize = 10;

/// A route whose live records would not be found any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) route: String,
    pub(crate) kept: String,
    pub(crate) now: String,
    pub(crate) is_accepted: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, kept, now, .. } = self;
        write!(formatter, "{route}: {kept}; now {now}")
    }
}

pub(crate) enum Refused {
    Changes(Vec<Change>),
    Store(StoreError),
    Busy,
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = match self {
            Self::Store(error) => {
                return write!(
                    formatter,
                    "the store cannot be asked for the names of routes: {error}"
                );
            }
            Self::Busy => return formatter.write_str(
                "other gateways are changing the names of these routes in the store; start again",
            ),
            Self::Changes(changes) => changes,
        };
        formatter.write_str(
            "records of before would not be found any more, and their keys would run again:\n",
        )?;
        for change in changes {
            writeln!(formatter, "  {change}")?;
        }
        formatter.write_str(
            "undo the change, or wait until these records are over (`onceward keys list --name …`); or, if no \
             client will send their keys again, write this below the route (or at the top, if it is gone), and remove it \
             after the start:\n  \
             accept_identity_change = true",
        )
    }
}

/// A configuration whose routes have the names of their records.
pub(crate) struct Settled {
    pub(crate) config: Config,
    /// Whether the store did not know all of these names.
    pub(crate) has_news: bool,
}

/// Gives every route the names under which its records are kept, and has the store remember them; refuses a
/// configuration by which live records would not be found any more.
pub(crate) async fn settle(mut config: Config, store: &dyn Records) -> Result<Settled, Refused> {
    for _ in 0..TRIES {
        let plan = plan(&config, store).await?;
        let refused = plan.changes.iter().any(|change| !change.is_accepted);
        if refused {
            let changes = plan.changes.into_iter().filter(|change| !change.is_accepted);
            return Err(Refused::Changes(changes.collect()));
        }
        if write(&plan, store).await? {
            for change in &plan.changes {
                let text = "accept_identity_change: records of before are not found any more, and their keys run again";
                tracing::warn!(event = event::IDENTITY_CHANGED, %change, "{text}");
            }
            for route in idle(&config, &plan.changes) {
                let text = "accept_identity_change is set and nothing needs it: it would accept every later change; remove it";
                tracing::warn!(event = event::IDENTITY_CHANGED, route, "{text}");
            }
            let has_news = plan.needs_tally();
            for PlannedName { route, method, names, .. } in plan.wants {
                config.routes[route].names[method] = names;
            }
            return Ok(Settled { config, has_news });
        }
    }
    Err(Refused::Busy)
}

/// What of this configuration would run again; nothing is written.
pub(crate) async fn changes(
    config: &Config,
    store: &dyn Records,
) -> Result<Vec<Change>, StoreError> {
    Ok(plan(config, store).await?.changes)
}

/// The routes that accept a change of identity although there is none.
pub(crate) fn idle(config: &Config, changes: &[Change]) -> Vec<String> {
    let routes = config.routes.iter().filter(|route| route.accepts_identity_change);
    let routes = routes.map(crate::config::Route::match_text);
    let is_gone =
        |change: &Change| config.routes.iter().all(|route| route.match_text() != change.route);
    // What accepts the end of a route is written for all.
    if changes.iter().any(is_gone) {
        return Vec::new();
    }
    routes.filter(|route| changes.iter().all(|change| change.route != *route)).collect()
}

async fn plan(config: &Config, store: &dyn Records) -> Result<Plan, StoreError> {
    let rows = store.routes().await?;
    let mut plan = Plan::new(config, rows);
    if plan.needs_tally() {
        let mut tally = Tally::default();
        each_group(store, |operation, parts, count| {
            tally.add(config, &plan, operation, parts, count);
        })
        .await?;
        plan.decide(config, &tally);
    }
    Ok(plan)
}

/// `false`: another process was faster.
async fn write(plan: &Plan, store: &dyn Records) -> Result<bool, StoreError> {
    for want in &plan.wants {
        let before = plan.rows.iter().find(|row| row.template == want.kept.template);
        let is_new = match before {
            Some(row) => *row != want.kept,
            None => want.takes_keys,
        };
        if is_new && !store.keep_route(before, &want.kept).await? {
            return Ok(false);
        }
    }
    // Nothing of them lives, or it is accepted that their keys run again.
    for row in plan.unserved() {
        let (template, path) = (row.template.clone(), row.path.clone());
        let forgotten = KeptRoute { template, path, ..KeptRoute::default() };
        if !store.keep_route(Some(row), &forgotten).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn each_group(
    store: &dyn Records,
    mut see: impl FnMut(&str, &str, u64),
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = store.living(after).await?;
        for group in &page.groups {
            see(&group.operation, &group.parts, group.count);
        }
        after = match page.next {
            Some(next) => Some(next),
            None => return Ok(()),
        };
    }
}

/// Says which live records no route of this configuration finds: those of a route that was removed, or that
/// another one covers now, and are of a gateway with another upstream. It may still serve them, so this refuses
/// nothing and delays nothing.
pub(crate) async fn tell_of_the_uncovered(
    config: Arc<Config>,
    store: Arc<dyn Records>,
    has_news: bool,
) {
    if let Err(error) = look_for_the_uncovered(&config, &*store, has_news).await {
        tracing::warn!(event = event::ROUTE_UNCOVERED, %error, "it is not known whether all records have a route");
    }
}

async fn look_for_the_uncovered(
    config: &Config,
    store: &dyn Records,
    has_news: bool,
) -> Result<(), StoreError> {
    let rows = store.routes().await?;
    let plan = Plan::new(config, rows);
    if !plan.may_leave_some_uncovered(has_news) {
        return Ok(());
    }
    let mut counts: Vec<(&KeptRoute, u64)> = plan.rows.iter().map(|row| (row, 0)).collect();
    each_group(store, |operation, parts, count| {
        let is_of = |(row, _): &&mut (&KeptRoute, u64)| plan::yields(row, operation, parts);
        if let Some((row, sum)) = counts.iter_mut().find(is_of)
            && !plan.finds(config, row, operation, parts)
        {
            *sum += count;
        }
    })
    .await?;
    for (row, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let text = "no route of this configuration finds these live records: if the route was removed or another one covers \
                    it, their keys run again; if another gateway serves it, nothing is wrong";
        tracing::warn!(event = event::ROUTE_UNCOVERED, route = %row.template, records = count, "{text}");
    }
    Ok(())
}
