//! `onceward doctor`: what a person is told who runs a gateway.

mod access;
mod command;
mod guide;
mod routes;
mod store;
mod support;
