//! A swap inside a transaction of the user's own means exactly what the store's own swap means.
//!
//! The suite runs on stores whose every change is made on a connection of the user's own, with each
//! driver: committed if it was stored, rolled back if not.

use onceward::{
    StoreError,
    conformance::block_on,
    store::{
        BoxFuture, Change, SpoolId, Swap, Transactional,
        postgres::{Dialect, PostgresStore},
    },
};

use crate::{
    support::Postgres,
    transactional_support::{Driver, InTransactions, put_inside, swap_inside},
};

/// The transactions of tokio-postgres, also those that deadpool wraps.
#[derive(Clone)]
struct WithTokio {
    pool: deadpool_postgres::Pool,
}

impl Driver<Postgres> for WithTokio {
    fn connect(bench: &Postgres, store: &PostgresStore) -> Self {
        Self { pool: crate::support::pool(bench.database(store).url()) }
    }

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let mut client = self.pool.get().await.unwrap();
            let transaction = client.transaction().await.unwrap();
            swap_inside!(store, transaction, change)
        })
    }

    fn put<'a>(
        &'a self,
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut client = self.pool.get().await.unwrap();
            let transaction = client.transaction().await.unwrap();
            put_inside!(store, transaction, id, index, chunk)
        })
    }
}

#[derive(Clone)]
struct WithSqlx {
    pool: sqlx::PgPool,
}

impl Driver<Postgres> for WithSqlx {
    fn connect(bench: &Postgres, store: &PostgresStore) -> Self {
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(8);
        Self { pool: options.connect_lazy(bench.database(store).url()).unwrap() }
    }

    fn swap<'a>(
        &'a self,
        store: &'a PostgresStore,
        change: &'a Change,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(async {
            let transaction = self.pool.begin().await.unwrap();
            swap_inside!(store, transaction, change)
        })
    }

    fn put<'a>(
        &'a self,
        store: &'a PostgresStore,
        id: &'a SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let transaction = self.pool.begin().await.unwrap();
            put_inside!(store, transaction, id, index, chunk)
        })
    }
}

fn bench<D: Driver<Postgres>>() -> InTransactions<Postgres, D> {
    InTransactions::over(Postgres::new())
}

mod with_tokio_postgres {
    use super::*;

    onceward::protocol::store_conformance!(bench::<WithTokio>(), block_on);
    onceward::protocol::inspect_conformance!(bench::<WithTokio>(), block_on);
    onceward::protocol::spool_conformance!(bench::<WithTokio>(), block_on);
}

mod with_sqlx {
    use super::*;

    onceward::protocol::store_conformance!(bench::<WithSqlx>(), block_on);
    onceward::protocol::spool_conformance!(bench::<WithSqlx>(), block_on);
}

/// With the statements for engines that only speak PostgreSQL's wire protocol.
mod over_the_wire {
    use super::*;

    fn bench() -> InTransactions<Postgres, WithTokio> {
        InTransactions::over(Postgres::with(|builder| builder.dialect(Dialect::Wire)))
    }

    onceward::protocol::store_conformance!(bench(), block_on);
}
