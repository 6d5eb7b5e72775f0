//! What a configuration says about requests: how each route goes to the upstream, and by which layer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderName, Method, request::Parts};
use onceward::{
    Engine, OperationName, Scope,
    seal::Keyring,
    server::{Idempotency, IdempotencyBuilder, PeerMemory},
    telemetry,
};
use tower_layer::Layer as _;

use super::{
    BoxError, Parameters, ask,
    cors::Cors,
    key,
    keyed::{Covered, Forward, RequestContext},
    upstream::{
        Upstream,
        deliver::{self, OfRoute, UpstreamPolicy},
        state::UpstreamStates,
    },
};
use crate::{
    config::{Config, Delivery, KeyRule, Route, Segment},
    identity::{self, Identity},
    records::Records,
};

/// What a configuration says about requests; replaced as a whole when it is read again.
pub(super) struct Routes {
    pub(super) identity: Identity,
    pub(super) upstream: Upstream,
    pub(super) root: Idempotency,
    pub(super) policy: UpstreamPolicy,
    pub(super) planned: Vec<Planned>,
    pub(super) key_headers: Vec<HeaderName>,
    pub(super) cors: Cors,
    pub(super) config: Arc<Config>,
}

/// What becomes of the requests of one route.
pub(super) struct Planned {
    pub(super) policy: Arc<UpstreamPolicy>,
    /// `None`: it takes no keys.
    pub(super) covered: Option<Covered>,
}

/// Of all answers, this part may be late: listened for, while others go on.
const LATE: usize = 4;

/// How long the upstream may take to begin an answer to a request that no route speaks of.
const UNMATCHED_TIMEOUT: Duration = Duration::from_secs(60);

impl Routes {
    pub(super) fn new(
        config: Config,
        engine: &Engine,
        store: &Arc<dyn Records>,
        keys: Option<&Arc<Keyring>>,
        upstream_states: &UpstreamStates,
    ) -> Result<Self, BoxError> {
        let identity = Identity::new(&config)?;
        let answers = upstream_states.descriptors.answers(config.max_answers);
        let upstream = Upstream::bounded(&config.upstream, &upstream_states.sockets, answers)?;
        // Each route has its own scopes; the root itself covers nothing.
        let no_scope = |_: &Parts| Err::<Scope, _>("no route");
        let root = Idempotency::builder(engine.clone(), no_scope)
            .spool(store.clone())
            .errors(config.errors)
            .peer_memory(peer_memory(&config), |parts| deliver::origin(&parts.extensions).address);
        let root = keys.cloned().into_iter().fold(root, IdempotencyBuilder::fingerprint_keys);
        let root = root.build()?;
        if !config.is_strict() {
            root.tell_losses(store.losses());
        }
        // The answers to the gateway's own questions count for no client.
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
            let late = route.max_late.min(answers / LATE);
            let chosen = |options| {
                chosen(options, &route, &upstream, &memory).route_label(label).max_late(late)
            };
            let layer =
                root.with(|options| chosen(options).reject(move |parts| gate.rejects(parts)))?;
            let service = layer.layer(Forward::new(policy.clone(), layer.policy().clone()));
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
        let cors = Cors::new(&config.cors_origins, &config.routes);
        Ok(Self {
            identity,
            upstream,
            root,
            policy,
            planned,
            key_headers,
            cors,
            config: Arc::new(config),
        })
    }

    /// The first route that matches decides how a request goes, and whether it is covered.
    pub(super) fn find(&self, parts: &Parts) -> (&UpstreamPolicy, Option<(&Covered, Parameters)>) {
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

/// How many bytes the requests and answers of one client may hold: its share, and at least one body.
fn peer_memory(config: &Config) -> usize {
    let share = (Idempotency::MAX_BUFFERED as f64 * config.peer_share) as usize;
    let bodies = config.routes.iter().flat_map(|route| [route.max_request, route.max_response]);
    bodies.chain([share]).max().unwrap_or(share)
}

/// What a route is called in metrics, logs and traces: its name, or what it matches.
fn label(route: &Route) -> String {
    route.name.clone().unwrap_or_else(|| {
        let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
        format!("{} {}", methods.join(","), route.pattern.text)
    })
}

/// The options and the hooks of a route.
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
