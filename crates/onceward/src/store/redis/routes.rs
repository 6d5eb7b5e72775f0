//! The names of a gateway's routes, and those of live records.

use onceward_core::{Cursor, Found, Order, Status, StoreError};
use redis::{Cmd, Value};
use serde::{Deserialize, Serialize};

use super::{
    RedisStore,
    link::Question,
    list::{ListPosition, Looked, Sets, WINDOW},
    rows,
    servers::Line,
};
use crate::store::sql::routes::{Gathering, KeptRoute, Living};

/// How a route is written, under its template.
#[derive(Serialize, Deserialize)]
struct Written {
    path: String,
    operation: String,
    parts: String,
    #[serde(default)]
    key_source: String,
    #[serde(default)]
    upstream: String,
}

impl RedisStore {
    /// The names under which the routes of gateways keep their records.
    pub async fn routes(&self) -> Result<Vec<KeptRoute>, StoreError> {
        let mut command = redis::cmd("HGETALL");
        command.arg(self.keys().routes());
        let asked = self.inner.servers.ask(0, Line::Operators, Question::One(&command)).await?;
        let values = rows::several(asked.into_iter().next().unwrap_or_default())?;
        let mut routes = Vec::with_capacity(values.len() / 2);
        for pair in values.chunks_exact(2) {
            let [template, written] = [&pair[0], &pair[1]].map(|value| match value {
                Value::BulkString(bytes) => bytes.as_slice(),
                _ => &[],
            });
            routes.push(read(&String::from_utf8_lossy(template), written)?);
        }
        routes.sort_unstable_by(|one: &KeptRoute, other| one.template.cmp(&other.template));
        Ok(routes)
    }

    /// Writes the names of a route, if what is stored for it is still `before`; tells whether it was.
    pub async fn keep_route(
        &self,
        before: Option<&KeptRoute>,
        route: &KeptRoute,
    ) -> Result<bool, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys().routes()).arg(&route.template);
        let asked = self.inner.servers.ask(0, Line::Operators, Question::One(&command)).await?;
        let stored = rows::bytes(asked.into_iter().next().unwrap_or_default())?;
        let known = stored.as_deref().map(|stored| read(&route.template, stored)).transpose()?;
        if known.as_ref() != before {
            return Ok(false);
        }
        let written = serde_json::to_vec(&Written {
            path: route.path.clone(),
            operation: route.operation.clone(),
            parts: route.parts.clone(),
            key_source: route.key_source.clone(),
            upstream: route.upstream.clone(),
        });
        let written = written.map_err(|error| StoreError::Refused(error.to_string()))?;
        let fill = |command: &mut Cmd| {
            command.arg(1).arg(self.keys().routes()).arg(&route.template);
            command.arg(stored.as_deref().unwrap_or_default()).arg(written);
        };
        let script = &self.inner.scripts.keep_route;
        let kept = script.run(&self.inner.servers, (0, Line::Operators), 512, fill).await?;
        Ok(rows::number(&kept)? == 1)
    }

    /// Which names live records have, page by page: a page looks at a bounded number of records.
    pub async fn living(&self, after: Option<Cursor>) -> Result<Living, StoreError> {
        let after = after.map(|Cursor(text)| ListPosition::read(&text)).transpose()?;
        let window = self.window(Sets::Both, Order::OldestFirst, after, WINDOW).await?;
        let mut gathering = Gathering::default();
        for places in window.places.chunks(128) {
            for Looked { found, .. } in self.look(places).await? {
                if let Some(Found::Record(stored)) = found
                    && !matches!(stored.status(), Status::Released | Status::Expired)
                {
                    let record = stored.record;
                    let (operation, scope) = (record.operation.as_str().to_owned(), record.scope);
                    gathering.add(operation, &scope.to_string(), 1);
                }
            }
        }
        let next = window.places.last().filter(|_| !window.is_last);
        Ok(gathering.page(next.map(|place| place.cursor())))
    }
}

fn read(template: &str, written: &[u8]) -> Result<KeptRoute, StoreError> {
    let read: Written = serde_json::from_slice(written).map_err(|_| {
        StoreError::Unusable(format!("what is stored for the route {template:?} cannot be read"))
    })?;
    let Written { path, operation, parts, key_source, upstream } = read;
    Ok(KeptRoute { template: template.to_owned(), path, operation, parts, key_source, upstream })
}
