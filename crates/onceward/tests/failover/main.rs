//! Servers that fail under load: primaries are killed and standbys promoted.
//!
//! Whatever happens to a server: an answer that somebody was given is given again, and what it stands for
//! was done once.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod asynchronous;
mod barrier;
mod cancelled;
mod hanging;
mod messages;
mod messages_storm;
mod oracle;
mod pair;
mod patroni;
mod synchronous;
mod till;
