//! The Redis store means what every store means, on a real server.

use onceward::conformance::block_on;

use crate::support::Redis;

onceward::protocol::store_conformance!(Redis::new(), block_on);
onceward::protocol::inspect_conformance!(Redis::new(), block_on);
onceward::protocol::spool_conformance!(Redis::new(), block_on);
onceward::driver_conformance!(Redis::new(), block_on);
