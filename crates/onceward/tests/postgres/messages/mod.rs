//! The outbox and the inbox on a real server.

mod conformance;
mod copies;
mod drivers;
mod functions;
mod histories;
mod reads;
mod support;
