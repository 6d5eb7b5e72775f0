//! The protocol of Onceward, pure: no clock, no randomness, no I/O.
//!
//! Onceward makes writes safe to retry. This crate is the part that decides; everything that it
//! needs from the world (time, entropy, what is stored) is an argument, so that the same code runs
//! in production, under a model checker and in a simulation. Store authors depend on this crate
//! only.
//!
//! Read it in this order:
//!
//! 1. [`Record`]: what is remembered of one operation, and its [`State`].
//! 2. [`Admission`]: the state machine. A request and what is stored give the next swap or a
//!    [`Verdict`].
//! 3. [`Claim`]: the right of one execution to run, and how it ends.
//! 4. [`Store`]: the one primitive that a backend implements.
//!
//! Beside them, [`Policy`] says what the reply of a run means, and [`Repair`] what an
//! operator may change; [`retry`] is the client's half: when to send a request again.
//!
//! ```
//! use onceward_core::*;
//!
//! // A client sends `Idempotency-Key: "8e03978e"`; the server knows who it is and what it asks.
//! let operation = OperationId::new(
//!     Scope::of("tenant", "acme")?,
//!     OperationName::new("POST /charges")?,
//!     Key::parse(b"\"8e03978e\"")?,
//! );
//! let fingerprint = Fingerprint::from_parts(1, [7; 32]);
//! let terms = Terms::of(Effect::External).build()?;
//! let request = Request { operation, fingerprints: fingerprint.into(), terms };
//!
//! // The first thing to try is to create the record, before anything is read.
//! let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
//! assert_eq!(admission.change().expected, None);
//!
//! // The store took it: this execution, and no other, may run.
//! let at = Timestamp::from_unix_micros(1_700_000_000_000_000);
//! let Step::Done(Verdict::Run(claim)) = admission.next(Swap::Stored { at }) else { unreachable!() };
//! assert_eq!(claim.attempt(), 1);
//!
//! // And this is how it ends: one more swap, expecting the fence of the claim.
//! let outcome = Outcome::inline(201, b"{\"id\":1}".to_vec());
//! let settlement = claim.settle(Ending::Succeeded(outcome), Fence::from_random([3; 16]));
//! assert_eq!(settlement.change().expected, Some(claim.fence()));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod cause;
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod fence;
pub mod fingerprint;
mod found;
mod inspect;
mod key;
mod meaning;
pub mod message;
mod operation;
mod outcome;
mod record;
mod repair;
mod request;
pub mod retry;
mod scope;
mod seal;
mod shared;
mod spool;
mod status;
mod store;
mod suspect;
mod terms;
mod times;
mod trail;
mod transactional;
mod verdict;
mod wake;
pub mod wire;
mod words;

pub use admission::{Admission, Step};
pub use cause::Cause;
pub use claim::{Claim, Ending, Settled, Settlement, SettlementStep};
pub use fence::{Execution, Fence};
pub use fingerprint::*;
pub use found::{Found, Unreadable};
pub use inspect::{Cursor, Filter, Inspect, Listed, Order, PURGE_MARGIN, Page, Purge};
pub use key::{Key, KeyDigest, KeyError};
pub use meaning::{Meaning, Policy, PolicyBuilder, PolicyError, Profile, Reply};
pub use operation::{Digest, DigestError, OperationId, OperationName, OperationNameError};
pub use outcome::{Header, Keeps, Outcome, StoredBody};
pub use record::{Effect, Record, State, Stored};
pub use repair::{Force, Repair, RepairError, RepairKind, Resolution};
pub use request::Request;
pub use scope::{Scope, ScopeError};
pub use seal::Seal;
pub use spool::{Spool, SpoolId};
pub use status::Status;
pub use store::{BoxFuture, Change, SWEEP_MARGIN, Store, StoreError, StoreFuture, Swap};
pub use terms::{Terms, TermsBuilder, TermsError};
pub use times::{Started, Timestamp, Ttl};
pub use trail::{Note, NoteKind, Trail, TrailEntry};
pub use transactional::Transactional;
pub use verdict::{Replay, Verdict};
pub use wake::{OnEnded, Wake};
