//! The PostgreSQL store means what every store means, on a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod postgres_support;

use onceward::conformance::block_on;
use postgres_support::Postgres;

onceward::core::store_conformance!(Postgres::new(), block_on);
onceward::core::inspect_conformance!(Postgres::new(), block_on);
onceward::core::spool_conformance!(Postgres::new(), block_on);
onceward::driver_conformance!(Postgres::new(), block_on);
