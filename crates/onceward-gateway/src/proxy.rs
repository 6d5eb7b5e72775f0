//! The gateway: one request, from the client to the upstream and back.
//!
//! The protocol is the library's layer, one for each route, around [`forward::Forward`]. What is here
//! finds the route and the caller, and passes on what has no key.

mod answers;
mod ask;
mod body;
mod classify;
mod connections;
mod deliver;
mod forward;
mod framing;
mod gate;
mod headers;
mod hints;
mod key;
mod listener;
mod replayable;
mod shares;
mod sockets;
mod state;
mod status;
mod streams;
mod timed;
mod tls;
mod upstream;

use std::{
    collections::BTreeMap,
    error::Error,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, Request, Response, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;
use onceward::{
    Engine, OperationName, Scope, retry,
    seal::Keyring,
    server::{
        Body, Code, Idempotency, IdempotencyBuilder, Idempotent, PeerMemory, Problem, Reservation,
    },
    telemetry::{self, Answered, event},
};
use tokio::time::Instant;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{
    config::{
        Config, Delivery, KeyRule, KeySource, Route, Segment, Unmatched, are_same, has_dot_segments,
    },
    descriptors::Descriptors,
    identity::{self, Caller, Identity, Peer},
    observe::{Parent, ServerSpan},
    records::Records,
};
use ask::ReadBody;
use deliver::{OfRoute, UpstreamPolicy};
use forward::Forward;
use hints::RequestHints;
use replayable::ReplayableRequest;
use state::UpstreamStates;
use timed::Floor;

pub(crate) use listener::{Allowed, Counted, Entrance, serve};
pub(crate) use tls::acceptor;
pub(crate) use upstream::{Lane, Upstream};

type BoxError = Box<dyn Error + Send + Sync>;

/// The named segments of a path.
type Parameters = BTreeMap<String, String>;

const UNPROTECTED: HeaderName = HeaderName::from_static("onceward-unprotected");

/// Where the status of operations is told.
const STATUS_PATH: &str = "/.onceward";

/// What one line of a head takes up besides its text.
const HEAD_LINE: usize = 128;

/// Most heads are smaller, and are not counted: their number has a limit by connections and streams.
const UNCOUNTED_HEAD: usize = 8 << 10;

/// Of all answers, this part may be late: listened for, while others go on.
const LATE: usize = 4;

/// How long the upstream may take to begin an answer to a request that no route speaks of.
const UNMATCHED_TIMEOUT: Duration = Duration::from_secs(60);

/// What serves; clones are the same.
#[derive(Clone)]
pub(crate) struct Gateway {
    engine: Engine,
    store: Arc<dyn Records>,
    /// The store was opened with them: they count until it is closed.
    keys: Option<Arc<Keyring>>,
    /// What is known of the upstream, whatever is configured.
    upstream_states: UpstreamStates,
    routes: Arc<RwLock<Arc<Routes>>>,
}

/// What a configuration says about requests; replaced as a whole when it is read again.
struct Routes {
    identity: Identity,
    upstream: Upstream,
    root: Idempotency,
    /// How requests go that no route speaks of.
    policy: UpstreamPolicy,
    /// For each route of the configuration.
    planned: Vec<Planned>,
    /// The headers in which routes look for keys.
    key_headers: Vec<HeaderName>,
    config: Arc<Config>,
}

/// What becomes of the requests of one route.
struct Planned {
    policy: Arc<UpstreamPolicy>,
    /// `None`: it takes no keys.
    covered: Option<Covered>,
}

struct Covered {
    route: Arc<Route>,
    service: Idempotent<Forward>,
    /// Where its requests are counted.
    counted: telemetry::Route,
}

/// What was found out about a request before its layer sees it.
#[derive(Clone)]
struct RequestContext {
    caller: Arc<Caller>,
    parameters: Arc<BTreeMap<String, String>>,
    /// The values of the route's `json:` parts.
    json: Arc<BTreeMap<String, String>>,
    /// The key, where the route takes it from the body.
    key: key::InBody,
}

impl Gateway {
    pub(crate) fn new(
        config: Config,
        store: Arc<dyn Records>,
        descriptors: Descriptors,
    ) -> Result<Self, BoxError> {
        let engine = Engine::new(store.clone());
        let keys = config.keys()?;
        let upstream_states = UpstreamStates::new(descriptors);
        let routes = Routes::new(config, &engine, &store, keys.as_ref(), &upstream_states)?;
        let routes = Arc::new(RwLock::new(Arc::new(routes)));
        Ok(Self { engine, store, keys, upstream_states, routes })
    }

    /// Goes by another configuration from now on; requests that are under policy end by the old one. What
    /// counts only after a restart stays as it is.
    pub(crate) fn reload(&self, config: Config) -> Result<(), BoxError> {
        let now = self.config();
        let config = Config {
            listen: now.listen,
            admin: now.admin,
            store: now.store.clone(),
            tls: now.tls.clone(),
            admin_tokens: now.admin_tokens.clone(),
            encryption: now.encryption.clone(),
            ..config
        };
        if let Some(route) = config.routes.iter().find(|route| !config.allows(route)) {
            let text = format!(
                "{} has effect = \"transactional\", which the store and the [encryption] that are in \
                 use do not allow; those of the file count only after a restart",
                route.match_text()
            );
            return Err(text.into());
        }
        let routes = Routes::new(
            config,
            &self.engine,
            &self.store,
            self.keys.as_ref(),
            &self.upstream_states,
        )?;
        let routes = Arc::new(routes);
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = routes;
        Ok(())
    }

    /// What of another configuration counts only after a restart.
    pub(crate) fn needs_restart(&self, config: &Config) -> Vec<&'static str> {
        let routes = self.current();
        let now = &routes.config;
        let changes = [
            ("listen", now.listen != config.listen),
            ("admin", now.admin != config.admin),
            ("store", now.store != config.store),
            ("[tls]", now.tls != config.tls),
            ("[admin_tokens]", now.admin_tokens != config.admin_tokens),
            ("[encryption]", !self.has_keys_of(config)),
        ];
        changes.into_iter().filter_map(|(name, is_other)| is_other.then_some(name)).collect()
    }

    fn has_keys_of(&self, config: &Config) -> bool {
        config.keys().is_ok_and(|keys| are_same(self.keys.as_deref(), keys.as_deref()))
    }

    /// Reads the file of public keys again, because keys rotate. A bad file changes nothing.
    pub(crate) fn refresh_keys(&self) -> Result<usize, String> {
        self.current().identity.reload()
    }

    /// The keys of that file that cannot verify a token, and why.
    pub(crate) fn unusable_keys(&self) -> Vec<String> {
        self.current().identity.unusable_keys()
    }

    fn current(&self) -> Arc<Routes> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration that requests are answered by now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.current().config.clone()
    }

    /// What a client at this address may do before it is known what it asks for.
    pub(crate) fn allowed(&self, address: IpAddr) -> Allowed {
        let routes = self.current();
        let config = &routes.config;
        let is_proxy = routes.identity.trusts(address.to_canonical());
        let share = if is_proxy { 1.0 } else { config.peer_share };
        Allowed { share, stall: config.client_timeout }
    }

    pub(crate) fn store(&self) -> &dyn Records {
        &*self.store
    }

    pub(crate) fn shared_store(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    /// What is known of the upstream.
    pub(crate) fn upstream_states(&self) -> &UpstreamStates {
        &self.upstream_states
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// One request, with the span that tells of it.
    pub(crate) async fn answer(
        self,
        mut request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let span = ServerSpan::begin(&mut request);
        let response = self.pass_or_cover(request, peer).await;
        if let Some(span) = span {
            span.end(&response);
        }
        response
    }

    /// One request, top to bottom. Its ways on are in boxes: a request whose body is still awaited has
    /// room for none of them.
    async fn pass_or_cover(self, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        let (routes, arrived) = (self.current(), Instant::now());
        let (mut parts, body) = request.into_parts();
        if has_dot_segments(parts.uri.path()) {
            let text = "the path has `.` or `..` in it; send the path that is meant";
            let problem = Problem::new(Code::RequestMalformed, text);
            return problem.errors(routes.config.errors).into_response();
        }
        headers::strip_hop_by_hop(&mut parts.headers, &routes.key_headers);
        headers::join_cookies(&mut parts.headers);
        let caller = Arc::new(routes.identity.caller(&parts.headers, peer));
        let client = || routes.identity.client_address(&parts.headers, &caller);
        tracing::debug!(event = event::RECEIVED, client = %client(), method = %parts.method, "a request");
        let (body, floor) = body::of_client(body, &parts.headers, &routes, &caller);
        if let Some(path) = below(STATUS_PATH, parts.uri.path()) {
            return Box::pin(status::answer(&routes, path, &parts, &caller)).await;
        }
        parts.extensions.insert(routes.identity.origin(&parts.headers, &caller));
        routes.identity.clean(&mut parts, &caller);
        let is_trusted = caller.is_behind_trusted_proxy();
        let hints = RequestHints::take(&mut parts.headers, is_trusted, arrived);
        let Some(_head) = head_held(&routes, &parts, &body) else {
            return body::Unread::Full.into_problem().into_response();
        };
        let (policy, covered) = routes.find(&parts);
        let Some((covered, parameters)) = covered else {
            let is_unprotected = is_keyed_write(&routes.config.routes, &parts);
            let is_unmatched = is_unprotected && policy.is_unmatched;
            if is_unmatched && routes.config.unmatched == Unmatched::Refuse {
                telemetry::UNMATCHED.add(telemetry::Unmatched::Refused);
                return route_missing().errors(policy.errors).into_response();
            }
            let request = Request::from_parts(parts, body);
            let mut response = Box::pin(routes.pass(policy, request, &hints, &floor)).await;
            if is_unmatched {
                telemetry::UNMATCHED.add(telemetry::Unmatched::Passed);
            }
            if is_unprotected {
                let reason = if is_unmatched { "no-route" } else { "key-off" };
                response.headers_mut().insert(UNPROTECTED, HeaderValue::from_static(reason));
            }
            return response;
        };
        if let Some(parent) = parts.extensions.get::<Parent>() {
            parent.set_route(&parts.method, covered.counted);
        }
        let may_have_key = key::may_be_there(&covered.route.key_source, &parts.headers);
        if covered.route.key == KeyRule::Optional && !may_have_key {
            covered.counted.count(Answered::Passed);
            let request = Request::from_parts(parts, body);
            return Box::pin(routes.pass(policy, request, &hints, &floor)).await;
        }
        parts.extensions.insert(hints);
        let request = Request::from_parts(parts, body);
        Box::pin(covered.answer((&routes, policy), request, caller, parameters, &floor)).await
    }
}

impl Covered {
    /// One request that its route's layer answers.
    async fn answer(
        &self,
        (routes, policy): (&Routes, &UpstreamPolicy),
        request: Request<Body>,
        caller: Arc<Caller>,
        parameters: BTreeMap<String, String>,
        floor: &Floor,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let origin = deliver::origin(&parts.extensions);
        let memory = routes.root.memory_of(origin.address);
        let ReadBody { json, key, body } = match ask::read(&self.route, &parts, body, &memory).await
        {
            Ok(read) => read,
            Err(problem) => {
                self.counted.count(Answered::Refused(problem.code()));
                return problem.errors(policy.errors).into_response();
            }
        };
        let source = &self.route.key_source;
        let is_in_body = matches!(source, KeySource::Json(_));
        if is_in_body && key == Ok(None) && self.route.key == KeyRule::Optional {
            self.counted.count(Answered::Passed);
            let hints =
                parts.extensions.get::<RequestHints>().copied().unwrap_or(RequestHints::NONE);
            let request = Request::from_parts(parts, body);
            return Box::pin(routes.pass(policy, request, &hints, floor)).await;
        }
        key::tell_upstream(source, &key, &mut parts.headers);
        let (parameters, json) = (Arc::new(parameters), Arc::new(json));
        parts.extensions.insert(RequestContext { caller, parameters, json, key });
        let method = retry::Method::of(parts.method.as_str());
        let answered = self.service.clone().call(Request::from_parts(parts, body)).await;
        let response = answered.unwrap_or_else(|failure| {
            forward::unanswered(&failure, method).errors(policy.errors).into_response()
        });
        if let Some(Answered::Refused(code)) = response.extensions().get() {
            policy.count_rejected(*code, origin);
        }
        response
    }
}

impl Routes {
    fn new(
        config: Config,
        engine: &Engine,
        store: &Arc<dyn Records>,
        keys: Option<&Arc<Keyring>>,
        upstream_states: &UpstreamStates,
    ) -> Result<Self, BoxError> {
        let identity = Identity::new(&config)?;
        let answers = upstream_states.descriptors.answers(config.max_answers);
        let upstream = Upstream::bounded(&config.upstream, &upstream_states.sockets, answers)?;
        // Each route says how its scope is found; the root itself covers nothing.
        let nobody = |_: &Parts| Err::<Scope, _>("no route");
        let root = Idempotency::builder(engine.clone(), nobody)
            .spool(store.clone())
            .errors(config.errors)
            .max_late(Idempotency::MAX_LATE.min(answers / LATE))
            .peer_memory(peer_memory(&config), |parts| deliver::origin(&parts.extensions).address);
        let root = keys.cloned().into_iter().fold(root, IdempotencyBuilder::fingerprint_keys);
        let root = root.build()?;
        // What is asked on behalf of many clients is held on behalf of none.
        let (peer_share, memory) = (config.peer_share, root.memory_of(None));
        let plan = |route: &Route| -> Result<Planned, BoxError> {
            let label = label(route);
            let (timeout, errors) = (route.timeout, route.errors);
            let of_route = OfRoute { label: Some(&label), timeout, peer_share, errors };
            let policy = Arc::new(UpstreamPolicy::new(
                &upstream,
                upstream_states,
                of_route,
                &route.delivery,
            )?);
            if route.key == KeyRule::Off {
                root.tell_uncovered(&label, &route.methods);
                return Ok(Planned { policy, covered: None });
            }
            let (route, gate) = (Arc::new(route.clone()), policy.clone());
            let counted = telemetry::Route::named(&label);
            let chosen = |options| chosen(options, &route, &upstream, &memory).route_label(label);
            let layer =
                root.with(|options| chosen(options).reject(move |parts| gate.rejects(parts)))?;
            let service = layer.layer(Forward::new(policy.clone(), route.policy()?));
            Ok(Planned { policy, covered: Some(Covered { route, service, counted }) })
        };
        let planned = config.routes.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let errors = config.errors;
        let unmatched = OfRoute { label: None, timeout: UNMATCHED_TIMEOUT, peer_share, errors };
        let policy =
            UpstreamPolicy::new(&upstream, upstream_states, unmatched, &Delivery::default())?;
        upstream_states.answers.allow(answers);
        upstream_states.keep(planned.iter().map(|planned| &*planned.policy).chain([&policy]));
        let key_headers = key::header_names(&config.routes);
        Ok(Self {
            identity,
            upstream,
            root,
            policy,
            planned,
            key_headers,
            config: Arc::new(config),
        })
    }

    /// Passes on a request that has no key.
    async fn pass(
        &self,
        policy: &UpstreamPolicy,
        request: Request<Body>,
        hints: &RequestHints,
        floor: &Floor,
    ) -> Response<Body> {
        telemetry::PASSED.add(());
        let memory = self.root.memory_of(deliver::origin(request.extensions()).address);
        let response = match ReplayableRequest::passing(request, policy.may_repeat(), &memory).await
        {
            Ok(replayable) => forward::pass(policy, replayable, hints).await,
            Err(unread) => unread.into_problem().errors(policy.errors).into_response(),
        };
        floor.lift();
        response
    }

    /// The first route that matches decides how a request goes, and whether it is covered.
    fn find(&self, parts: &Parts) -> (&UpstreamPolicy, Option<(&Covered, Parameters)>) {
        let (method, path) = (&parts.method, parts.uri.path());
        let mut routes = self.config.routes.iter().zip(&self.planned);
        let found =
            routes.find_map(|(route, planned)| Some((planned, route.matches(method, path)?)));
        match found {
            None => (&self.policy, None),
            Some((planned, parameters)) => {
                let covered = planned.covered.as_ref().map(|covered| (covered, parameters));
                (&planned.policy, covered)
            }
        }
    }
}

/// Counts a large head while its body is awaited and its answer made; `None`: there is no memory for it.
fn head_held(routes: &Routes, parts: &Parts, body: &Body) -> Option<Reservation> {
    let origin = deliver::origin(&parts.extensions);
    let mut held = routes.root.memory_of(origin.address).nothing();
    let lines = parts.headers.iter();
    let bytes: usize =
        lines.map(|(name, value)| name.as_str().len() + value.len() + HEAD_LINE).sum();
    let counts = bytes > UNCOUNTED_HEAD && !body.is_end_stream();
    (!counts || held.grow_to(bytes)).then_some(held)
}

/// How many bytes the requests and answers of one client may hold: its share, and at least one body.
fn peer_memory(config: &Config) -> usize {
    let share = (Idempotency::MAX_BUFFERED as f64 * config.peer_share) as usize;
    let bodies = config.routes.iter().flat_map(|route| [route.max_request, route.max_response]);
    bodies.chain([share]).max().unwrap_or(share)
}

/// Whether its client believes that it may be repeated.
fn is_keyed_write(routes: &[Route], parts: &Parts) -> bool {
    let writes = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    writes.contains(&parts.method) && key::is_meant(routes, &parts.headers)
}

fn route_missing() -> Problem {
    let text = "no route takes keys for this method and path, and nothing was run; check the path, also \
                its case and the slash at its end, or leave the key out";
    Problem::new(Code::RouteMissing, text)
}

/// What a route is called in metrics, logs and traces: its name, or what it matches.
fn label(route: &Route) -> String {
    route.name.clone().unwrap_or_else(|| {
        let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
        format!("{} {}", methods.join(","), route.pattern.text)
    })
}

/// What follows in a path, if it is this one or below it.
fn below<'a>(parent: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(parent).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a route chooses, and who is asked for it.
fn chosen(
    options: IdempotencyBuilder,
    route: &Arc<Route>,
    upstream: &Upstream,
    memory: &PeerMemory,
) -> IdempotencyBuilder {
    let (for_scope, for_name) = (route.clone(), route.clone());
    let options = route
        .choose(options)
        .scope(move |parts| scope(&for_scope, parts))
        .tell_scope_errors()
        .challenge(route.challenge())
        .operation_by(move |parts| name(&for_name, parts));
    let options = key::choose(&route.key_source, options);
    ask::hooks(options, route, upstream, memory)
}

fn scope(route: &Route, parts: &Parts) -> Result<Scope, String> {
    let asked = parts.extensions.get::<RequestContext>().ok_or("the caller is not known")?;
    let RequestContext { caller, parameters, json, .. } = asked;
    let names = route.names(&parts.method).ok_or(NO_NAMES)?;
    let scope = identity::scope_of(route, names, caller, parts, parameters, json);
    scope.map_err(|error| error.to_string())
}

fn name(route: &Route, parts: &Parts) -> Result<OperationName, String> {
    let names = route.names(&parts.method).ok_or(NO_NAMES)?;
    let name = match &names.operation {
        Some(name) => OperationName::new(name),
        None => OperationName::new(&by_path(parts, route)?),
    };
    name.map_err(|error| error.to_string())
}

/// A route names what it matches: it takes no other methods.
const NO_NAMES: &str = "the route does not take this method";

/// What an operation is called where the template says too little.
fn by_path(parts: &Parts, route: &Route) -> Result<String, String> {
    let RequestContext { parameters, .. } =
        parts.extensions.get().ok_or("the path is not known")?;
    let of = |segment| spelled(segment, parameters);
    let segments: Vec<&str> = route.pattern.segments.iter().map(of).collect();
    Ok(format!("{} /{}", parts.method, segments.join("/")))
}

/// A segment of a path as it is always spelled, however a client escapes it.
fn spelled<'a>(segment: &'a Segment, parameters: &'a BTreeMap<String, String>) -> &'a str {
    match segment {
        Segment::Literal(text) => text,
        Segment::One(name) | Segment::Rest(name) => {
            parameters.get(name).map(String::as_str).unwrap_or_default()
        }
    }
}

/// Whether a stored answer may be shown to this caller, as far as the request itself tells, or why not.
fn may_see(route: &Route, parts: &Parts) -> Result<(), String> {
    let asked = parts.extensions.get::<RequestContext>().ok_or_else(String::new)?;
    identity::may_see(route, &asked.caller)
}
