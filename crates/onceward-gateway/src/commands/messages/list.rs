//! `onceward messages list` and `show`, and which messages a command line names.

use serde_json::{Map, Value};

use super::{AdminClient, BoxError, List, MessageSelector, Show, print, show_one, table};
use crate::commands::terminal::tell;

/// The longest page.
const PAGE: usize = 500;

impl List {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let client = self.place.open().await?;
        let found = self.which.search(&client, self.limit as usize).await?;
        match self.place.json {
            true => print(&format!("{:#}", Value::from(found.clone())))?,
            false if found.is_empty() => print("nothing is found")?,
            false => print(&table::lines(&found))?,
        }
        if found.len() == self.limit as usize {
            tell("there may be more: say --limit");
        }
        Ok(())
    }
}

impl Show {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let client = self.place.open().await?;
        let path = path(&self.message)?;
        let mut document = client.get(&path).await?;
        if self.body {
            let body = client.get(&format!("{path}/body")).await?;
            for name in ["body", "body_base64"] {
                document[name] = body[name].clone();
            }
        }
        show_one(&document, self.place.json)
    }
}

/// Where one message is.
pub(super) fn path(id: &str) -> Result<String, BoxError> {
    let id = uuid::Uuid::try_parse(id)
        .map_err(|_| "this is not the id of a message: `onceward messages list` shows them")?;
    Ok(format!("/v1/messages/{id}"))
}

impl MessageSelector {
    /// As the operators' listener takes it.
    pub(super) fn filter(&self) -> Map<String, Value> {
        let given = [
            ("sink", self.sink.clone()),
            ("state", self.state.clone()),
            ("topic", self.topic.clone()),
            ("aggregate", self.aggregate.clone()),
            ("older", self.older.map(|older| format!("{}ms", older.as_millis()))),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect()
    }

    /// One page, and where the next one begins.
    pub(super) async fn page(
        &self,
        client: &AdminClient,
        most: usize,
        after: Option<&str>,
    ) -> Result<(Vec<Value>, Option<String>), BoxError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.filter() {
            query.append_pair(name, value.as_str().unwrap_or_default());
        }
        query.append_pair("limit", &most.min(PAGE).to_string());
        query.extend_pairs(after.map(|after| ("after", after)));
        let mut page = client.get(&format!("/v1/messages?{}", query.finish())).await?;
        let next = page["next"].as_str().map(str::to_owned);
        let found = page["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok((found, next))
    }

    /// So many of what it selects, page by page.
    pub(super) async fn search(
        &self,
        client: &AdminClient,
        most: usize,
    ) -> Result<Vec<Value>, BoxError> {
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < most {
            let (page, next) = self.page(client, most - found.len(), after.as_deref()).await?;
            found.extend(page);
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }
}
