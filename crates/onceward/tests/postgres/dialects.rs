//! The same rules through a pooler, and with the statements for engines that speak PostgreSQL's wire
//! protocol: on PostgreSQL at SERIALIZABLE.

use onceward::{conformance::block_on, store::postgres::Dialect};

use crate::support::Postgres;

mod wire {
    use super::*;

    fn bench() -> Postgres {
        Postgres::with(|builder| builder.dialect(Dialect::Wire))
    }

    onceward::protocol::store_conformance!(bench(), block_on);
    onceward::protocol::inspect_conformance!(bench(), block_on);
    onceward::protocol::spool_conformance!(bench(), block_on);
}

mod pgbouncer {
    use super::*;

    /// In transaction mode: each transaction may have another connection.
    fn bench() -> Postgres {
        Postgres::with(onceward::store::postgres::PostgresStoreBuilder::unprepared)
            .through(|database| testbed::pgbouncer().url_of(database))
    }

    onceward::protocol::store_conformance!(bench(), block_on);
    onceward::protocol::inspect_conformance!(bench(), block_on);
    onceward::protocol::spool_conformance!(bench(), block_on);
}
