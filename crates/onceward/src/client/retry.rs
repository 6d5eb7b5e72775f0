//! By which rules calls are retried, what is known of their targets, and the hooks.

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, Uri, header,
    uri::{Authority, Scheme},
};
use onceward_core::{
    BoxFuture,
    retry::{Circuit, Class, Moment, Priority, Rules, Target},
};
use tokio::time::Instant;

use super::{
    BoxError, Event, Incoming, Report, RetryLayer,
    chance::Chance,
    driver::{Environment, TargetHandle, Targets},
    remember::Remember,
};

/// Retries calls: rules, what is known of each target, and hooks. Cheap to clone.
///
/// Make one for the whole process and clone it: clones share their budgets, breakers and limits, and
/// that is what bounds the load on a target that fails.
///
/// ```
/// use onceward::{client::Retry, retry::{Hedge, Rules}};
///
/// let retry = Retry::standard();
/// let hedging = Retry::with(Rules::standard().to_builder().hedge(Hedge::standard()).build()?);
/// # let _ = (retry, hedging);
/// # Ok::<(), onceward::retry::RulesError>(())
/// ```
#[derive(Clone)]
pub struct Retry {
    shared: Arc<RetryState>,
    options: Arc<Options>,
}

/// Scheme and authority.
type Name = (Option<Scheme>, Option<Authority>);

struct RetryState {
    rules: Rules,
    start: Instant,
    targets: Targets<Name>,
}

#[derive(Clone)]
pub(super) struct Options {
    pub(super) keys: bool,
    pub(super) headers: bool,
    pub(super) max_body: usize,
    pub(super) whole_answers: Option<usize>,
    pub(super) priority: Priority,
    pub(super) incoming: Option<Incoming>,
    pub(super) refresh: Option<Arc<Refresh>>,
    pub(super) observe: Option<Arc<Observe>>,
    pub(super) fallback: Option<Arc<Fallback>>,
    pub(super) fallback_for_writes: bool,
    pub(super) classify: Option<Arc<Classify>>,
    pub(super) remember: Option<Arc<dyn Remember>>,
    chance: Arc<Chance>,
}

pub(super) type Refresh =
    dyn Fn(Uri) -> BoxFuture<'static, Result<HeaderMap, BoxError>> + Send + Sync;
