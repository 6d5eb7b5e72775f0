//! Everything that can be chosen for a layer.

pub(super) mod checked;
pub(super) mod error;
mod in_flight;
pub(super) mod table;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::request::Parts;
use onceward_core::{OperationName, Resolution, Scope};

use super::{
    BoxError, Idempotency, OptionsError,
    hooks::{NameHook, Resource, Unresolved, boxed},
    idempotency::LayerState,
};
use crate::Engine;
use checked::Name;
pub use in_flight::InFlight;
use table::Chosen;

/// Collects the options of an [`Idempotency`] layer; nothing is checked before
/// [`build`](Self::build).
///
/// ```
/// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
/// # use std::time::Duration;
/// # let store = MemoryStore::not_durable();
/// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
/// // A provider that remembers keys for a day, and whose 529 means that nothing was done.
/// let payments = Idempotency::builder(store, scope)
///     .require_key()
///     .effect(Effect::Repeatable { within: Duration::from_secs(23 * 3600) })
///     .not_applied([529])
///     .retry_window(Duration::from_secs(3600))
///     .build()?;
/// # let _ = payments;
/// # Ok::<(), OptionsError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct IdempotencyBuilder {
    shared: Arc<LayerState>,
    pub(super) chosen: Chosen,
}

impl IdempotencyBuilder {
    /// How long a duplicate waits if [`in_flight`](Self::in_flight) is not said: a client whose own
    /// time-out was a little too short gets the answer with its next attempt.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(5);
    /// The longest that a request may wait for another one's answer.
    pub const MAX_WAIT: Duration = Duration::from_secs(30);
    /// The largest request with a key if [`max_request`](Self::max_request) is not said, in bytes.
    pub const DEFAULT_MAX_REQUEST: usize = 1 << 20;
    /// The largest answer in the record itself if [`max_inline`](Self::max_inline) is not said, in bytes.
    pub const DEFAULT_MAX_INLINE: usize = 64 << 10;
    /// The largest answer that is kept if [`max_response`](Self::max_response) is not said, in bytes.
    pub const DEFAULT_MAX_RESPONSE: usize = 8 << 20;
    /// The part of all that runs that may be retries if [`retry_share`](Self::retry_share) is not said.
    pub const DEFAULT_RETRY_SHARE: f64 = 0.2;
    /// The longest that a duplicate may wait in its transaction: it holds a connection meanwhile.
    pub const MAX_DEFERRED_WAIT: Duration = Duration::from_secs(5);

    pub(super) fn new<E: fmt::Display>(
        engine: Engine,
        scope: impl Fn(&Parts) -> Result<Scope, E> + Send + Sync + 'static,
    ) -> Self {
        Self { shared: Arc::new(LayerState::new(engine)), chosen: Chosen::of(scope) }
    }

    /// Whose operation a request is, for a route that tells it in another way: see
    /// [`Idempotency::builder`].
    pub fn scope<E: fmt::Display>(
        mut self,
        scope: impl Fn(&Parts) -> Result<Scope, E> + Send + Sync + 'static,
    ) -> Self {
        self.chosen.scope = Arc::new(move |parts| scope(parts).map_err(|error| error.to_string()));
        self
    }

    /// Names the operation by the request, for services without route templates.
    pub fn operation_by<E: fmt::Display>(
        mut self,
        name: impl Fn(&Parts) -> Result<OperationName, E> + Send + Sync + 'static,
    ) -> Self {
        let hook: NameHook = Arc::new(move |parts| name(parts).map_err(|error| error.to_string()));
        self.chosen.name = Some(Name::By(hook));
        self
    }

    /// Leaves the claim to the handler: it is made, and ends, in the handler's own transaction, by
    /// [`Deferred::run_in`](super::Deferred::run_in). One commit instead of two.
    ///
    /// No process sees such a claim before its commit. So it needs no renewal, and a crash leaves
    /// nothing behind; but a duplicate runs the handler up to there and holds a connection, waits for
    /// 50 ms at most and then gets 409 `in-progress`. No waiting for the answer, no 202, no status
    /// while it runs. Only for [`Effect::Transactional`](crate::Effect), and only on PostgreSQL: on SQLite the one
    /// write lock would be held for as long as the handler runs.
    #[cfg_attr(feature = "postgres", doc = "```no_run")]
    #[cfg_attr(not(feature = "postgres"), doc = "```ignore")]
    /// # use onceward::{*, server::*, protocol::*, store::postgres::PostgresStore};
    /// # async fn build() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let store = PostgresStore::connect("postgres://shop@localhost/shop").await?;
    /// let charges = Idempotency::builder(store, scope)
    ///     .effect(Effect::Transactional)
    ///     .deferred()
    ///     .build()?;
    /// # let _ = charges;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deferred(mut self) -> Self {
        self.chosen.deferred.get_or_insert(Duration::from_millis(50));
        self
    }

    /// A header that is part of what the request means.
    pub fn fingerprint_header(mut self, name: impl Into<String>) -> Self {
        self.chosen.fingerprint_headers.push(name.into());
        self
    }

    /// Keeps a header that is usually not replayed, as `set-cookie`.
    pub fn keep_header(mut self, name: impl Into<String>) -> Self {
        self.chosen.keep_headers.push(name.into());
        self
    }

    /// Does not replay this header.
    pub fn drop_header(mut self, name: impl Into<String>) -> Self {
        self.chosen.drop_headers.push(name.into());
        self
    }

    /// Asked before a stored answer is sent: `false` is 403 `replay-forbidden`.
    pub fn authorize_replay<F, Fut>(self, authorize: F) -> Self
    where
        F: Fn(&Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.authorize_replay_or_say(move |parts| {
            let allowed = authorize(parts);
            async move { if allowed.await { Ok(()) } else { Err(String::new()) } }
        })
    }

    /// The same, with a reason for the caller: what is wrong with a token, say.
    pub fn authorize_replay_or_say<F, Fut>(mut self, authorize: F) -> Self
    where
        F: Fn(&Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.chosen.authorize = Some(Arc::new(move |parts| Box::pin(authorize(parts))));
        self
    }

    /// Asked what became of an unknown outcome, on the next request or status read of its key.
    ///
    /// At most once in 5 s for each key, for 5 s at most. `Ok(None)`: the service does not know yet.
    pub fn resolver<F, Fut>(mut self, resolver: F) -> Self
    where
        F: Fn(Unresolved) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Resolution>, BoxError>> + Send + 'static,
    {
        self.chosen.resolver = Some(boxed(resolver));
        self
    }

    /// Makes the answer of a stored [`Resource`] again; its status and other headers are stored.
    pub fn rebuild<F, Fut>(mut self, rebuild: F) -> Self
    where
        F: Fn(Resource) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<http::Response<Bytes>>, BoxError>> + Send + 'static,
    {
        self.chosen.rebuild = Some(boxed(rebuild));
        self
    }

    /// Checks the options as a whole.
    pub fn build(self) -> Result<Idempotency, OptionsError> {
        let options = self.chosen.clone().check()?.deferred_on(&self.shared.engine)?;
        let options = options.spooled_beside(&self.shared.engine);
        Ok(Idempotency::from_parts(self, options))
    }

    pub(super) fn shared(&self) -> &Arc<LayerState> {
        &self.shared
    }
}
