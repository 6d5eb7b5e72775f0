//! `onceward check` and `onceward init`: what a person reads who has written a configuration.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "config/check.rs"]
mod check;
#[path = "config/identity.rs"]
mod identity;
#[path = "config/init.rs"]
mod init;
#[path = "config/places.rs"]
mod places;
#[path = "config/protection.rs"]
mod protection;
#[path = "config/routes.rs"]
mod routes;
#[path = "config/support.rs"]
mod support;
#[path = "config/values.rs"]
mod values;
