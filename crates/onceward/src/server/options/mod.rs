//! Everything that can be chosen for a layer.

pub(super) mod checked;
pub(super) mod error;
mod in_flight;

use std::{fmt, future::Future, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, request::Parts};
use onceward_core::{Effect, OperationName, Outcome, Profile, Resolution, Scope, Spool};

use super::{
    BoxError, Errors, Idempotency, OptionsError, Problem,
    hooks::{NameHook, Peers, Redaction, Resource, Unresolved, boxed},
    idempotency::LayerState,
    key::KeyPlace,
};
use crate::Engine;
use checked::{Chosen, Name};
pub use in_flight::InFlight;

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
    /// The longest that a duplicate may wait in its transaction: it holds a connection meanwhile.
    pub const MAX_DEFERRED_WAIT: Duration = Duration::from_secs(5);

    pub(super) fn new<E: fmt::Display>(
        engine: Engine,
        scope: impl Fn(&Parts) -> Result<Scope, E> + Send + Sync + 'static,
    ) -> Self {
        let chosen = Chosen {
            scope: Arc::new(move |parts| scope(parts).map_err(|error| error.to_string())),
            spool: None,
            name: None,
            methods: vec![Method::POST, Method::PATCH],
            key_place: KeyPlace::default(),
            key_required: false,
            effect: Effect::External,
            lease: None,
            retain: None,
            unknown_retain: None,
            retry_window: None,
            max_run: None,
            profile: None,
            hold_500: false,
            not_applied: Vec::new(),
            released_statuses: Vec::new(),
            final_statuses: Vec::new(),
            in_flight: None,
            deferred: None,
            prefer: true,
            challenge: Problem::CHALLENGE.to_owned(),
            scope_errors_told: false,
            errors: None,
            mismatch: None,
            stale_keys_refused: false,
            max_request: 1 << 20,
            max_inline: 64 << 10,
            max_response: 8 << 20,
            fingerprint_headers: Vec::new(),
            fingerprints: None,
            keep_headers: Vec::new(),
            drop_headers: Vec::new(),
            authorize: None,
            resolver: None,
            rebuild: None,
            redact: None,
            reject: None,
            retry_share: 0.2,
            status_only: false,
            max_open: Idempotency::MAX_OPEN,
            max_late: Idempotency::MAX_LATE,
            principal: None,
            peers: None,
            pass_when_store_is_down: false,
            status_path: "/.onceward".to_owned(),
            route: None,
        };
        Self { shared: Arc::new(LayerState::new(engine)), chosen }
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

    /// Tells a caller why it has no scope, in the words of the scope's error: they must not repeat
    /// secrets. If not said, they are only logged.
    pub fn tell_scope_errors(mut self) -> Self {
        self.chosen.scope_errors_told = true;
        self
    }

    /// What a request without a scope is asked for: `WWW-Authenticate` of the 401, `Bearer` if not said.
    pub fn challenge(mut self, challenge: impl Into<String>) -> Self {
        self.chosen.challenge = challenge.into();
        self
    }

    /// Where answers over [`max_inline`](Self::max_inline) are kept: usually the same store.
    ///
    /// Without it they are not kept: a retry is told `result-unavailable` and never runs again.
    pub fn spool(mut self, spool: impl Spool) -> Self {
        self.chosen.spool = Some(Arc::new(spool));
        self
    }

    /// Names the operation, as in `charge.create`. If not said: method and route template.
    ///
    /// Two routes with one name share their keys.
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.chosen.name = Some(Name::Fixed(name.into()));
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

    /// Which methods are covered: POST and PATCH if not said; PUT and DELETE may be added.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.chosen.methods = methods.into_iter().collect();
        self
    }

    /// Refuses requests without a key. If not said they pass, unprotected.
    pub fn require_key(mut self) -> Self {
        self.chosen.key_required = true;
        self
    }

    /// What is at stake: [`Effect::External`] if not said, which never runs twice.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.chosen.effect = effect;
        self
    }

    /// How long a claim lives unrenewed: 30 s if not said. It is renewed while the handler runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.chosen.lease = Some(lease);
        self
    }

    /// How long a retry gets the same answer, counted from the end: 24 h if not said.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.chosen.retain = Some(retain);
        self
    }

    /// How long an unknown outcome is kept: for ever if not said.
    pub fn unknown_retain(mut self, retain: Duration) -> Self {
        self.chosen.unknown_retain = Some(retain);
        self
    }

    /// The longest time in which anybody may still retry: a shorter retention is refused.
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.chosen.retry_window = Some(window);
        self
    }

    /// How long a handler may run before its client is told that nobody knows: 10 min if not said.
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.chosen.max_run = Some(max_run);
        self
    }

    /// What a 5xx, or no answer, means: see [`Profile`]. If not said, [`Profile::Standard`], and
    /// [`Profile::Rerun`] for a repeatable effect.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.chosen.profile = Some(profile);
        self
    }

    /// A 500 is an unknown outcome instead of a final answer (profiles standard and strict).
    pub fn hold_500(mut self) -> Self {
        self.chosen.hold_500 = true;
        self
    }

    /// 5xx statuses that the handler sends only before doing anything: they give the key free.
    pub fn not_applied(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.chosen.not_applied = statuses.into_iter().collect();
        self
    }

    /// 4xx statuses that the handler sends only when it did nothing: they give the key free, as 401 and
    /// 429 do anyway.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// // 409 while the account is busy: a retry shall be run. 429: the quota of the month is used up.
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope)
    ///     .released_statuses([409])
    ///     .final_statuses([429])
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn released_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.chosen.released_statuses = statuses.into_iter().collect();
        self
    }

    /// 4xx and 5xx statuses whose answer is final: it is kept and replayed, whatever the profile says.
    pub fn final_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.chosen.final_statuses = statuses.into_iter().collect();
        self
    }

    /// What a duplicate gets meanwhile: [`InFlight::Wait`] for 5 s if not said.
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.chosen.in_flight = Some(in_flight);
        self
    }

    /// Leaves the claim to the handler: it is made, and ends, in the handler's own transaction, by
    /// [`Deferred::run_in`](super::Deferred::run_in). One commit instead of two.
    ///
    /// Nobody sees such a claim before it is committed. So it needs no renewal, and a crash leaves
    /// nothing behind; but a duplicate runs the handler up to there and holds a connection, waits for
    /// 50 ms at most and then gets 409 `in-progress`. No waiting for the answer, no 202, no status
    /// while it runs. Only for [`Effect::Transactional`], and only on PostgreSQL: on SQLite the one
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

    /// How long a duplicate of a [deferred](Self::deferred) claim waits in its own transaction for the
    /// one that is open: 50 ms if not said, 5 s at most.
    pub fn deferred_wait(mut self, wait: Duration) -> Self {
        self.chosen.deferred = Some(wait);
        self
    }

    /// Clients have no say in that: `Prefer` is ignored.
    pub fn ignore_prefer(mut self) -> Self {
        self.chosen.prefer = false;
        self
    }

    /// The status for a key that was used for something else: 422 if not said, or 409, or 400. With
    /// [`Errors::Stripe`] it is 400 if not said.
    pub fn mismatch_status(mut self, status: u16) -> Self {
        self.chosen.mismatch = Some(status);
        self
    }

    /// How refusals are written: [`Errors::Stripe`] with [`Profile::Stripe`], else
    /// [`Errors::Problem`], if not said. It changes nothing of what binds a key.
    pub fn errors(mut self, errors: Errors) -> Self {
        self.chosen.errors = Some(errors);
        self
    }

    /// Refuses to run for a `UUIDv7` key that is older than the retention: its answer is forgotten.
    pub fn refuse_stale_keys(mut self) -> Self {
        self.chosen.stale_keys_refused = true;
        self
    }

    /// The largest request with a key, in bytes: 1 MiB if not said. It is read before it runs.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.chosen.max_request = bytes;
        self
    }

    /// The largest answer that is kept in the record itself, in bytes: 64 KiB if not said.
    pub fn max_inline(mut self, bytes: usize) -> Self {
        self.chosen.max_inline = bytes;
        self
    }

    /// The largest answer that is kept at all, in bytes: 8 MiB if not said.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.chosen.max_response = bytes;
        self
    }

    /// A header that is part of what the request means.
    pub fn fingerprint_header(mut self, name: impl Into<String>) -> Self {
        self.chosen.fingerprint_headers.push(name.into());
        self
    }

    /// Makes fingerprints with these keys, so that nobody can guess a request from what is stored.
    ///
    /// Records that were made without a key, or with one that only reads, are still recognised.
    #[cfg(feature = "encryption")]
    pub fn fingerprint_keys(mut self, keys: Arc<crate::seal::Keyring>) -> Self {
        self.chosen.fingerprints = Some(Arc::new(move |plain| keys.fingerprints(plain)));
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
    /// At most once in 5 s for each key, for 5 s at most. `Ok(None)`: nobody knows yet.
    pub fn resolver<F, Fut>(mut self, resolver: F) -> Self
    where
        F: Fn(Unresolved) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Resolution>, BoxError>> + Send + 'static,
    {
        self.chosen.resolver = Some(boxed(resolver));
        self
    }

    /// Hides in an answer what must not be stored; its first client gets it whole.
    ///
    /// It sees what would be stored, with the body in one piece however large it is, if it is kept at
    /// all. A replay of what was [`Redacted`](Redaction::Redacted) carries `Onceward-Redacted: true`. A
    /// panic counts as [`NotKept`](Redaction::NotKept); the status stays as it is in any case.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let store = MemoryStore::not_durable();
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let layer = Idempotency::builder(store, scope).redact(|outcome: &mut Outcome| {
    ///     let secret = outcome.headers.iter_mut().find(|(name, _)| **name == *"x-one-time-token");
    ///     match secret {
    ///         None => Redaction::Unchanged,
    ///         Some((_, value)) => {
    ///             *value = b"[redacted]"[..].into();
    ///             Redaction::Redacted
    ///         }
    ///     }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn redact(
        mut self,
        redact: impl Fn(&mut Outcome) -> Redaction + Send + Sync + 'static,
    ) -> Self {
        self.chosen.redact = Some(Arc::new(redact));
        self
    }

    /// Stores the status of an answer and its `Location`, if any, and nothing else of it.
    ///
    /// A retry is told `result-unavailable` and never runs again.
    pub fn status_only(mut self) -> Self {
        self.chosen.status_only = true;
        self
    }

    /// How many operations of one caller may run in this process at once: 1,000 if not said.
    ///
    /// One more that is new is refused with 429 `too-many-open`. Duplicates are not: they get the
    /// answer, or wait for it. Layers on one engine count together, each by its own limit.
    pub fn max_open(mut self, executions: usize) -> Self {
        self.chosen.max_open = executions;
        self
    }

    /// How many executions may listen for a late answer: [`Idempotency::MAX_LATE`] if not said.
    ///
    /// Each keeps what its answer comes through, as a connection. Layers on one engine count together, each
    /// by its own limit.
    pub fn max_late(mut self, executions: usize) -> Self {
        self.chosen.max_late = executions;
        self
    }

    /// Refuses operations that would run while this gives a reason, and claims nothing for them: where
    /// what they need is known to be down. Duplicates and replays are answered as ever.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// # let store = MemoryStore::not_durable();
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// static IS_DOWN: AtomicBool = AtomicBool::new(false);
    /// let layer = Idempotency::builder(store, scope).reject(|_| {
    ///     let is_down = IS_DOWN.load(Relaxed);
    ///     is_down.then(|| Problem::new(Code::Overloaded, "the ledger is down; try again later"))
    /// });
    /// # let _ = layer;
    /// ```
    pub fn reject(
        mut self,
        reason: impl Fn(&Parts) -> Option<Problem> + Send + Sync + 'static,
    ) -> Self {
        self.chosen.reject = Some(Arc::new(reason));
        self
    }

    /// Of all that would run, at most this part may be retries, once there are 50 requests in 10 s: a
    /// fifth if not said, 1 for any number. One more is refused with 429 `retry-budget-exhausted`.
    ///
    /// A retry is what its client says is one (`Onceward-Attempt`), or what has run before or was given
    /// back. Replays, waits and first attempts are never refused so. Each layer counts for itself.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope).retry_share(0.1).build()?;
    /// # let _ = layer;
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn retry_share(mut self, share: f64) -> Self {
        self.chosen.retry_share = share;
        self
    }

    /// Which parts of a scope, by their names, say who asks: [`max_open`](Self::max_open) counts by
    /// these alone. Parts that a caller chooses freely would give it a quota for each value.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let store = MemoryStore::not_durable();
    /// let scope = |_: &http::request::Parts| Scope::new([("user", "7"), ("cart", "a1")]);
    /// let layer = Idempotency::builder(store, scope).principal(|part| part == "user").build()?;
    /// # let _ = layer;
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn principal(mut self, says_who: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.chosen.principal = Some(Arc::new(says_who));
        self
    }

    /// How many bytes the requests and answers of one peer may hold in memory: all of
    /// [`Idempotency::MAX_BUFFERED`] if not said. The address is the client's, behind your proxies;
    /// `None` is no peer and has no bound of its own. An IPv6 network of 64 bits is one peer.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let store = MemoryStore::not_durable();
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// use std::net::SocketAddr;
    /// use axum::extract::ConnectInfo;
    ///
    /// let layer = Idempotency::builder(store, scope).peer_memory(64 << 20, |parts| {
    ///     let ConnectInfo(address) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    ///     Some(address.ip())
    /// });
    /// # let _ = layer;
    /// ```
    pub fn peer_memory(
        mut self,
        bytes: usize,
        address: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.chosen.peers = Some(Peers { most: bytes, address: Arc::new(address) });
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

    /// Runs requests unprotected while the store is down, instead of refusing them with 503.
    ///
    /// Their answers carry `Onceward-Unprotected: store-unavailable`, and each raises an alarm.
    pub fn pass_when_store_is_down(mut self) -> Self {
        self.chosen.pass_when_store_is_down = true;
        self
    }

    /// Where the status routes are mounted: `/.onceward` if not said.
    pub fn status_path(mut self, path: impl Into<String>) -> Self {
        self.chosen.status_path = path.into();
        self
    }

    /// Under which name requests are counted in [metrics](crate::telemetry).
    ///
    /// If not said: the operation's fixed name, or what axum's router matched, or `other`.
    pub fn route_label(mut self, name: impl Into<String>) -> Self {
        self.chosen.route = Some(name.into());
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
