//! `onceward messages sinks` and `remove-sink`.

use serde_json::json;

use super::{BoxError, RemoveSink, Sinks, print, table};
use crate::commands::terminal::tell;

impl Sinks {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let document = self.place.open().await?.get("/v1/sinks").await?;
        if self.place.json {
            return print(&format!("{document:#}"));
        }
        if let Some(alarm) = document["alarm"].as_str() {
            tell(format_args!("alarm: {alarm}"));
        }
        match document["sinks"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => print("the store knows no sink: no relay was started on it"),
            sinks => print(&table::sinks(sinks)),
        }
    }
}

impl RemoveSink {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let client = self.place.open().await?;
        let document = client.get("/v1/sinks").await?;
        let mut known = document["sinks"].as_array().into_iter().flatten();
        let Some(sink) = known.find(|sink| sink["sink"] == self.name.as_str()) else {
            return Err(
                format!("the store knows no sink \"{}\"; nothing was changed", self.name).into()
            );
        };
        if !self.yes {
            let lag = &sink["lag"];
            return print(&format!(
                "dry run: \"{}\" would be forgotten, and the {lag} messages that it has not got would never be sent \
                 to it; say --yes",
                self.name
            ));
        }
        let removal = json!({ "sink": self.name, "reason": self.reason });
        let removed = client.post("/v1/sinks/remove", &removal).await?;
        match self.place.json {
            true => print(&format!("{removed:#}")),
            false => {
                let [forgotten, operation] =
                    ["forgotten", "operation"].map(|name| table::text(&removed[name]));
                print(&format!(
                    "\"{}\" is forgotten, with {forgotten} messages that it had not got; its trail: onceward keys show \
                     --operation {operation}",
                    self.name
                ))
            }
        }
    }
}
