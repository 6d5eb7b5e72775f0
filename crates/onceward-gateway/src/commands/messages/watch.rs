//! `onceward messages watch`: says what becomes of messages that are stuck, as it happens.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    AdminClient, BoxError, MessageSelector, Watch,
    list::path,
    print,
    table::{seconds, text},
};
use crate::commands::terminal::tell;

/// How many of each state are followed.
const MAX_FOLLOWED: usize = 500;

/// States that a message leaves again.
const OPEN: [&str; 4] = ["dead", "held", "waiting", "scheduled"];

/// What was seen of a message at a sink, by both names.
type Seen = BTreeMap<(String, String), Value>;

impl Watch {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let (client, begun) = (self.place.open().await?, Instant::now());
        let mut seen = self.open_ones(&client).await?;
        tell(format_args!("watching; {} messages are not delivered yet", seen.len()));
        while self.end.is_none_or(|end| begun.elapsed() < end) {
            sleep(self.every.max(Duration::from_millis(50))).await;
            match self.look(&client, &seen).await {
                Ok(now) => seen = now,
                Err(error) => tell(format_args!("{error}; it is tried again")),
            }
        }
        Ok(())
    }

    async fn look(&self, client: &AdminClient, seen: &Seen) -> Result<Seen, BoxError> {
        let now = self.open_ones(client).await?;
        for (name, one) in &now {
            let was = seen.get(name);
            let is_same =
                |was: &Value| was["state"] == one["state"] && was["attempts"] == one["attempts"];
            if !was.is_some_and(is_same) {
                self.say(was, one)?;
            }
        }
        let mut gone = seen.iter().filter(|(name, _)| !now.contains_key(*name));
        for ((id, sink), was) in gone.by_ref().take(MAX_FOLLOWED) {
            let mut one = was.clone();
            let whole = client.get(&path(id)?).await.unwrap_or_default();
            let mut sinks = whole["sinks"].as_array().into_iter().flatten();
            let found = sinks.find(|at| at["sink"] == sink.as_str());
            one["state"] = found.map_or_else(|| "swept".into(), |at| at["state"].clone());
            if one["state"] != was["state"] {
                self.say(Some(was), &one)?;
            }
        }
        Ok(now)
    }

    async fn open_ones(&self, client: &AdminClient) -> Result<Seen, BoxError> {
        let mut seen = Seen::new();
        for state in OPEN {
            let which = MessageSelector { state: Some(state.to_owned()), ..self.which.clone() };
            for one in which.search(client, MAX_FOLLOWED).await? {
                seen.insert((text(&one["message"]), text(&one["sink"])), one);
            }
        }
        Ok(seen)
    }

    fn say(&self, was: Option<&Value>, one: &Value) -> Result<(), BoxError> {
        let before = was.map(|was| was["state"].clone()).unwrap_or_default();
        if self.which.state.as_deref().is_some_and(|state| one["state"] != state) {
            return Ok(());
        }
        if self.place.json {
            let mut line = one.clone();
            line["was"] = before;
            return print(&line.to_string());
        }
        let state = match before {
            Value::Null => text(&one["state"]),
            before => format!("{} → {}", text(&before), text(&one["state"])),
        };
        let [id, sink, topic, at, why] =
            ["message", "sink", "topic", "enqueued_at", "why"].map(|name| text(&one[name]));
        let why = if why.is_empty() { why } else { format!("  {why}") };
        print(&format!("{}  {id}  {sink}  {topic}  {state}{why}", seconds(&at)))
    }
}
