//! The eight traps of the contract, through a router and, where it is about bytes, a real socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod server_support;

#[path = "server_traps/bench.rs"]
mod bench;
#[path = "server_traps/trap_1.rs"]
mod trap_1;
#[path = "server_traps/trap_2.rs"]
mod trap_2;
#[path = "server_traps/trap_3.rs"]
mod trap_3;
#[path = "server_traps/trap_4.rs"]
mod trap_4;
#[path = "server_traps/trap_5.rs"]
mod trap_5;
#[path = "server_traps/trap_6.rs"]
mod trap_6;
#[path = "server_traps/trap_7.rs"]
mod trap_7;
#[path = "server_traps/trap_8.rs"]
mod trap_8;
