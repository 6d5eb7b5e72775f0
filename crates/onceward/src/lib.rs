//! Onceward makes writes safe to retry.
//!
//! A client taps "Pay", the network dies after the server did the work, the client retries, and it
//! must land once. This crate is what a Rust service adds: the [`Engine`], which admits requests to
//! operations and settles them, and [`store`] that remember. The protocol itself is pure and lives
//! in [`onceward_core`], which is re-exported here.
//!
//! Start with `server::Idempotency` (features `axum`, `tower`) for a service over HTTP, or with
//! [`Engine`] for anything else, and with `client::Retry` (features `client`, `reqwest`) on the side
//! that calls; `docs/guarantees.md` in the repository says what is promised.

#[cfg(feature = "client")]
pub mod client;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[doc(hidden)]
pub mod crashpoint;
pub mod engine;
#[cfg(any(feature = "client", feature = "tower"))]
mod http;
pub mod inbox;
pub mod outbox;
pub mod protocol;
#[cfg(feature = "encryption")]
pub mod seal;
#[cfg(feature = "tower")]
pub mod server;
pub mod store;
pub mod telemetry;

#[cfg(any(feature = "client", feature = "tower"))]
pub use self::http::{AttemptHeaders, Body, BoxError, Incoming};
pub use engine::{AdmitError, CommitError, Engine, Sweeper};
pub use onceward_core::{
    Digest, Effect, Ending, Execution, Fingerprint, Key, OperationId, OperationName, Outcome,
    Profile, Request, Resolution, Scope, State, Status, Store, StoreError, Terms, Timestamp,
    Verdict, message, retry,
};
