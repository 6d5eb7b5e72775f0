//! What a service may decide itself: who asks, who may see an answer, what became of an operation.

use std::{future::Future, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::request::Parts;
use onceward_core::{
    BoxFuture, Digest, Execution, Fingerprint, Fingerprints, Key, OperationId, OperationName,
    Outcome, Resolution, Scope, Timestamp,
};

use super::problem::Problem;
use crate::http::BoxError;

pub(super) type ScopeHook = Arc<dyn Fn(&Parts) -> Result<Scope, String> + Send + Sync>;
pub(super) type NameHook = Arc<dyn Fn(&Parts) -> Result<OperationName, String> + Send + Sync>;
/// Finds the key of a request; `Ok(None)`: it has none.
pub(super) type KeyHook = Arc<dyn Fn(&Parts) -> Result<Option<Key>, String> + Send + Sync>;
/// Whether the scope's part of this name says who asks.
pub(super) type PrincipalHook = Arc<dyn Fn(&str) -> bool + Send + Sync>;
/// Why a replay is not shown: a reason that may be empty.
pub(super) type AuthorizeHook =
    Arc<dyn Fn(&Parts) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
pub(super) type FingerprintHook = Arc<dyn Fn(Fingerprint) -> Fingerprints + Send + Sync>;
pub(super) type RejectHook = Arc<dyn Fn(&Parts) -> Option<Problem> + Send + Sync>;
pub(super) type PeerHook = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;
pub(super) type RedactHook = Arc<dyn Fn(&mut Outcome) -> Redaction + Send + Sync>;
pub(super) type ResolveHook =
    Arc<dyn Fn(Unresolved) -> BoxFuture<'static, HookResult<Resolution>> + Send + Sync>;
pub(super) type RebuildHook =
    Arc<dyn Fn(Resource) -> BoxFuture<'static, HookResult<http::Response<Bytes>>> + Send + Sync>;

/// What one peer may hold in memory, and who it is.
#[derive(Clone)]
pub(super) struct Peers {
    pub(super) most: usize,
    pub(super) address: PeerHook,
}

/// `Ok(None)`: the service knows nothing about it. `Err`: asking failed; the layer may ask again.
pub(super) type HookResult<T> = Result<Option<T>, BoxError>;

/// An operation whose outcome is unknown: the question to its resolver.
///
/// A business row that was written with [`reference`](Self::reference) or [`execution`](Self::execution)
/// under a unique constraint is the source of truth: look it up.
///
/// ```
/// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
/// # let store = MemoryStore::not_durable();
/// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
/// async fn payment_of(reference: String) -> Result<Option<String>, BoxError> {
///     // SELECT id FROM payments WHERE operation = $1
/// #   let _ = reference;
///     Ok(Some("pay_7".into()))
/// }
///
/// let layer = Idempotency::builder(store, scope).resolver(|unresolved: Unresolved| async move {
///     let payment = payment_of(unresolved.reference().to_string()).await?;
///     Ok(payment.map(|id| {
///         let body = onceward::protocol::StoredBody::Reference { kind: "payment".into(), id };
///         Resolution::Applied(Outcome { body, ..Outcome::inline(201, Vec::new()) })
///     }))
/// });
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct Unresolved {
    pub(super) reference: Digest,
    pub(super) operation: Option<OperationId>,
    pub(super) scope: Scope,
    pub(super) name: OperationName,
    pub(super) execution: Execution,
    pub(super) attempt: u32,
    pub(super) started_at: Timestamp,
}

impl Unresolved {
    /// Names the operation for ever: what [`Claim::id`](onceward_core::Claim::id) was to its handler.
    #[must_use]
    pub fn reference(&self) -> Digest {
        self.reference
    }

    /// To whom the operation belongs.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What was asked for.
    #[must_use]
    pub fn name(&self) -> &OperationName {
        &self.name
    }

    /// The execution whose end is not known.
    #[must_use]
    pub fn execution(&self) -> Execution {
        self.execution
    }

    /// Which attempt that was, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the operation was first claimed, by the store's clock.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// The key that a downstream provider was given; `None` when only the status was asked for,
    /// because the client's key is not stored.
    #[must_use]
    pub fn key_for(&self, effect: &str) -> Option<Key> {
        Some(self.operation.as_ref()?.key_for(effect))
    }
}

/// Put into a response's extensions, makes the record refer to a resource instead of its bytes.
///
/// The layer's `rebuild` option says how the answer is made again; without one the bytes are kept.
///
/// ```
/// use onceward::{Body, server::Resource};
///
/// let mut response = http::Response::new(Body::from("{\"id\":\"pay_7\", …}"));
/// response.extensions_mut().insert(Resource::new("payment", "pay_7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    kind: String,
    id: String,
}

impl Resource {
    /// A resource by its type and its id.
    #[must_use]
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }

    /// Its type, like `payment`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Put into a response's extensions, keeps its status but not its bytes: they are secret, say.
///
/// A retry gets `result-unavailable` and never runs again.
///
/// ```
/// let mut response = http::Response::new("one-time password: 123456");
/// response.extensions_mut().insert(onceward::server::NotKept);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKept;

/// What a redaction has done to an answer before it is stored.
///
/// ```
/// use onceward::server::Redaction;
///
/// assert_ne!(Redaction::Redacted, Redaction::NotKept);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// There was nothing to hide: it is stored as it is.
    Unchanged,
    /// Something was hidden: a replay says so.
    Redacted,
    /// The redaction could not find out whether there is something to hide: the layer stores only the
    /// status and `Location` of this answer, and a retry gets `result-unavailable`.
    NotKept,
}

pub(super) fn boxed<A, F, Fut>(
    hook: F,
) -> Arc<dyn Fn(A) -> BoxFuture<'static, Fut::Output> + Send + Sync>
where
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
{
    Arc::new(move |argument| Box::pin(hook(argument)))
}
