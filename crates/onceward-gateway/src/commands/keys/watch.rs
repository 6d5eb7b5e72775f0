//! `onceward keys watch`: says what happens to operations, as it happens.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::{
    BoxError, Watch,
    admin_client::AdminClient,
    print,
    table::{seconds, text},
};
use crate::commands::terminal::tell;

const PAGE: usize = 500;

/// How many are followed that still have to end.
const MAX_FOLLOWED: usize = 500;

const MAX_SEEN: usize = 10_000;

const OPEN: [&str; 3] = ["in_progress", "interrupted", "unknown"];

#[derive(Default)]
struct WatchedOperations(HashMap<String, Value>);

impl Watch {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let (admin_client, begun) = (AdminClient::open(&self.place).await?, Instant::now());
        let mut seen = WatchedOperations::default();
        for state in OPEN {
            let mut filter = self.filter();
            filter.insert("state".into(), state.into());
            for one in admin_client.search(filter, MAX_FOLLOWED).await? {
                seen.note(one);
            }
        }
        for one in admin_client.search(self.newest(), PAGE).await? {
            seen.note(one);
        }
        tell(format_args!("watching; {} operations have not ended", seen.open().len()));
        while self.end.is_none_or(|end| begun.elapsed() < end) {
            sleep(self.every.max(Duration::from_millis(50))).await;
            if let Err(error) = self.look(&admin_client, &mut seen).await {
                tell(format_args!("{error}; it is tried again"));
            }
        }
        Ok(())
    }

    async fn look(
        &self,
        admin_client: &AdminClient,
        seen: &mut WatchedOperations,
    ) -> Result<(), BoxError> {
        let mut open = seen.open();
        let newest = admin_client.search(self.newest(), PAGE).await?;
        let new = newest.iter().filter(|one| seen.was(one).is_none()).count();
        if seen.0.len() > MAX_SEEN {
            seen.forget_all_but(&newest);
        }
        for one in newest.into_iter().rev() {
            open.retain(|reference| one["operation"] != **reference);
            self.say(seen, one)?;
        }
        if open.len() > MAX_FOLLOWED {
            tell(format_args!("{} have not ended: some are looked at later", open.len()));
        }
        // Others come first the next time.
        fastrand::shuffle(&mut open);
        for reference in open.into_iter().take(MAX_FOLLOWED) {
            match admin_client.get(&format!("/v1/operations/{reference}")).await {
                Ok(one) => self.say(seen, one)?,
                Err(error) => tell(format_args!("{reference}: {error}")),
            }
        }
        if new == PAGE {
            tell("more happened than is shown here");
        }
        Ok(())
    }

    fn say(&self, seen: &mut WatchedOperations, one: Value) -> Result<(), BoxError> {
        let was = seen.was(&one).cloned();
        let is_same = |was: &Value| {
            ["state", "attempt", "started_at"].iter().all(|name| was[name] == one[name])
        };
        if was.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        let before = was.map(|was| was["state"].clone()).unwrap_or_default();
        let is_wanted = self.which.state.as_deref().is_none_or(|state| one["state"] == state);
        if is_wanted && self.place.json {
            let mut line = one.clone();
            line["was"] = before;
            print(&line.to_string())?;
        } else if is_wanted {
            let state = match before {
                Value::Null => text(&one["state"]),
                before => format!("{} → {}", text(&before), text(&one["state"])),
            };
            let at = text(&one["updated_at"]);
            let (reference, name) = (text(&one["operation"]), text(&one["name"]));
            print(&format!("{}  {reference}  {name}  {state}", seconds(&at)))?;
        }
        seen.note(one);
        Ok(())
    }

    /// What is looked at; a state is compared here, so that leaving it is seen.
    fn filter(&self) -> Map<String, Value> {
        let mut filter = self.which.filter();
        filter.remove("state");
        filter
    }

    fn newest(&self) -> Map<String, Value> {
        let mut filter = self.filter();
        filter.insert("order".into(), "newest".into());
        filter
    }
}

impl WatchedOperations {
    fn was(&self, one: &Value) -> Option<&Value> {
        self.0.get(one["operation"].as_str()?)
    }

    fn note(&mut self, one: Value) {
        if let Some(reference) = one["operation"].as_str() {
            self.0.insert(reference.to_owned(), one);
        }
    }

    fn forget_all_but(&mut self, newest: &[Value]) {
        let newest: HashSet<_> =
            newest.iter().filter_map(|one| one["operation"].as_str()).collect();
        self.0.retain(|reference, one| is_open(one) || newest.contains(reference.as_str()));
    }

    fn open(&self) -> Vec<String> {
        self.0
            .iter()
            .filter(|(_, one)| is_open(one))
            .map(|(reference, _)| reference.clone())
            .collect()
    }
}

fn is_open(one: &Value) -> bool {
    one["state"].as_str().is_some_and(|state| OPEN.contains(&state))
}
