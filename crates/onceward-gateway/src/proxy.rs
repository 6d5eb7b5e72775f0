//! The gateway: one request, from the client to the upstream and back.
//!
//! The protocol is the library's layer, one for each route, around [`forward::Forward`]. What is here
//! finds the route and the caller, and passes on what has no key.

mod ask;
mod body;
mod forward;
mod framing;
mod headers;
mod listener;
mod status;
mod timed;
mod tls;
mod upstream;

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
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{
    config::{Config, KeyRule, Route, Segment, are_same, has_dot_segments},
    identity::{self, Caller, Identity, Peer},
    observe::{Parent, ServerSpan},
    records::Records,
};
use forward::Forward;

pub(crate) use listener::{Counted, serve};
pub(crate) use tls::acceptor;
pub(crate) use upstream::{Lane, Upstream};

type Failure = Box<dyn Error + Send + Sync>;

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
    routes: Arc<RwLock<Arc<Routes>>>,
}

/// What a configuration says about requests; replaced as a whole when it is read again.
struct Routes {
    identity: Identity,
    upstream: Upstream,
    root: Idempotency,
    /// For each route of the configuration, unless it has no keys.
    covered: Vec<Option<Covered>>,
    config: Arc<Config>,
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
        let routes = Routes::new(config, &engine, &store, keys.as_ref())?;
        Ok(Self { engine, store, keys, routes: Arc::new(RwLock::new(Arc::new(routes))) })
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
        let routes = Routes::new(config, &self.engine, &self.store, self.keys.as_ref())?;
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
        let routes = self.current();
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
        let Some((covered, parameters)) = routes.find(&parts) else {
            telemetry::PASSED.add(());
            let request = Request::from_parts(parts, body);
            return forward::pass(&routes.upstream, request, PATIENCE).await;
        };
        if let Some(parent) = parts.extensions.get::<Parent>() {
            parent.set_route(&parts.method, covered.counted);
        }
        if covered.route.key == KeyRule::Optional && !parts.headers.contains_key(KEY) {
            telemetry::PASSED.add(());
            covered.counted.count(Answered::Passed);
            let request = Request::from_parts(parts, body);
            return forward::pass(&routes.upstream, request, covered.route.timeout).await;
        }
        // In a box, like whatever is large: what only passes shall not carry it along.
        Box::pin(covered.answer(Request::from_parts(parts, body), caller, parameters)).await
    }
}

impl Covered {
    /// One request that its route's layer answers.
    async fn answer(
        &self,
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
        answered.unwrap_or_else(|failure| forward::unanswered(&failure))
    }
}

impl Routes {
    fn new(
        config: Config,
        engine: &Engine,
        store: &Arc<dyn Records>,
        keys: Option<&Arc<Keyring>>,
    ) -> Result<Self, Failure> {
        let identity = Identity::new(&config)?;
        let upstream = Upstream::new(&config.upstream)?;
        // Each route says how its scope is found; the root itself covers nothing.
        let nobody = |_: &Parts| Err::<Scope, _>("no route");
        let root = Idempotency::builder(engine.clone(), nobody).spool(store.clone());
        let root = keys.cloned().into_iter().fold(root, IdempotencyBuilder::fingerprint_keys);
        let root = root.build()?;
        let cover = |route: &Route| -> Result<Option<Covered>, Failure> {
            if route.key == KeyRule::Off {
                return Ok(None);
            }
            let route = Arc::new(route.clone());
            let label = label(&route);
            let counted = telemetry::Route::named(&label);
            let chosen = |options| chosen(options, &route, &upstream).route_label(label);
            let layer = root.with(chosen)?;
            let service = layer.layer(Forward::new(upstream.clone(), route.timeout));
            Ok(Some(Covered { route, service, counted }))
        };
        let covered = config.routes.iter().map(cover).collect::<Result<_, _>>()?;
        Ok(Self { identity, upstream, root, covered, config: Arc::new(config) })
    }

    /// The first route that matches decides; one without keys covers nothing.
    fn find(&self, parts: &Parts) -> Option<(&Covered, BTreeMap<String, String>)> {
        let (method, path) = (&parts.method, parts.uri.path());
        let mut routes = self.config.routes.iter().zip(&self.covered);
        let (covered, parameters) =
            routes.find_map(|(route, covered)| Some((covered, route.matches(method, path)?)))?;
        Some((covered.as_ref()?, parameters))
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
