//! The layer: what all its requests share.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::request::Parts;
use onceward_core::{Digest, OperationName, Outcome, Policy, Scope};
use tower_layer::Layer;

use super::{
    IdempotencyBuilder, OptionsError,
    memory::{self, PeerMemory},
    options::checked::Options,
    steps::keep,
};
use crate::{Engine, telemetry::event};

/// Makes the writes of a service safe to retry: a tower [`Layer`].
///
/// Cheap to clone; clones and [derived](Self::with) layers share one engine. Put authentication,
/// authorisation and rate limits *outside*, validation and handlers *inside* of it.
///
/// ```
/// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
/// # use std::time::Duration;
/// # fn main() -> Result<(), OptionsError> {
/// # let store = MemoryStore::not_durable();
/// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
/// let charges = Idempotency::builder(store, scope)
///     .require_key()
///     .in_flight(InFlight::Wait(Duration::from_secs(2)))
///     .build()?;
/// // The same engine, other promises: for another route.
/// let refunds = charges.with(|options| options.retain(Duration::from_secs(7 * 24 * 3600)))?;
/// # let _ = refunds;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Idempotency {
    builder: Arc<IdempotencyBuilder>,
    pub(super) options: Arc<Options>,
}

/// What layers share that are derived from each other; what bounds the process is [`Common`].
pub(super) struct LayerState {
    pub(super) engine: Engine,
    /// The options of every layer that covers something.
    routes: Mutex<Vec<Arc<Options>>>,
    /// The routes around the layers that take no keys.
    #[cfg(feature = "axum")]
    pub(super) uncovered: Mutex<Vec<super::axum::status::Uncovered>>,
    /// How the store may lose what it acknowledged.
    #[cfg(feature = "axum")]
    pub(super) losses: Mutex<Vec<String>>,
    /// The options of the operations that ran here and have a resolver.
    resolved: Mutex<HashMap<OperationName, Arc<Options>>>,
}

impl Idempotency {
    /// The most that requests and answers may hold in memory together, in bytes: from when they are
    /// read until they were sent. All layers on one engine count together.
    ///
    /// Answers up to 64 KiB are not counted while they are stored; the number of those is limited by
    /// [`Engine::MAX_UNSETTLED`]. A larger answer for which there is no room is read and kept all the same,
    /// four at a time, and the layer tells its client to ask again.
    pub const MAX_BUFFERED: usize = 256 << 20;
    /// How long `authorize_replay` and `rebuild` may take; after that a stored answer is not shown.
    pub const MAX_ASKING: Duration = Duration::from_secs(15);
    /// How many operations of one scope may run in one process at once, if not said otherwise: more
    /// than a caller needs, and a tenth of what all of them may have.
    pub const MAX_OPEN: usize = 1_000;
    /// How many executions may listen for an answer that is late, while their outcome counts as unknown, if
    /// not said otherwise.
    pub const MAX_LATE: usize = 256;
    /// How many requests may wait for the answer of one operation.
    pub const MAX_WAITERS: usize = 10_000;

    /// A layer on this engine, or on a store of its own. The scope says whose operation a request
    /// is; a request for which it fails is refused with 401.
    ///
    /// Scopes come from a verified identity and stay the same for the whole retention: a token that
    /// is refreshed would be a new scope, and the retry would run again.
    pub fn builder<E: fmt::Display>(
        engine: impl Into<Engine>,
        scope: impl Fn(&Parts) -> Result<Scope, E> + Send + Sync + 'static,
    ) -> IdempotencyBuilder {
        IdempotencyBuilder::new(engine.into(), scope)
    }

    /// A layer with some options changed, for another route.
    pub fn with(
        &self,
        change: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    ) -> Result<Self, OptionsError> {
        change(IdempotencyBuilder::clone(&self.builder)).build()
    }

    /// An answer that a resolver or an operator found out, as this layer would keep it.
    ///
    /// It is without what the layer drops, and with what it redacts hidden.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope).status_only().build()?;
    /// let found = Outcome::inline(201, b"secret".to_vec());
    /// assert_eq!(layer.kept(found).body, StoredBody::Unavailable);
    /// # use onceward::Body;
    /// # Ok::<(), OptionsError>(())
    /// ```
    #[must_use]
    pub fn kept(&self, found_out: Outcome) -> Outcome {
        keep::found_out(&self.options, found_out)
    }

