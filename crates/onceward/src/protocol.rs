//! The protocol: what a request, a record and a claim are, and every decision about them, pure.
//!
//! This is the crate `onceward-core` under another name. What stores implement is in
//! [`store`](crate::store), the client's half in [`retry`](crate::retry). Read it in this order:
//! [`Record`], [`Admission`], [`Claim`].
//!
//! ```
//! use onceward::{Effect, Terms, protocol::{Keeps, TermsError}};
//!
//! let terms = Terms::of(Effect::Transactional).keeps(Keeps::Status).build()?;
//! assert_eq!(terms.keeps(), Keeps::Status);
//! # Ok::<(), TermsError>(())
//! ```

pub use onceward_core::{
    // What is decided.
    Admission,
    Cause,
    Claim,
    Digest,
    DigestError,
    Effect,
    Ending,
    Execution,
    Fence,
    // What a request asks.
    Fingerprint,
    Fingerprinter,
    Fingerprints,
    // What an operator repairs.
    Force,
    Found,
    Header,
    Keeps,
    Key,
    KeyDigest,
    KeyError,
    Meaning,
    OperationId,
    OperationName,
    OperationNameError,
    Outcome,
    Policy,
    PolicyBuilder,
    PolicyError,
    Profile,
    RawFingerprinter,
    Record,
    Repair,
    RepairError,
    RepairKind,
    Replay,
    Reply,
    Request,
    RequestHead,
    Resolution,
    Scope,
    ScopeError,
    Seal,
    Settled,
    Settlement,
    SettlementStep,
    Started,
    State,
    Status,
    Step,
    Stored,
    // What is remembered.
    StoredBody,
    Terms,
    TermsBuilder,
    TermsError,
    Timestamp,
    Ttl,
    Unreadable,
    Verdict,
    WholeFingerprinter,
    fingerprint,
    wire,
};
#[cfg(feature = "conformance")]
pub use onceward_core::{
    conformance, inbox_conformance, inspect_conformance, queue_conformance, spool_conformance,
    store_conformance,
};
