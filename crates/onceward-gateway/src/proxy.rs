//! The gateway: one request, from the client to the upstream and back.
//!
//! The protocol is the library's layer, one for each route, around [`forward::Forward`]. What is here
//! finds the route and the caller, and passes on what has no key.

mod ask;
mod body;
mod deliver;
mod forward;
mod framing;
mod headers;
mod judge;
mod listener;
mod parcel;
mod place;
mod room;
mod status;
mod timed;
mod tls;
mod upstream;
mod wishes;

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use http::{Method, Request, Response, request::Parts};
use hyper::body::Incoming;
use onceward::{
    Engine, OperationName, Scope,
    seal::Keyring,
    server::{Body, Code, Idempotency, IdempotencyBuilder, Idempotent, Problem},
    telemetry::{self, Answered, event},
};
use tokio::time::Instant;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{
    config::{Config, Delivery, KeyRule, Route, Segment, are_same, has_dot_segments},
    identity::{self, Caller, Identity, Peer},
    observe::{Parent, ServerSpan},
    records::Records,
};
use deliver::Way;
use forward::Forward;
use room::Rooms;
use wishes::Wishes;

pub(crate) use listener::{Counted, serve};
pub(crate) use tls::acceptor;
pub(crate) use upstream::{Lane, Upstream};

type Failure = Box<dyn Error + Send + Sync>;

/// The named segments of a path.
type Parameters = BTreeMap<String, String>;

const KEY: &str = "idempotency-key";

/// Where the status of operations is told.
const STATUS_PATH: &str = "/.onceward";

/// How long the upstream may take to begin an answer to a request that no route speaks of.
const PATIENCE: Duration = Duration::from_secs(60);

/// What serves; clones are the same.
#[derive(Clone)]
pub(crate) struct Gateway {
    engine: Engine,
    store: Arc<dyn Records>,
    /// The store was opened with them: they count until it is closed.
    keys: Option<Arc<Keyring>>,
    /// What is known of the upstream, whatever is configured.
    rooms: Rooms,
    routes: Arc<RwLock<Arc<Routes>>>,
}

/// What a configuration says about requests; replaced as a whole when it is read again.
struct Routes {
    identity: Identity,
    upstream: Upstream,
    root: Idempotency,
    /// How requests go that no route speaks of.
    way: Way,
    /// For each route of the configuration.
    planned: Vec<Planned>,
    config: Arc<Config>,
}

/// What becomes of the requests of one route.
struct Planned {
    way: Arc<Way>,
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
struct Asked {
    caller: Arc<Caller>,
    parameters: Arc<BTreeMap<String, String>>,
    /// The values of the route's `json:` parts.
    json: Arc<BTreeMap<String, String>>,
}

impl Gateway {
    pub(crate) fn new(config: Config, store: Arc<dyn Records>) -> Result<Self, Failure> {
        let engine = Engine::new(store.clone());
        let keys = config.keys()?;
        let rooms = Rooms::default();
        let routes = Routes::new(config, &engine, &store, keys.as_ref(), &rooms)?;
        let routes = Arc::new(RwLock::new(Arc::new(routes)));
        Ok(Self { engine, store, keys, rooms, routes })
    }

