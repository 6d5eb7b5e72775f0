//! The command on the command line: its words, the files that it reads, the tables that it makes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../gateway_support/command.rs"]
mod command;
mod config;
mod migrate;
mod packages;
mod words;
