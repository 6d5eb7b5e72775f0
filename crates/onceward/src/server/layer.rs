//! The request path on one page.

use std::{
    collections::HashMap,
    fmt,
    future::{Future, ready},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use onceward_core::{BoxFuture, Digest, OperationId, OperationName, Outcome, Scope};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Body, BoxError, Code, IdempotencyBuilder, OptionsError, Problem, WholeBody,
    admit::{self, Admitted},
    checked::Options,
    claim::Passed,
    deferred,
    execute::{self, Served},
    fingerprint, identify, keep,
    memory::{self, PeerMemory},
    respond, shed,
};
use crate::{
    Engine,
    telemetry::{self, Answered, Begun, Route, event},
};

/// Makes the writes of a service safe to retry: a tower [`Layer`].
///
/// Cheap to clone; clones and [derived](Self::with) layers share one engine. Put authentication,
/// authorisation and rate limits *outside*, validation and handlers *inside* of it.
///
/// ```
/// # use onceward::{*, server::*, stores::memory::MemoryStore};
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
    options: Arc<Options>,
}

/// What layers share that are derived from each other; what bounds the process is [`Common`].
pub(super) struct LayerState {
    pub(super) engine: Engine,
    /// The options of every layer that covers something.
    routes: Mutex<Vec<Arc<Options>>>,
    /// The routes around the layers that take no keys.
    #[cfg(feature = "axum")]
    pub(super) uncovered: Mutex<Vec<super::status::Uncovered>>,
    /// The options of the operations that ran here and have a resolver.
    resolved: Mutex<HashMap<OperationName, Arc<Options>>>,
}

impl Idempotency {
    /// The most that requests and answers may hold in memory together, in bytes: from when they are
    /// read until they were sent. All layers on one engine count together.
    ///
    /// Answers up to 64 KiB are not counted while they are stored; the number of those is limited by
    /// [`Engine::MAX_UNSETTLED`]. A larger answer for which there is no room is read and kept all the same,
    /// four at a time, and its client is told to ask again.
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

    /// An answer that somebody found out about an unknown outcome, as this layer would keep it: without
    /// what it drops, with what it redacts hidden.
    ///
    /// ```
    /// # use onceward::{*, server::*, stores::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope).status_only().build()?;
    /// let found = Outcome::inline(201, b"secret".to_vec());
    /// assert_eq!(layer.kept(found).body, Body::Unavailable);
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
    /// # use onceward::{*, server::*, stores::memory::MemoryStore};
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
        let share = self.options.peers.as_ref().map_or(Self::MAX_BUFFERED, |peers| peers.most);
        self.engine().common().memory.of(peer.map(|address| (memory::peer_network(address), share)))
    }

    /// The memory for one request.
    pub(super) fn memory_for(&self, parts: &Parts) -> PeerMemory {
        self.memory_of(self.options.peers.as_ref().and_then(|peers| (peers.address)(parts)))
    }

    /// The engine, to drain it at shutdown.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.shared().engine
    }

    /// One request with a key, top to bottom.
    ///
    /// Not an `async fn`, which would keep room for its arguments twice: thousands may wait here.
    #[expect(clippy::manual_async_fn, reason = "see above")]
    fn answer<S, B>(
        self,
        operation: OperationId,
        mut parts: Parts,
        body: B,
        service: S,
    ) -> impl Future<Output = Result<Answer<S::Error>, Problem>> + Send
    where
        S: Served<B>,
        B: WholeBody,
    {
        async move {
            let id = operation.digest();
            let read = Box::pin(fingerprint::read(&self, operation, &parts, body));
            let (asked, held) = read.await?;
            let mut attempt = None;
            if self.options.deferred.is_some() {
                let answer = Box::pin(deferred::answer(&self, asked, parts, held, service));
                let (answered, response) = answer.await?;
                return Ok(Answer { answered, attempt, response: Ok(response) });
            }
            let (answered, response) = match admit::admit(&self, &asked, &parts).await? {
                Admitted::Run { claim, patience, counted, slot } => {
                    attempt = Some(claim.attempt());
                    // Nothing is awaited before the execution stands on its own feet.
                    let running = execute::detached(&self, (claim, slot), parts, held, service);
                    drop(counted);
                    let (answered, response) = respond::first(&self, id, running, patience).await?;
                    (answered, Ok(response))
                }
                Admitted::Replay { recalled, answered } => {
                    (answered, Ok(respond::replay(&self, id, &parts, &recalled).await?))
                }
                Admitted::Accepted(patience) => {
                    (Answered::Accepted, Ok(respond::accepted(&self, id, patience)))
                }
                Admitted::Unprotected => {
                    parts.extensions.insert(Passed::StoreDown(id));
                    let (body, _memory) = held.open();
                    let request = Request::from_parts(parts, body);
                    let response = Box::pin(execute::call(service, request)).await;
                    let response =
                        response.map(|response| respond::unprotected(&self, id, response));
                    (Answered::Unprotected, response)
                }
            };
            Ok(Answer { answered, attempt, response })
        }
    }

    /// Remembers whose resolver to ask about an operation of this name.
    pub(super) fn remember(&self, name: &OperationName) {
        if self.options.resolver.is_some() && self.options.fixed_name().is_none() {
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
            resolved: Mutex::default(),
        }
    }

    /// Tells everybody who waits for this operation to look again, here and elsewhere.
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
        let Options { methods, terms, policy, .. } = &*self.options;
        let mut debug = formatter.debug_struct("Idempotency");
        debug.field("methods", methods).field("terms", terms).field("policy", policy);
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
#[derive(Clone, Debug)]
pub struct Idempotent<S> {
    idempotency: Idempotency,
    service: S,
}

