//! The server layer: one line in a tower or axum service, and the whole contract holds.
//!
//! One request, top to bottom, one file a step; [`Idempotency`] in `layer.rs` is the page to read:
//!
//! 1. *identify*: which operation is this? Pass, if none.
//! 2. *fingerprint*: read the request and hash what it means.
//! 3. *admit*: run, replay, wait, or refuse.
//! 4. *execute*: run the service, detached from its client, with a claim that is renewed.
//! 5. *capture*: read its answer to the end.
//! 6. *settle*: make the end durable.
//! 7. *respond*: send what was stored.
//!
//! ```
//! use axum::{Router, http::request::Parts, routing::post};
//! use onceward::{*, server::{Claim, Idempotency}, protocol::*, store::memory::MemoryStore};
//!
//! // Who asks? Your authentication has verified it and left it in the request's extensions.
//! #[derive(Clone)]
//! struct Tenant(String);
//!
//! fn scope(request: &Parts) -> Result<Scope, &'static str> {
//!     let tenant = request.extensions.get::<Tenant>().ok_or("not signed in")?;
//!     Scope::of("tenant", &tenant.0).map_err(|_| "not signed in")
//! }
//!
//! async fn charge(claim: Claim, body: String) -> String {
//!     format!("charged {body} with {}", claim.key_for("stripe.charge").as_str())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::not_durable();           // SqliteStore::open("onceward.db")? in earnest
//! let idempotency = Idempotency::builder(store, scope).require_key().build()?;
//! let app: Router = Router::new().route("/charges", post(charge)).layer(idempotency);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "axum")]
mod axum;
mod body;
mod claim;
mod commit;
mod common;
mod deadline;
mod headers;
mod hooks;
mod idempotency;
mod key;
mod layer;
mod memory;
mod options;
mod prefer;
mod problem;
mod steps;

pub(crate) use crate::http::{Body, BoxError};
pub use body::WholeBody;
pub use claim::Claim;
pub use commit::{Completed, IntoAnswer};
pub(crate) use common::Common;
pub use deadline::Deadline;
pub use hooks::{NotKept, Redaction, Resource, Unresolved};
pub use idempotency::{Idempotency, Idempotent};
pub use memory::{PeerMemory, Reservation, peer_network};
pub use options::error::OptionsError;
pub use options::{IdempotencyBuilder, InFlight};
pub use problem::{Code, Errors, Problem};
pub use steps::deferred::Deferred;
pub use steps::late::{CompleteWithin, InDoubt, NoAnswer, cause_of};
