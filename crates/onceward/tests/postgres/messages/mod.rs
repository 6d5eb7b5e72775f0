//! The outbox and the inbox on a real server.

mod conformance;
mod copies;
mod drivers;
mod functions;
mod histories;
mod reads;
#[cfg(feature = "relay")]
mod relay;
pub(crate) mod support;
mod with_commit;