    /// Goes by another configuration from now on; requests that are under way end by the old one. What
    /// counts only after a restart stays as it is.
    pub(crate) fn reload(&self, config: Config) -> Result<(), Failure> {
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
        let routes =
            Routes::new(config, &self.engine, &self.store, self.keys.as_ref(), &self.rooms)?;
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

    pub(crate) fn store(&self) -> &dyn Records {
        &*self.store
    }

    /// What is known of the upstream.
    pub(crate) fn rooms(&self) -> &Rooms {
        &self.rooms
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

    /// One request, top to bottom.
    async fn pass_or_cover(self, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        let (routes, arrived) = (self.current(), Instant::now());
        let (mut parts, body) = request.into_parts();
        if has_dot_segments(parts.uri.path()) {
            let text = "the path has `.` or `..` in it; send the path that is meant";
            return Problem::new(Code::RequestMalformed, text).into_response();
        }
        headers::strip_hop_by_hop(&mut parts.headers);
        headers::join_cookies(&mut parts.headers);
        let caller = Arc::new(routes.identity.caller(&parts.headers, peer));
        let client = || routes.identity.client_address(&parts.headers, &caller);
        tracing::debug!(event = event::RECEIVED, client = %client(), method = %parts.method, "a request");
        let body = body::of_client(body, &parts.headers, &routes, &caller);
        if let Some(path) = below(STATUS_PATH, parts.uri.path()) {
            return Box::pin(status::answer(&routes, path, &parts, &caller)).await;
        }
        routes.identity.clean(&mut parts, &caller);
        let is_trusted = caller.is_behind_trusted_proxy();
        let wishes = Wishes::take(&mut parts.headers, is_trusted, arrived);
        let (way, covered) = routes.find(&parts);
        let Some((covered, parameters)) = covered else {
            telemetry::PASSED.add(());
            return forward::pass(way, Request::from_parts(parts, body), &wishes).await;
        };
        if let Some(parent) = parts.extensions.get::<Parent>() {
            parent.set_route(&parts.method, covered.counted);
        }
        if covered.route.key == KeyRule::Optional && !parts.headers.contains_key(KEY) {
            telemetry::PASSED.add(());
            covered.counted.count(Answered::Passed);
            return forward::pass(way, Request::from_parts(parts, body), &wishes).await;
        }
        parts.extensions.insert(wishes);
        // In a box, like whatever is large: what only passes shall not carry it along.
        Box::pin(covered.answer(way, Request::from_parts(parts, body), caller, parameters)).await
    }
}

impl Covered {
    /// One request that its route's layer answers.
    async fn answer(
        &self,
        way: &Way,
        request: Request<Body>,
        caller: Arc<Caller>,
        parameters: BTreeMap<String, String>,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let (json, body) = match ask::json_parts(&self.route, &parts, body).await {
            Ok(read) => read,
            Err(problem) => {
                self.counted.count(Answered::Refused(problem.code()));
                return problem.into_response();
            }
        };
        let (parameters, json) = (Arc::new(parameters), Arc::new(json));
        parts.extensions.insert(Asked { caller, parameters, json });
        let answered = self.service.clone().call(Request::from_parts(parts, body)).await;
        let response = answered.unwrap_or_else(|failure| forward::unanswered(&failure));
        if let Some(Answered::Refused(code)) = response.extensions().get() {
            way.count_turned_away(*code);
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
        rooms: &Rooms,
    ) -> Result<Self, Failure> {
        let identity = Identity::new(&config)?;
        let upstream = Upstream::new(&config.upstream)?;
        // Each route says how its scope is found; the root itself covers nothing.
        let nobody = |_: &Parts| Err::<Scope, _>("no route");
        let root = Idempotency::builder(engine.clone(), nobody).spool(store.clone());
        let root = keys.cloned().into_iter().fold(root, IdempotencyBuilder::fingerprint_keys);
        let root = root.build()?;
        let plan = |route: &Route| -> Result<Planned, Failure> {
            let label = label(route);
            let of_route = (label.as_str(), route.timeout);
            let way = Arc::new(Way::new(&upstream, rooms, of_route, &route.delivery)?);
            if route.key == KeyRule::Off {
                return Ok(Planned { way, covered: None });
            }
            let (route, gate) = (Arc::new(route.clone()), way.clone());
            let counted = telemetry::Route::named(&label);
            let chosen = |options| chosen(options, &route, &upstream).route_label(label);
            let layer = root
                .with(|options| chosen(options).turn_away(move |parts| gate.turns_away(parts)))?;
            let service = layer.layer(Forward::new(way.clone(), route.policy()?));
            Ok(Planned { way, covered: Some(Covered { route, service, counted }) })
        };
        let planned = config.routes.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let way = Way::new(&upstream, rooms, ("", PATIENCE), &Delivery::default())?;
        rooms.keep(planned.iter().map(|planned| &*planned.way).chain([&way]));
        Ok(Self { identity, upstream, root, way, planned, config: Arc::new(config) })
    }

    /// The first route that matches decides how a request goes, and whether it is covered.
    fn find(&self, parts: &Parts) -> (&Way, Option<(&Covered, Parameters)>) {
        let (method, path) = (&parts.method, parts.uri.path());
        let mut routes = self.config.routes.iter().zip(&self.planned);
        let found =
            routes.find_map(|(route, planned)| Some((planned, route.matches(method, path)?)));
        match found {
            None => (&self.way, None),
            Some((planned, parameters)) => {
                let covered = planned.covered.as_ref().map(|covered| (covered, parameters));
                (&planned.way, covered)
            }
        }
    }
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
) -> IdempotencyBuilder {
    let (for_scope, for_name) = (route.clone(), route.clone());
    let options = route
        .choose(options)
        .scope(move |parts| scope(&for_scope, parts))
        .operation_by(move |parts| name(&for_name, parts));
    ask::hooks(options, route, upstream)
}

fn scope(route: &Route, parts: &Parts) -> Result<Scope, String> {
    let asked = parts.extensions.get::<Asked>().ok_or("the caller is not known")?;
    let Asked { caller, parameters, json } = asked;
    identity::scope_of(route, caller, parts, parameters, json).map_err(|error| error.to_string())
}

fn name(route: &Route, parts: &Parts) -> Result<OperationName, String> {
    let name = match &route.name {
        Some(name) => name.clone(),
        None => unnamed(parts, route),
    };
    OperationName::new(&name).map_err(|error| error.to_string())
}

/// What operations are called whose route has no name: by the template, or by the path where that
/// says too little.
fn unnamed(parts: &Parts, route: &Route) -> String {
    let pattern = &route.pattern;
    let has_rest = matches!(pattern.segments.last(), Some(Segment::Rest(_)));
    match parts.extensions.get::<Asked>() {
        Some(Asked { parameters, .. }) if has_rest => {
            let of = |segment| spelled(segment, parameters);
            let segments: Vec<&str> = pattern.segments.iter().map(of).collect();
            format!("{} /{}", parts.method, segments.join("/"))
        }
        _ => format!("{} {}", parts.method, pattern.text),
    }
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

/// Whether a stored answer may be shown to this caller, as far as the request itself tells.
fn may_see(route: &Route, parts: &Parts) -> bool {
    let asked = parts.extensions.get::<Asked>();
    asked.is_some_and(|asked| identity::may_see(route, &asked.caller))
}
