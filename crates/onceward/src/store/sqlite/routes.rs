//! The names of a gateway's routes, and those of live records.

use onceward_core::{Cursor, StoreError, Timestamp};
use rusqlite::{Connection, params};

use super::{
    SqliteStore,
    reader::flat,
    session::{Applied, Work},
    sql,
};
use crate::store::sql::routes::{Gathering, KeptRoute, Living};

/// How many rows one page looks at, so that other reads do not wait long.
const MAX_LOOKED_AT: i64 = 10_000;

impl SqliteStore {
    /// The names under which the routes of gateways keep their records.
    pub async fn routes(&self) -> Result<Vec<KeptRoute>, StoreError> {
        self.inner.readers.routes().await
    }

    /// Writes the names of a route, if what is stored for it is still `before`; tells whether it was.
    pub async fn keep_route(
        &self,
        before: Option<&KeptRoute>,
        route: &KeptRoute,
    ) -> Result<bool, StoreError> {
        let work = Work::KeepRoute { before: before.cloned(), route: route.clone() };
        match self.inner.writer.write(work).await? {
            Applied::Written { .. } => Ok(true),
            Applied::Refused(_) => Ok(false),
            Applied::Full(detail) => Err(StoreError::Full(detail)),
        }
    }

    /// Which names live records have, page by page: a page looks at a bounded number of records.
    pub async fn living(&self, after: Option<Cursor>) -> Result<Living, StoreError> {
        self.inner.readers.living(after).await
    }
}

pub(super) fn routes(connection: &Connection) -> Result<Vec<KeptRoute>, StoreError> {
    let mut statement = flat(connection.prepare(sql::ROUTES))?;
    let rows = statement.query_map([], |row| {
        Ok(KeptRoute {
            template: row.get(0)?,
            path: row.get(1)?,
            operation: row.get(2)?,
            parts: row.get(3)?,
            key_source: row.get(4)?,
            upstream: row.get(5)?,
        })
    });
    flat(flat(rows)?.collect())
}

/// Whether the row was as expected, and is the new one now.
pub(super) fn keep(
    connection: &Connection,
    before: Option<&KeptRoute>,
    route: &KeptRoute,
) -> rusqlite::Result<bool> {
    let KeptRoute { template, path, operation, parts, key_source, upstream } = route;
    let known = |of: fn(&KeptRoute) -> &String| before.map(of);
    let changed = connection.execute(
        sql::KEEP_ROUTE,
        params![
            template,
            path,
            operation,
            parts,
            key_source,
            upstream,
            known(|before| &before.path),
            known(|before| &before.operation),
            known(|before| &before.parts),
            known(|before| &before.key_source),
            known(|before| &before.upstream),
        ],
    )?;
    Ok(changed > 0)
}

pub(super) fn living(
    connection: &Connection,
    after: Option<&Cursor>,
    now: Timestamp,
) -> Result<Living, StoreError> {
    let after = match after {
        None => i64::MIN,
        Some(Cursor(text)) => text.parse().map_err(|_| {
            StoreError::Unusable(format!("{text:?} is not where a page of this store ended"))
        })?,
    };
    let mut statement = flat(connection.prepare(sql::LIVING))?;
    let mut rows = flat(statement.query(params![after, MAX_LOOKED_AT, now.unix_micros()]))?;
    let (mut gathering, mut looked_at, mut last) = (Gathering::default(), 0, None);
    while let Some(row) = flat(rows.next())? {
        looked_at += 1;
        last = Some(flat(row.get::<_, i64>(0))?);
        if flat(row.get(1))? {
            let scope: String = flat(row.get(3))?;
            gathering.add(flat(row.get(2))?, &scope, 1);
        }
    }
    let next = last.filter(|_| looked_at == MAX_LOOKED_AT);
    Ok(gathering.page(next.map(|seq| Cursor(seq.to_string()))))
}