type Observe = dyn Fn(&Event<'_>) + Send + Sync;
type Fallback = dyn Fn(&Report) -> Option<Response<Bytes>> + Send + Sync;
type Classify = dyn Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync;

impl Retry {
    /// How many targets are remembered; beyond that, the one that was idle longest is forgotten.
    pub const MAX_TARGETS: usize = 1_000;
    /// Up to this length a request's body is kept to be sent again, if not said otherwise.
    pub const MAX_BODY: usize = 64 << 10;

    /// For a person who waits: 3 attempts within 10 s. See [`Rules::standard`].
    #[must_use]
    pub fn standard() -> Self {
        Self::with(Rules::standard())
    }

    /// For work in the background: 8 attempts within 120 s. See [`Rules::patient`].
    #[must_use]
    pub fn patient() -> Self {
        Self::with(Rules::patient())
    }

    /// One attempt within 10 s, with key and report. See [`Rules::never`].
    #[must_use]
    pub fn never() -> Self {
        Self::with(Rules::never())
    }

    /// By rules of your own.
    #[must_use]
    pub fn with(rules: Rules) -> Self {
        let targets = Targets::new(Self::MAX_TARGETS);
        let options = Options {
            keys: true,
            headers: true,
            max_body: Self::MAX_BODY,
            whole_answers: None,
            priority: Priority::NORMAL,
            incoming: None,
            refresh: None,
            observe: None,
            fallback: None,
            fallback_for_writes: false,
            classify: None,
            remember: None,
            chance: Arc::new(Chance::fresh()),
        };
        let shared = RetryState { rules, start: Instant::now(), targets };
        Self { shared: Arc::new(shared), options: Arc::new(options) }
    }

    /// Makes no keys: a POST or PATCH without one of the caller's own is sent once, unless it
    /// certainly did not arrive.
    #[must_use]
    pub fn without_keys(self) -> Self {
        self.change(|options| options.keys = false)
    }

    /// Sends no `Onceward-Attempt`, `Onceward-Deadline` and `Onceward-Priority`.
    ///
    /// Servers that do not know them ignore them. With them, servers of ours drop work whose client has
    /// gone, and distinguish retries from first attempts.
    #[must_use]
    pub fn without_headers(self) -> Self {
        self.change(|options| options.headers = false)
    }

    /// Up to which length a request's body is kept to be sent again. Longer ones, and streams of
    /// unknown length, are sent once, and the report says so.
    #[must_use]
    pub fn max_body(self, bytes: usize) -> Self {
        self.change(|options| options.max_body = bytes)
    }

    /// Reads answers up to this length to their end before they are returned, so that one that is cut
    /// short is tried again.
    ///
    /// Without it an answer is returned with its head, and its body comes as it is read: if it breaks
    /// off then, the call has already ended, and the key is what makes a new call safe.
    #[must_use]
    pub fn whole_answers(self, bytes: usize) -> Self {
        self.change(|options| options.whole_answers = Some(bytes))
    }

    /// How important calls are, where a request does not say so with a [`Priority`] in its extensions.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        self.change(|options| options.priority = priority)
    }

    /// For the calls that a request leads to which is being served: see [`Incoming`].
    #[must_use]
    pub fn serving(&self, incoming: Incoming) -> Self {
        self.clone().change(|options| options.incoming = Some(incoming))
    }

    /// Gets new credentials when an answer is 401, once a call: header lines that replace those of the
    /// same names. The key stays the same.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
    /// use onceward::client::Retry;
    ///
    /// # async fn sign_in() -> Result<String, std::io::Error> { Ok("new".into()) }
    /// let retry = Retry::standard().refresh(|_uri| async {
    ///     let token = sign_in().await?;
    ///     let line = HeaderValue::try_from(format!("Bearer {token}"))?;
    ///     Ok(HeaderMap::from_iter([(AUTHORIZATION, line)]))
    /// });
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn refresh<F>(self, hook: impl Fn(Uri) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<HeaderMap, BoxError>> + Send + 'static,
    {
        let hook: Arc<Refresh> = Arc::new(move |uri| Box::pin(hook(uri)));
        self.change(|options| options.refresh = Some(hook))
    }

    /// Gets every step of a call as it happens. The hook must be quick: calls wait for it.
    ///
    /// ```
    /// use onceward::client::{Event, Retry};
    ///
    /// let retry = Retry::standard().observe(|event| match event {
    ///     Event::Ended { attempt, .. } => println!("attempt {}: {attempt}", attempt.number),
    ///     Event::Waiting { wait, budget_left } => println!("again in {wait:?} ({budget_left:?} left)"),
    ///     _ => {}
    /// });
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn observe(self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.change(|options| options.observe = Some(Arc::new(hook)))
    }

    /// An answer to give instead of none, or of a failing one that no retry could help.
    ///
    /// Only for methods that change nothing: a caller must be able to rely on the success of a write. The
    /// report of such an answer [says so](Report::fallback).
    ///
    /// ```
    /// use onceward::client::Retry;
    ///
    /// let retry = Retry::standard().fallback(|_report| {
    ///     Some(http::Response::new("[]".into()))
    /// });
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn fallback(
        self,
        hook: impl Fn(&Report) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        self.change(|options| options.fallback = Some(Arc::new(hook)))
    }

    /// Gives the fallback also for writes. It says nothing about whether they happened.
    #[must_use]
    pub fn fallback_for_writes(self) -> Self {
        self.change(|options| options.fallback_for_writes = true)
    }

    /// Knows failures of a client that this crate does not know. Say [`Class::NeverSent`] only where
    /// it is certain: it opens the gate for requests without a key.
    #[must_use]
    pub fn classify(
        self,
        hook: impl Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync + 'static,
    ) -> Self {
        self.change(|options| options.classify = Some(Arc::new(hook)))
    }

    /// Repeatable randomness, for tests. Not for production: processes with the same seed wait the same
    /// times.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.change(|options| options.chance = Arc::new(Chance::seeded(seed)))
    }

    /// Persists each keyed call before it is first sent.
    #[cfg(feature = "sqlite")]
    pub(super) fn remembering(self, remember: Arc<dyn Remember>) -> Self {
        self.change(|options| options.remember = Some(remember))
    }

    /// A layer around a tower service over `http`.
    #[must_use]
    pub fn layer(&self) -> RetryLayer {
        RetryLayer(self.clone())
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// What is known of the target of this URI.
    ///
    /// ```
    /// use onceward::{client::Retry, retry::Circuit};
    ///
    /// let state = Retry::standard().target(&"http://shop.example/charges".parse()?);
    /// assert_eq!((state.circuit, state.budget), (Circuit::Closed, Some(30)));
    /// # Ok::<(), http::uri::InvalidUri>(())
    /// ```
    #[must_use]
    pub fn target(&self, uri: &Uri) -> TargetState {
        let known = self.shared.targets.find(&name(uri, None));
        self.state(&known.unwrap_or_else(|| TargetHandle::new(self.rules())))
    }

    /// What is known of every target, by scheme and authority.
    #[must_use]
    pub fn targets(&self) -> Vec<(String, TargetState)> {
        let all = self.shared.targets.all().into_iter();
        all.map(|((scheme, authority), known)| {
            let scheme = scheme.as_ref().map_or("", Scheme::as_str);
            let authority = authority.as_ref().map_or("", Authority::as_str);
            (format!("{scheme}://{authority}"), self.state(&known))
        })
        .collect()
    }

    fn state(&self, known: &TargetHandle) -> TargetState {
        let now = self.now();
        known.with(|target: &mut Target| TargetState {
            budget: target.budget_left(),
            circuit: target.circuit(now),
            in_flight: target.in_flight(),
            limit: target.limit(),
            saturation: target.saturation(now),
        })
    }

    pub(super) fn known(&self, uri: &Uri, headers: &HeaderMap, now: Moment) -> Arc<TargetHandle> {
        let host = headers.get(header::HOST);
        self.shared.targets.get(&name(uri, host), self.rules(), now)
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn is_observed(&self) -> bool {
        self.options.observe.is_some()
    }

    pub(super) fn tell(&self, event: Event<'_>) {
        if let Some(observe) = &self.options.observe {
            observe(&event);
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl Environment for Retry {
    fn now(&self) -> Moment {
        Instant::now().saturating_duration_since(self.shared.start)
    }

    fn random(&self) -> u64 {
        self.options.chance.next()
    }
}

fn name(uri: &Uri, host: Option<&HeaderValue>) -> Name {
    let authority = uri.authority().cloned();
    let authority = authority.or_else(|| Authority::try_from(host?.as_bytes()).ok());
    (uri.scheme().cloned(), authority)
}

impl fmt::Debug for Retry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Retry").field("rules", self.rules()).finish_non_exhaustive()
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::standard()
    }
}

/// What is known of one target, for metrics.
///
/// ```
/// let retry = onceward::client::Retry::standard();
/// for (target, state) in retry.targets() {
///     println!("{target}: {} of {} in flight", state.in_flight, state.limit);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TargetState {
    /// What is left to pay retries with, if they are paid.
    pub budget: Option<u32>,
    /// What its breaker lets through.
    pub circuit: Circuit,
    /// How many attempts are in flight.
    pub in_flight: u32,
    /// How many may be.
    pub limit: u32,
    /// How much too much there is, from 0 to 1.
    pub saturation: f64,
}

/// The time that a request has for itself, in its extensions: less than the rules give.
///
/// ```
/// use std::time::Duration;
/// use onceward::client::Within;
///
/// let request = http::Request::get("http://shop.example/")
///     .extension(Within(Duration::from_secs(2)))
///     .body(onceward::Body::empty())?;
/// # let _ = request;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Within(pub Duration);

/// Which route of its target a request takes, in its extensions: latencies are learnt for each apart.
///
/// Numbers of your own, from 0 to 63; further ones share one.
///
/// ```
/// use onceward::{Body, client::Route};
///
/// let request = http::Request::get("http://shop.example/search").extension(Route(1));
/// # let _ = request.body(Body::empty())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Route(pub u32);
