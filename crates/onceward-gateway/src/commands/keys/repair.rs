//! `onceward keys resolve`, `release` and `purge`: changes that the trail remembers.

use std::path::Path;

use serde_json::{Value, json};

use super::{AdminClient, BoxError, Change, Resolve, print, show_one, table};
use crate::commands::{
    arguments::read,
    terminal::{counted, tell},
};

impl Resolve {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let Change { which, place, .. } = &self.change;
        let admin_client = AdminClient::open(place).await?;
        let outcome = if self.applied { "applied" } else { "not_applied" };
        if !which.is_one() {
            return self.run_many(&admin_client, outcome).await;
        }
        let mut document = self.change.document();
        document["outcome"] = outcome.into();
        if let Some(file) = &self.response {
            document["response"] = response(file)?;
        }
        self.change.make(&admin_client, "resolve", document).await
    }

    async fn run_many(&self, admin_client: &AdminClient, outcome: &str) -> Result<(), BoxError> {
        let Change { which, place, force, reason } = &self.change;
        if self.response.is_some() || *force {
            return Err("--response and --force are for one operation: say --operation".into());
        }
        if which.state.is_none() {
            return Err("say which operation (--operation, --key), or all of a filter with \
                        --state unknown"
                .into());
        }
        let (mut filter, is_dry) = (which.filter(), !self.yes);
        let (mut resolved, mut left) = (Vec::new(), Vec::new());
        loop {
            let document = json!({
                "filter": filter, "outcome": outcome, "reason": reason, "dry_run": is_dry,
            });
            let mut page = admin_client.post("/v1/resolve", &document).await?;
            let mut take = |name| page[name].as_array_mut().map(std::mem::take).unwrap_or_default();
            resolved.extend(take("resolved"));
            left.extend(take("left"));
            match page["next"].take() {
                Value::Null => break,
                next => filter.insert("after".into(), next),
            };
            tell(format_args!("{} so far, {} left as they are", resolved.len(), left.len()));
        }
        if place.json {
            let document = json!({ "dry_run": is_dry, "resolved": resolved, "left": left });
            print(&format!("{document:#}"))?;
        } else {
            for one in &left {
                let [operation, why] = ["operation", "detail"].map(|name| table::text(&one[name]));
                tell(format_args!("left: {operation}: {why}"));
            }
            let (done, kept) = (counted(resolved.len(), "operation"), left.len());
            print(&match is_dry {
                true => format!(
                    "dry run: {done} would be resolved as {outcome}, {kept} would be left; say --yes"
                ),
                false => format!("{done} resolved as {outcome}, {kept} left"),
            })?;
        }
        match is_dry || left.is_empty() {
            true => Ok(()),
            false => Err("not everything was resolved; what is left is named above, with its \
                          reason"
                .into()),
        }
    }
}

fn response(file: &Path) -> Result<Value, BoxError> {
    let example = "{\"status\":201,\"headers\":[[\"location\",\"/charges/7\"]],\"body\":\"…\"}";
    let parsed = serde_json::from_slice(&read(file)?);
    Ok(parsed.map_err(|error| format!("--response is not JSON ({error}); write {example}"))?)
}

impl Change {
    pub(super) async fn run(&self, action: &str) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        self.make(&admin_client, action, self.document()).await
    }

    fn document(&self) -> Value {
        json!({ "reason": self.reason, "force": self.force })
    }

    async fn make(
        &self,
        admin_client: &AdminClient,
        action: &str,
        mut document: Value,
    ) -> Result<(), BoxError> {
        let reference = self.which.one(admin_client).await?;
        let path = format!("/v1/operations/{reference}");
        // The operator forces the run that is there now, and none that begins meanwhile.
        if self.force
            && let execution @ Value::String(_) = admin_client.get(&path).await?["execution"].take()
        {
            document["execution"] = execution;
        }
        let changed = admin_client.post(&format!("{path}/{action}"), &document).await?;
        show_one(&changed, self.place.json)
    }
}
