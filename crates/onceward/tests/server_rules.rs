//! The rules of the HTTP contract, one by one, against the server layer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod server_support;

#[path = "server_rules/bad_input.rs"]
mod bad_input;
#[path = "server_rules/errors.rs"]
mod errors;
#[path = "server_rules/fingerprint.rs"]
mod fingerprint;
#[path = "server_rules/fixture.rs"]
mod fixture;
#[path = "server_rules/identity.rs"]
mod identity;
#[path = "server_rules/in_flight.rs"]
mod in_flight;
#[path = "server_rules/logs.rs"]
mod logs;
#[path = "server_rules/meaning.rs"]
mod meaning;
#[path = "server_rules/replay.rs"]
mod replay;
#[path = "server_rules/retention.rs"]
mod retention;
#[path = "server_rules/shed.rs"]
mod shed;
#[path = "server_rules/sources.rs"]
mod sources;
#[path = "server_rules/status.rs"]
mod status;
#[path = "server_rules/unknown.rs"]
mod unknown;
#[path = "server_rules/whole.rs"]
mod whole;