impl<S, B, R> Service<Request<B>> for Idempotent<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: fmt::Debug + Send,
    B: WholeBody,
    R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    /// Always ready: a replay does not need the service. Whoever runs waits until it is.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (idempotency, service) = (self.idempotency.clone(), self.service.clone());
        let (mut parts, body) = request.into_parts();
        let options = &idempotency.options;
        if !options.methods.contains(&parts.method) {
            return passed(service, parts, body);
        }
        shed::note(&mut parts);
        // For a handler that needs a claim, and is refused as its route does it.
        parts.extensions.insert(idempotency.options.clone());
        let asked = Asked { begun: Begun::now(), route: identify::route(options, &parts) };
        let operation = identify::operation(options, &parts).and_then(|operation| {
            // What has no key is run at once.
            if operation.is_none() {
                options.traffic.admit(shed::incoming(&parts), false)?;
            }
            Ok(operation)
        });
        let operation = match operation {
            Ok(Some(operation)) => operation,
            Ok(None) => {
                asked.route.count(Answered::Passed);
                return passed(service, parts, body);
            }
            Err(problem) => {
                let answer = Answer::refused(problem.code(), respond::refused(options, problem));
                return Box::pin(ready(asked.told(None, answer)));
            }
        };
        let id = operation.digest();
        let answer = Box::pin(idempotency.clone().answer(operation, parts, body, service));
        Box::pin(async move {
            let answer = answer.await.unwrap_or_else(|problem| {
                Answer::refused(problem.code(), respond::problem(&idempotency, id, problem))
            });
            asked.told(Some(id), answer)
        })
    }
}

/// A request that is not covered goes through untouched.
fn passed<S, B>(
    service: S,
    mut parts: Parts,
    body: B,
) -> BoxFuture<'static, Result<Response<Body>, S::Error>>
where
    S: Served<B>,
    B: WholeBody,
{
    parts.extensions.insert(Passed::Uncovered);
    let answer = execute::call(service, Request::from_parts(parts, body));
    Box::pin(async { Ok(answer.await?.map(Body::new)) })
}

/// What a request gets, and what there is to say about it.
struct Answer<E> {
    answered: Answered,
    attempt: Option<u32>,
    response: Result<Response<Body>, E>,
}

impl<E> Answer<E> {
    fn refused(code: Code, response: Response<Body>) -> Self {
        Self { answered: Answered::Refused(code), attempt: None, response: Ok(response) }
    }
}

/// Where and since when a request is counted.
struct Asked {
    begun: Begun,
    route: Route,
}

impl Asked {
    /// The one place where requests are counted and logged: just before they get their answer.
    fn told<E>(self, id: Option<Digest>, answer: Answer<E>) -> Result<Response<Body>, E> {
        let Answer { answered, attempt, response } = answer;
        let mut response = response?;
        self.route.count_timed(answered, self.begun);
        telemetry::log_request(self.route, answered, self.begun, id, attempt, response.status());
        response.extensions_mut().insert(answered);
        Ok(response)
    }
}
