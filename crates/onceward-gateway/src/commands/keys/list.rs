//! `onceward keys list` and `show`, and which operations a command line names.

use serde_json::{Map, Value};

use super::{AdminClient, BoxError, List, OperationSelector, Show, print, show_one, table};
use crate::commands::terminal::tell;

impl List {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        if let Some(reference) = &self.which.operation {
            let one = admin_client.get(&format!("/v1/operations/{reference}")).await?;
            return show_list(&[one], self.place.json);
        }
        let mut filter = self.which.filter();
        if self.newest {
            filter.insert("order".into(), "newest".into());
        }
        let found = admin_client.search(filter, self.limit as usize).await?;
        show_list(&found, self.place.json)?;
        if found.len() == self.limit as usize {
            tell("there may be more: say --limit");
        }
        Ok(())
    }
}

impl Show {
    pub(super) async fn run(&self) -> Result<(), BoxError> {
        let admin_client = AdminClient::open(&self.place).await?;
        let reference = self.which.one(&admin_client).await?;
        let document = admin_client.get(&format!("/v1/operations/{reference}")).await?;
        show_one(&document, self.place.json)
    }
}

fn show_list(found: &[Value], is_json: bool) -> Result<(), BoxError> {
    match is_json {
        true => print(&format!("{:#}", Value::from(found))),
        false if found.is_empty() => print("nothing is found"),
        false => print(&table::lines(found)),
    }
}

impl OperationSelector {
    /// As the operators' listener takes it.
    pub(super) fn filter(&self) -> Map<String, Value> {
        let given = [
            ("state", self.state.clone()),
            ("scope", self.scope.clone()),
            ("name", self.name.clone()),
            ("older", self.older.map(|older| format!("{}ms", older.as_millis()))),
            ("key", self.key.clone()),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect()
    }

    pub(super) fn is_one(&self) -> bool {
        self.key.is_some() || self.operation.is_some()
    }

    pub(super) async fn one(&self, admin_client: &AdminClient) -> Result<String, BoxError> {
        if let Some(reference) = &self.operation {
            if !self.filter().is_empty() {
                return Err("--operation names one operation: leave the other filters out".into());
            }
            return Ok(reference.clone());
        }
        if self.key.is_none() {
            return Err("say which operation: --operation <REF>, or --key <KEY>".into());
        }
        let found = admin_client.search(self.filter(), 10).await?;
        match found.as_slice() {
            [] => Err("there is no such operation now; what was purged is found by its reference \
                       (--operation), and --scope and --name are spelled as a list shows them"
                .into()),
            [one] => Ok(one["operation"].as_str().unwrap_or_default().to_owned()),
            several => {
                tell(table::lines(several));
                Err("several callers or operations have this key: say which with --operation"
                    .into())
            }
        }
    }
}
