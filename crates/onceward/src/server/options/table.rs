//! The table of options: each with its words, its setter, what it sets, and what counts if it is not said.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::{Method, request::Parts};
use onceward_core::{Effect, Outcome, Profile, Scope, Spool};

use super::checked::Name;
use crate::server::{
    Errors, Idempotency, IdempotencyBuilder, InFlight, Problem,
    hooks::{
        AuthorizeHook, FingerprintHook, Peers, PrincipalHook, RebuildHook, RedactHook, Redaction,
        RejectHook, ResolveHook, ScopeHook,
    },
    key::KeyPlace,
};

/// A row is the setter of the builder, the field that it sets, its value, and the value that counts without it.
/// Fields above the rows have setters of more than one line, which are in `mod.rs`.
macro_rules! options {
    (
        $($field:ident: $type:ty,)*
        ;
        $(
            $(#[$about:meta])*
            $setter:ident($($argument:ident: $argument_type:ty),*)
                sets $set:ident: $set_type:ty = $value:expr, default $default:expr;
        )*
    ) => {
        /// What was asked for, before it is known to fit together.
        #[derive(Clone)]
        pub(crate) struct Chosen {
            pub(crate) scope: ScopeHook,
            $(pub(crate) $field: $type,)*
            $(pub(crate) $set: $set_type,)*
        }

        impl Chosen {
            pub(super) fn of<E: fmt::Display>(
                scope: impl Fn(&Parts) -> Result<Scope, E> + Send + Sync + 'static,
            ) -> Self {
                Self {
                    scope: Arc::new(move |parts| scope(parts).map_err(|error| error.to_string())),
                    $($field: Default::default(),)*
                    $($set: $default,)*
                }
            }
        }

        impl IdempotencyBuilder {
            $(
                $(#[$about])*
                pub fn $setter(mut self, $($argument: $argument_type),*) -> Self {
                    self.chosen.$set = $value;
                    self
                }
            )*
        }
    };
}

options! {
    authorize: Option<AuthorizeHook>,
    resolver: Option<ResolveHook>,
    rebuild: Option<RebuildHook>,
    key_place: KeyPlace,
    fingerprint_headers: Vec<String>,
    keep_headers: Vec<String>,
    drop_headers: Vec<String>,
    ;
    /// Tells a caller why it has no scope, in the words of the scope's error: they must not repeat
    /// secrets. If not said, they are only logged.
    tell_scope_errors() sets scope_errors_told: bool = true, default false;
    /// Where answers over [`max_inline`](Self::max_inline) are kept: usually the same store.
    ///
    /// Without it they are not kept: a retry gets `result-unavailable` and never runs again.
    spool(spool: impl Spool)
        sets spool: Option<Arc<dyn Spool>> = Some(Arc::new(spool)), default None;
    /// Which methods are covered: POST and PATCH if not said; PUT and DELETE may be added.
    methods(methods: impl IntoIterator<Item = Method>)
        sets methods: Vec<Method>
            = methods.into_iter().collect(),
            default vec![Method::POST, Method::PATCH];
    /// Refuses requests without a key. If not said they pass, unprotected.
    require_key() sets key_required: bool = true, default false;
    /// How long a duplicate of a [deferred](Self::deferred) claim waits in its own transaction for the
    /// one that is open: 50 ms if not said, 5 s at most.
    deferred_wait(wait: Duration) sets deferred: Option<Duration> = Some(wait), default None;
    /// Clients have no say in that: `Prefer` is ignored.
    ignore_prefer() sets prefer: bool = false, default true;
    /// Refuses to run for a `UUIDv7` key that is older than the retention: its answer is forgotten.
    refuse_stale_keys() sets stale_keys_refused: bool = true, default false;
    /// The largest request with a key, in bytes: 1 MiB if not said. It is read before it runs.
    max_request(bytes: usize)
        sets max_request: usize = bytes, default IdempotencyBuilder::DEFAULT_MAX_REQUEST;
    /// The largest answer that is kept in the record itself, in bytes: 64 KiB if not said.
    max_inline(bytes: usize)
        sets max_inline: usize = bytes, default IdempotencyBuilder::DEFAULT_MAX_INLINE;
    /// The largest answer that is kept at all, in bytes: 8 MiB if not said.
    max_response(bytes: usize)
        sets max_response: usize = bytes, default IdempotencyBuilder::DEFAULT_MAX_RESPONSE;
    /// Makes fingerprints with these keys, so that a reader of the store cannot guess a request.
    ///
    /// Records that were made without a key, or with one that only reads, are still recognised.
    #[cfg(feature = "encryption")]
    fingerprint_keys(keys: Arc<crate::seal::Keyring>)
        sets fingerprints: Option<FingerprintHook>
            = Some(Arc::new(move |plain| keys.fingerprints(plain))),
            default None;
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
    redact(redact: impl Fn(&mut Outcome) -> Redaction + Send + Sync + 'static)
        sets redact: Option<RedactHook> = Some(Arc::new(redact)), default None;
    /// Stores the status of an answer and its `Location`, if any, and nothing else of it.
    ///
    /// A retry gets `result-unavailable` and never runs again.
    status_only() sets status_only: bool = true, default false;
    /// How many operations of one caller may run in this process at once: 1,000 if not said.
    ///
    /// One more that is new is refused with 429 `too-many-open`. Duplicates are not: they get the
    /// answer, or wait for it. Layers on one engine count together, each by its own limit.
    max_open(executions: usize)
        sets max_open: usize = executions, default Idempotency::MAX_OPEN;
    /// How many executions may listen for a late answer: [`Idempotency::MAX_LATE`] if not said.
    ///
    /// Each keeps what its answer comes through, as a connection. Layers on one engine count together, each
    /// by its own limit.
    max_late(executions: usize)
        sets max_late: usize = executions, default Idempotency::MAX_LATE;
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
    reject(reason: impl Fn(&Parts) -> Option<Problem> + Send + Sync + 'static)
        sets reject: Option<RejectHook> = Some(Arc::new(reason)), default None;
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
    principal(says_who: impl Fn(&str) -> bool + Send + Sync + 'static)
        sets principal: Option<PrincipalHook> = Some(Arc::new(says_who)), default None;
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
    peer_memory(bytes: usize, address: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static)
        sets peers: Option<Peers>
            = Some(Peers { most: bytes, address: Arc::new(address) }),
            default None;
    /// Runs requests unprotected while the store is down, instead of refusing them with 503.
    ///
    /// Their answers carry `Onceward-Unprotected: store-unavailable`, and each raises an alarm.
    pass_when_store_is_down() sets pass_when_store_is_down: bool = true, default false;
    /// Where the status routes are mounted: `/.onceward` if not said.
    status_path(path: impl Into<String>)
        sets status_path: String = path.into(), default "/.onceward".to_owned();
    /// What a request without a scope is asked for: `WWW-Authenticate` of the 401, `Bearer` if not said.
    challenge(challenge: impl Into<String>)
        sets challenge: String = challenge.into(), default Problem::CHALLENGE.to_owned();
    /// Names the operation, as in `charge.create`. If not said: method and route template.
    ///
    /// Two routes with one name share their keys.
    operation(name: impl Into<String>)
        sets name: Option<Name> = Some(Name::Fixed(name.into())), default None;
    /// What is at stake: [`Effect::External`] if not said, which never runs twice.
    effect(effect: Effect) sets effect: Effect = effect, default Effect::External;
    /// How long a claim lives unrenewed: 30 s if not said. It is renewed while the handler runs.
    lease(lease: Duration) sets lease: Option<Duration> = Some(lease), default None;
    /// How long a retry gets the same answer, counted from the end: 24 h if not said.
    retain(retain: Duration) sets retain: Option<Duration> = Some(retain), default None;
    /// How long an unknown outcome is kept: for ever if not said.
    unknown_retain(retain: Duration)
        sets unknown_retain: Option<Duration> = Some(retain), default None;
    /// The longest time in which a client may still retry: `build` refuses a shorter retention.
    retry_window(window: Duration)
        sets retry_window: Option<Duration> = Some(window), default None;
    /// How long a handler may run before its outcome counts as unknown: 10 min if not said.
    max_run(max_run: Duration) sets max_run: Option<Duration> = Some(max_run), default None;
    /// What a 5xx, or no answer, means: see [`Profile`]. If not said, [`Profile::Standard`], and
    /// [`Profile::Rerun`] for a repeatable effect.
    profile(profile: Profile) sets profile: Option<Profile> = Some(profile), default None;
    /// A 500 is an unknown outcome instead of a final answer (profiles standard and strict).
    hold_500() sets hold_500: bool = true, default false;
    /// 5xx statuses that the handler sends only before doing anything: they give the key free.
    not_applied(statuses: impl IntoIterator<Item = u16>)
        sets not_applied: Vec<u16> = statuses.into_iter().collect(), default Vec::new();
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
    released_statuses(statuses: impl IntoIterator<Item = u16>)
        sets released_statuses: Vec<u16> = statuses.into_iter().collect(), default Vec::new();
    /// 4xx and 5xx statuses whose answer is final: it is kept and replayed, whatever the profile says.
    final_statuses(statuses: impl IntoIterator<Item = u16>)
        sets final_statuses: Vec<u16> = statuses.into_iter().collect(), default Vec::new();
    /// What a duplicate gets meanwhile: [`InFlight::Wait`] for 5 s if not said.
    in_flight(in_flight: InFlight)
        sets in_flight: Option<InFlight> = Some(in_flight), default None;
    /// The status for a key that was used for something else: 422 if not said, or 409, or 400. With
    /// [`Errors::Stripe`] it is 400 if not said.
    mismatch_status(status: u16) sets mismatch: Option<u16> = Some(status), default None;
    /// How refusals are written: [`Errors::Stripe`] with [`Profile::Stripe`], else
    /// [`Errors::Problem`], if not said. It changes nothing of what binds a key.
    errors(errors: Errors) sets errors: Option<Errors> = Some(errors), default None;
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
    retry_share(share: f64)
        sets retry_share: f64 = share, default IdempotencyBuilder::DEFAULT_RETRY_SHARE;
    /// Under which name requests are counted in [metrics](crate::telemetry).
    ///
    /// If not said: the operation's fixed name, or what axum's router matched, or `other`.
    route_label(name: impl Into<String>)
        sets route: Option<String> = Some(name.into()), default None;
}
