//! The names of a gateway's routes, and those of live records.

use onceward_core::{Cursor, StoreError};
use tokio_postgres::{Row, types::Type};

use super::{
    PostgresStore,
    error::{Trouble, store_error},
    list::{ListPosition, window_end},
    sql,
};
use crate::store::sql::routes::{Gathering, KeptRoute, Living};

impl PostgresStore {
    /// The names under which the routes of gateways keep their records.
    pub async fn routes(&self) -> Result<Vec<KeptRoute>, StoreError> {
        let question = "
            SELECT template, path, operation, parts, key_source, upstream FROM onceward.route
            ORDER BY template";
        let rows = self.operator_link().await?.ask(question, &[]).await?;
        rows.iter().map(|row| kept(row).map_err(|error| store_error(&error))).collect()
    }

    /// Writes the names of a route, if what is stored for it is still `before`; tells whether it was.
    pub async fn keep_route(
        &self,
        before: Option<&KeptRoute>,
        route: &KeptRoute,
    ) -> Result<bool, StoreError> {
        let KeptRoute { template, path, operation, parts, key_source, upstream } = route;
        let known = |of: fn(&KeptRoute) -> &String| before.map(of);
        let (old_path, old_operation, old_parts, old_key_source, old_upstream) = (
            known(|before| &before.path),
            known(|before| &before.operation),
            known(|before| &before.parts),
            known(|before| &before.key_source),
            known(|before| &before.upstream),
        );
        let link = self.inner.rare_writes.link().await?;
        let parameters: super::link::Parameters<'_> = &[
            template,
            path,
            operation,
            parts,
            key_source,
            upstream,
            &old_path,
            &old_operation,
            &old_parts,
            &old_key_source,
            &old_upstream,
        ];
        let written = link.write(&sql::KEEP_ROUTE, parameters).await;
        Ok(!written.map_err(Trouble::into_error)?.is_empty())
    }

    /// Which names live records have, page by page: a page looks at a bounded number of records.
    pub async fn living(&self, after: Option<Cursor>) -> Result<Living, StoreError> {
        let after = after.map(|Cursor(text)| ListPosition::read(&text)).transpose()?;
        let link = self.operator_link().await?;
        let end = window_end(&link, after).await?;
        let question = "
            SELECT r.operation, r.scope, pg_catalog.count(*) FROM onceward.record r
            WHERE ($1::pg_catalog.timestamptz IS NULL
                    OR (r.sweep_after, r.digest) OPERATOR(pg_catalog.>) ($1, $2))
                AND ($3::pg_catalog.timestamptz IS NULL
                    OR (r.sweep_after, r.digest) OPERATOR(pg_catalog.<=) ($3, $4))
                AND r.state OPERATOR(pg_catalog.<>) 5::pg_catalog.int2
                AND (r.state OPERATOR(pg_catalog.=) 0::pg_catalog.int2 OR r.expires_at IS NULL
                    OR r.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
            GROUP BY r.operation, r.scope";
        let (after_at, after_id) = (after.map(|place| place.at), after.map(ListPosition::id));
        let (end_at, end_id) = (end.map(|place| place.at), end.map(ListPosition::id));
        let times = (Type::TIMESTAMPTZ, Type::BYTEA);
        let rows = link
            .ask(
                question,
                &[
                    (&after_at, times.0.clone()),
                    (&after_id, times.1.clone()),
                    (&end_at, times.0),
                    (&end_id, times.1),
                ],
            )
            .await?;
        let mut gathering = Gathering::default();
        for row in &rows {
            let taken = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            let (operation, scope, count): (String, String, i64) =
                taken().map_err(|error| store_error(&error))?;
            gathering.add(operation, &scope, u64::try_from(count).unwrap_or_default());
        }
        Ok(gathering.page(end.map(ListPosition::cursor)))
    }
}

fn kept(row: &Row) -> Result<KeptRoute, tokio_postgres::Error> {
    Ok(KeptRoute {
        template: row.try_get(0)?,
        path: row.try_get(1)?,
        operation: row.try_get(2)?,
        parts: row.try_get(3)?,
        key_source: row.try_get(4)?,
        upstream: row.try_get(5)?,
    })
}
