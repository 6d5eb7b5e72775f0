//! What a caller asks for.

use crate::{Fingerprints, OperationId, Terms};

/// What a caller asks for: the operation, what the request means, and the terms of its route.
///
/// ```
/// use onceward_core::*;
///
/// let request = Request {
///     operation: OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?),
///     fingerprints: Fingerprint::v1(&RequestHead::new("POST", "/pay"), b"{}").into(),
///     terms: Terms::of(Effect::External).build()?,
/// };
/// # let _ = request;
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// What is to be done once.
    pub operation: OperationId,
    /// What the request means, under every version that can be computed.
    pub fingerprints: Fingerprints,
    /// The terms on which it is run.
    pub terms: Terms,
}
