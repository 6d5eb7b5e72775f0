//! What an operator or a resolver does to one operation because they know more than the protocol.

use std::fmt;

use onceward_core::{
    Digest, Fence, Force, Found, Repair, RepairError, RepairKind, Resolution, StoreError, Stored,
    Swap, Terms,
};

use super::{fresh_execution, fresh_fence};
use crate::Engine;

impl Engine {
    /// Ends an unknown outcome with what became of it.
    ///
    /// ```
    /// use onceward::{*, engine::*, protocol::*};
    ///
    /// async fn paid(engine: &Engine, id: Digest, unknown: &Stored, terms: &Terms) -> Result<(), RepairFailure> {
    ///     let resolution = Resolution::Applied(Outcome::inline(201, b"paid".to_vec()));
    ///     let (actor, reason) = (Some("ada"), Some("found at the provider"));
    ///     let why = RepairRequest { terms, actor, reason, force: Force::No };
    ///     engine.resolve(id, unknown, resolution, why).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn resolve(
        &self,
        id: Digest,
        stored: &Stored,
        resolution: Resolution,
        why: RepairRequest<'_>,
    ) -> Result<Swap, RepairFailure> {
        self.repair(fresh_fence(), id, stored, RepairKind::Resolve(resolution), why).await
    }

    /// Gives the key of an operation back, because an operator says so.
    ///
    /// ```
    /// use onceward::{*, engine::*, protocol::*, store::Swap};
    ///
    /// async fn give_back(engine: &Engine, id: Digest, failed: &Stored, terms: &Terms) -> String {
    ///     let (actor, reason) = (Some("ada"), Some("the customer wants something else"));
    ///     let why = RepairRequest { terms, actor, reason, force: Force::No };
    ///     match engine.release(id, failed, why).await {
    ///         Ok(Swap::Stored { .. }) => "the key is free".to_owned(),
    ///         Ok(Swap::Conflict(_)) => "another change came first: look again".to_owned(),
    ///         Ok(Swap::Held) => "a transaction works on it right now: try again".to_owned(),
    ///         Err(failure) => failure.to_string(),
    ///     }
    /// }
    /// ```
    pub async fn release(
        &self,
        id: Digest,
        stored: &Stored,
        why: RepairRequest<'_>,
    ) -> Result<Swap, RepairFailure> {
        self.repair(fresh_fence(), id, stored, RepairKind::Release, why).await
    }

    /// Either of them, under a fence under which an answer may be spooled.
    pub(crate) async fn repair(
        &self,
        fence: Fence,
        id: Digest,
        stored: &Stored,
        kind: RepairKind,
        why: RepairRequest<'_>,
    ) -> Result<Swap, RepairFailure> {
        let RepairRequest { terms, actor, reason, force } = why;
        let execution = fresh_execution();
        let repair = Repair { id, kind, terms, fence, execution, actor, reason, force };
        let change = repair.of(stored).map_err(RepairFailure::Refused)?;
        match self.propose(&change).await.map_err(RepairFailure::Store)? {
            // An earlier try whose reply was lost.
            Swap::Conflict(Found::Record(stored)) if stored.record.fence == fence => {
                Ok(Swap::Stored { at: stored.updated_at })
            }
            swap => Ok(swap),
        }
    }
}

/// Who repairs an operation and why, for [`Engine::resolve`] and [`Engine::release`].
///
/// ```
/// use onceward::{Effect, Terms, protocol::Force, engine::RepairRequest};
///
/// let terms = Terms::of(Effect::External).build()?;
/// let why = RepairRequest { terms: &terms, actor: Some("ada"), reason: None, force: Force::No };
/// # let _ = why;
/// # Ok::<(), onceward::protocol::TermsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RepairRequest<'a> {
    /// The terms of its route.
    pub terms: &'a Terms,
    /// Who says so, for the trail.
    pub actor: Option<&'a str>,
    /// Why, for the trail.
    pub reason: Option<&'a str>,
    /// Whether to change also what may have happened, or may still happen.
    pub force: Force,
}

/// Why an operation was not repaired. Nothing was changed as far as is known.
///
/// ```
/// use onceward::{engine::RepairFailure, protocol::RepairError};
///
/// fn advice(failure: &RepairFailure) -> String {
///     match failure {
///         RepairFailure::Refused(RepairError::TooEarly { left }) => format!("again in {left:?}"),
///         RepairFailure::Refused(_) => "look at the record again".into(),
///         RepairFailure::Store(_) => "it may be done or not: look at the record again".into(),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairFailure {
    /// The record does not take this repair, not yet, or not without force.
    Refused(RepairError),
    /// The store does not answer as it should.
    Store(StoreError),
}

impl fmt::Display for RepairFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RepairFailure {}
