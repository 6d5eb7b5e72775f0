//! `onceward doctor`: what a person is told who runs a gateway.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "doctor/access.rs"]
mod access;
#[path = "doctor/command.rs"]
mod command;
#[path = "doctor/guide.rs"]
mod guide;
#[path = "doctor/routes.rs"]
mod routes;
#[path = "doctor/store.rs"]
mod store;
#[path = "doctor/support.rs"]
mod support;
