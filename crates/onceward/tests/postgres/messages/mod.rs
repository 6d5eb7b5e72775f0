//! The outbox and the inbox on a real server.

mod conformance;
