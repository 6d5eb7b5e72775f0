//! The PostgreSQL store means what every store means, on a real server.

use onceward::conformance::block_on;

use crate::support::Postgres;

onceward::core::store_conformance!(Postgres::new(), block_on);
onceward::core::inspect_conformance!(Postgres::new(), block_on);
onceward::core::spool_conformance!(Postgres::new(), block_on);
onceward::driver_conformance!(Postgres::new(), block_on);
