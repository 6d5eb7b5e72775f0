//! What somebody does to one operation because they know more than the protocol.

use std::fmt;

use onceward_core::{
    Change, Digest, Fence, Force, Found, Release, ReleaseError, Resolution, Resolve, ResolveError,
    StoreError, Stored, Swap, Terms,
};

use super::{fresh_execution, fresh_fence};
use crate::Engine;

impl Engine {
    /// Ends an unknown outcome, because somebody found out what became of it.
    pub async fn resolve(
        &self,
        id: Digest,
        stored: &Stored,
        found_out: ResolveRequest<'_>,
    ) -> Result<Swap, ResolveFailure> {
        self.resolve_as(fresh_fence(), id, stored, found_out).await
    }

    /// The same under a fence under which an answer may be spooled.
    pub(crate) async fn resolve_as(
        &self,
        fence: Fence,
        id: Digest,
        stored: &Stored,
        found_out: ResolveRequest<'_>,
    ) -> Result<Swap, ResolveFailure> {
        let ResolveRequest { resolution, terms, actor, reason, force } = found_out;
        let execution = fresh_execution();
        let resolve = Resolve { id, resolution, terms, fence, execution, actor, reason, force };
        let change = resolve.of(stored).map_err(ResolveFailure::Refused)?;
        self.repair(&change).await.map_err(ResolveFailure::Store)
    }

    /// Gives the key of an operation back, because an operator says so.
    ///
    /// ```
    /// use onceward::{*, engine::*, protocol::*, store::Swap};
    ///
    /// async fn give_back(engine: &Engine, id: Digest, failed: &Stored, terms: &Terms) -> String {
    ///     let (actor, reason) = (Some("ada"), Some("the customer wants something else"));
    ///     let given_back = ReleaseRequest { terms, actor, reason, force: Force::No };
    ///     match engine.release(id, failed, given_back).await {
    ///         Ok(Swap::Stored { .. }) => "the key is free".to_owned(),
    ///         Ok(Swap::Conflict(_)) => "somebody else was faster: look again".to_owned(),
    ///         Ok(Swap::Held) => "somebody works on it right now: try again".to_owned(),
    ///         Err(failure) => failure.to_string(),
    ///     }
    /// }
    /// ```
    pub async fn release(
        &self,
        id: Digest,
        stored: &Stored,
        given_back: ReleaseRequest<'_>,
    ) -> Result<Swap, ReleaseFailure> {
        let ReleaseRequest { terms, actor, reason, force } = given_back;
        let (fence, execution) = (fresh_fence(), fresh_execution());
        let release = Release { id, terms, fence, execution, actor, reason, force };
        let change = release.of(stored).map_err(ReleaseFailure::Refused)?;
        self.repair(&change).await.map_err(ReleaseFailure::Store)
    }

    /// A conflict with the own fence is an earlier try whose reply was lost.
    async fn repair(&self, change: &Change) -> Result<Swap, StoreError> {
        Ok(match self.propose(change).await? {
            Swap::Conflict(Found::Record(stored)) if stored.record.fence == change.next.fence => {
                Swap::Stored { at: stored.updated_at }
            }
            swap => swap,
        })
    }
}

/// What somebody found out about an unknown outcome, for [`Engine::resolve`].
///
/// ```
/// use onceward::{*, engine::*, protocol::*};
///
/// async fn paid(engine: &Engine, id: Digest, unknown: &Stored, terms: &Terms) -> Result<(), ResolveFailure> {
///     let resolution = Resolution::Applied(Outcome::inline(201, b"paid".to_vec()));
///     let (actor, reason) = (Some("ada"), Some("found at the provider"));
///     let found_out = ResolveRequest { resolution, terms, actor, reason, force: Force::No };
///     engine.resolve(id, unknown, found_out).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ResolveRequest<'a> {
    /// What became of it.
    pub resolution: Resolution,
    /// The terms of its route.
    pub terms: &'a Terms,
    /// Who says so, for the trail.
    pub actor: Option<&'a str>,
    /// Why, for the trail.
    pub reason: Option<&'a str>,
    /// Whether also if it runs or was interrupted, or if it is too early to say never.
    pub force: Force,
}

/// Who gives a key back and why, for [`Engine::release`].
///
/// ```
/// use onceward::{Effect, Terms, protocol::Force, engine::ReleaseRequest};
///
/// let terms = Terms::of(Effect::External).build()?;
/// let asked = ReleaseRequest { terms: &terms, actor: Some("ada"), reason: None, force: Force::No };
/// # let _ = asked;
/// # Ok::<(), onceward::protocol::TermsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReleaseRequest<'a> {
    /// The terms of its route.
    pub terms: &'a Terms,
    /// Who says so, for the trail.
    pub actor: Option<&'a str>,
    /// Why, for the trail.
    pub reason: Option<&'a str>,
    /// Whether also if it runs, or if a repeatable effect may have happened.
    pub force: Force,
}

/// Why an unknown outcome was not resolved. Nothing was changed as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveFailure {
    /// It may not be resolved like that, or not yet.
    Refused(ResolveError),
    /// The store does not answer as it should.
    Store(StoreError),
}

impl fmt::Display for ResolveFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for ResolveFailure {}

/// Why a key was not given back. Nothing was changed as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseFailure {
    /// It may not be released, or not without force.
    Refused(ReleaseError),
    /// The store does not answer as it should.
    Store(StoreError),
}

impl fmt::Display for ReleaseFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for ReleaseFailure {}
