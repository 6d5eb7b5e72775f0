//! `onceward simulate`: the figures that we promise, and those of others beside them, through its JSON.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/command.rs"]
mod command;
mod command_line;
mod figures;
mod run;
mod statements;