    /// The memory that requests of this peer may still take up, for code around the layer that keeps
    /// bytes itself. How much one peer may have is said by
    /// [`peer_memory`](IdempotencyBuilder::peer_memory); `None` is bound only by what all have together.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope).build()?;
    /// let mut reserved = layer.memory_of(None).nothing();
    /// assert!(reserved.grow_to(1000) && !reserved.grow_to(Idempotency::MAX_BUFFERED + 1));
    /// let body = reserved.hold("what was read".into()); // counts until it is dropped
    /// # let _ = body;
    /// # Ok::<(), OptionsError>(())
    /// ```
    #[must_use]
    pub fn memory_of(&self, peer: Option<IpAddr>) -> PeerMemory {
        let share =
            self.options.chosen.peers.as_ref().map_or(Self::MAX_BUFFERED, |peers| peers.most);
        self.engine().common().memory.of(peer.map(|address| (memory::peer_network(address), share)))
    }

    pub(super) fn memory_for(&self, parts: &Parts) -> PeerMemory {
        self.memory_of(self.options.chosen.peers.as_ref().and_then(|peers| (peers.address)(parts)))
    }

    /// What the answers of its service mean for their keys.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.options.policy
    }

    /// The engine, to drain it at shutdown.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared().engine
    }

    /// Remembers whose resolver to ask about an operation of this name.
    pub(super) fn remember(&self, name: &OperationName) {
        if self.options.chosen.resolver.is_some() && self.options.fixed_name().is_none() {
            let mut resolved = lock(&self.shared().resolved);
            if resolved.len() < LayerState::MAX_REMEMBERED && !resolved.contains_key(name) {
                resolved.insert(name.clone(), self.options.clone());
            }
        }
    }

    /// The options of the route that an operation of this name came through, if that is certain.
    #[cfg(feature = "axum")]
    pub(super) fn options_of(&self, name: &OperationName) -> Option<Arc<Options>> {
        let routes = self.shared().routes();
        let fixed = routes.iter().find(|options| options.fixed_name() == Some(name)).cloned();
        fixed.or_else(|| lock(&self.shared().resolved).get(name).cloned())
    }

    pub(super) fn from_parts(builder: IdempotencyBuilder, options: Options) -> Self {
        Self { builder: Arc::new(builder), options: Arc::new(options) }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn shared(&self) -> &Arc<LayerState> {
        self.builder.shared()
    }
}

impl LayerState {
    /// Names by path may be many; for more than these a status read asks no resolver.
    const MAX_REMEMBERED: usize = 10_000;

    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            routes: Mutex::default(),
            #[cfg(feature = "axum")]
            uncovered: Mutex::default(),
            #[cfg(feature = "axum")]
            losses: Mutex::default(),
            resolved: Mutex::default(),
        }
    }

    /// Wakes all requests that wait for this operation, in every process.
    pub(super) fn ended(&self, id: &Digest) {
        self.engine.common().waiters.wake(id);
        if let Some(wake) = self.engine.store().wake() {
            wake.ended(id);
        }
    }

    pub(super) fn routes(&self) -> MutexGuard<'_, Vec<Arc<Options>>> {
        lock(&self.routes)
    }

    /// Remembers that a layer covers something; a name that two of them have is noted.
    fn register(&self, options: &Arc<Options>) {
        let mut routes = self.routes();
        if routes.iter().any(|known| Arc::ptr_eq(known, options)) {
            return;
        }
        if let Some(name) = options.fixed_name()
            && routes.iter().any(|known| known.fixed_name() == Some(name))
        {
            tracing::info!(event = event::NAME_SHARED, %name, "two layers have the same operation name and share their keys");
        }
        routes.push(options.clone());
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { chosen, terms, policy, .. } = &*self.options;
        let mut debug = formatter.debug_struct("Idempotency");
        debug.field("methods", &chosen.methods).field("terms", terms).field("policy", policy);
        debug.finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Idempotency {
    type Service = Idempotent<S>;

    fn layer(&self, service: S) -> Idempotent<S> {
        self.shared().register(&self.options);
        Idempotent { idempotency: self.clone(), service }
    }
}

/// A service whose writes are safe to retry: see [`Idempotency`].
///
/// ```
/// use onceward::server::{Idempotency, Idempotent};
///
/// fn covered<S>(idempotency: &Idempotency, service: S) -> Idempotent<S> {
///     tower::Layer::layer(idempotency, service)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Idempotent<S> {
    pub(super) idempotency: Idempotency,
    pub(super) service: S,
}
