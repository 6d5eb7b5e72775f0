//! `onceward messages redrive` and `discard`: changes that the trail remembers.

use serde_json::{Value, json};

use super::{AdminClient, BoxError, Repair, list::path, print, show_one, table};
use crate::commands::terminal::{counted, tell};

impl Repair {
    pub(super) async fn run(&self, action: &str) -> Result<(), BoxError> {
        let client = self.place.open().await?;
        let Some(id) = &self.message else { return self.run_many(&client, action).await };
        let mut others = self.which.filter();
        others.remove("sink");
        if !others.is_empty() {
            return Err("--message names one message: leave the other filters out".into());
        }
        let changed = self.change(&client, action, id, self.which.sink.as_deref()).await?;
        show_one(&changed, self.place.json)
    }

    async fn change(
        &self,
        client: &AdminClient,
        action: &str,
        id: &str,
        sink: Option<&str>,
    ) -> Result<Value, BoxError> {
        let mut document = json!({ "reason": self.reason });
        if let Some(sink) = sink {
            document["sink"] = sink.into();
        }
        client.post(&format!("{}/{action}", path(id)?), &document).await
    }

    async fn run_many(&self, client: &AdminClient, action: &str) -> Result<(), BoxError> {
        if self.which.state.is_none() {
            return Err(
                "say which message (--message), or all of a filter with --state dead".into()
            );
        }
        let (mut changed, mut left, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let (page, next) = self.which.page(client, 500, after.as_deref()).await?;
            for one in page {
                let [id, sink] = ["message", "sink"].map(|name| table::text(&one[name]));
                let named = json!({ "message": id, "sink": sink });
                if !self.yes {
                    changed.push(named);
                    continue;
                }
                match self.change(client, action, &id, Some(&sink)).await {
                    Ok(_) => changed.push(named),
                    Err(error) => {
                        left.push(
                            json!({ "message": id, "sink": sink, "detail": error.to_string() }),
                        );
                    }
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
            tell(format_args!("{} so far, {} left as they are", changed.len(), left.len()));
        }
        self.report(action, &changed, &left)
    }

    fn report(&self, action: &str, changed: &[Value], left: &[Value]) -> Result<(), BoxError> {
        let is_dry = !self.yes;
        if self.place.json {
            let document = json!({ "dry_run": is_dry, "changed": changed, "left": left });
            print(&format!("{document:#}"))?;
        } else {
            for one in left {
                let [id, sink, why] =
                    ["message", "sink", "detail"].map(|name| table::text(&one[name]));
                tell(format_args!("left: {id} at {sink}: {why}"));
            }
            let (done, kept) = (counted(changed.len(), "message"), left.len());
            let word = if action == "redrive" { "sent again" } else { "discarded" };
            print(&match is_dry {
                true => format!("dry run: {done} would be {word}; say --yes"),
                false => format!("{done} {word}, {kept} left"),
            })?;
        }
        match left.is_empty() {
            true => Ok(()),
            false => {
                Err("not everything was changed; what is left is named above, with its reason"
                    .into())
            }
        }
    }
}
