//! The PostgreSQL store means what every store means, on a real server.

use onceward::conformance::block_on;

use crate::support::Postgres;

onceward::protocol::store_conformance!(Postgres::new(), block_on);
onceward::protocol::inspect_conformance!(Postgres::new(), block_on);
onceward::protocol::spool_conformance!(Postgres::new(), block_on);
onceward::driver_conformance!(Postgres::new(), block_on);
