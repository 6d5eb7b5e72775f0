//! The gateway: one request, from the client to the upstream and back.
//!
//! The protocol is the library's layer, one for each route, around [`keyed::Forward`]. What is here
//! finds the route and the caller, and passes on what has no key.

mod ask;
mod body;
mod cors;
mod framing;
mod headers;
mod hints;
mod key;
mod keyed;
mod listener;
mod opening;
mod passthrough;
mod routes;
mod status;
mod streams;
mod timed;
mod tls;
mod tunnel;
mod upgrade;
mod upstream;

use std::{
    collections::BTreeMap,
    error::Error,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderName, HeaderValue, Request, Response, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;
use onceward::{
    Body, Engine,
    seal::Keyring,
    server::{Code, Problem, Reservation},
    telemetry::{Answered, event},
};
use tokio::time::Instant;

use crate::{
    config::{Config, KeyRule, Unmatched, are_same, has_dot_segments},
    descriptors::Descriptors,
    identity::Peer,
    observe::{Parent, ServerSpan, metrics},
    records::Records,
};
use hints::RequestHints;
use keyed::RequestContext;
use passthrough::{is_keyed_write, route_missing};
use routes::Routes;
use upgrade::Upgrade;
use upstream::state::UpstreamStates;

pub(crate) use listener::{Allowed, Counted, Entrance, serve};
pub(crate) use tls::acceptor;
pub(crate) use upstream::{Lane, Upstream, sink_client};

type BoxError = Box<dyn Error + Send + Sync>;

type Parameters = BTreeMap<String, String>;

const UNPROTECTED: HeaderName = HeaderName::from_static("onceward-unprotected");

const STATUS_PATH: &str = "/.onceward";

/// What one line of a head takes up besides its text.
const HEAD_LINE: usize = 128;

/// Most heads are smaller, and are not counted: their number has a limit by connections and streams.
const UNCOUNTED_HEAD: usize = 8 << 10;

/// The gateway's state; clones are the same.
#[derive(Clone)]
pub(crate) struct Gateway {
    engine: Engine,
    store: Arc<dyn Records>,
    /// The store was opened with these keys, and uses them until it is closed.
    keys: Option<Arc<Keyring>>,
    /// The state of the upstream, which outlives a configuration.
    upstream_states: UpstreamStates,
    routes: Arc<RwLock<Arc<Routes>>>,
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

    /// Replaces the configuration; requests that have begun end by the old one. What counts only after a
    /// restart stays as it is.
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

    pub(crate) fn unusable_keys(&self) -> Vec<String> {
        self.current().identity.unusable_keys()
    }

    fn current(&self) -> Arc<Routes> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.current().config.clone()
    }

    /// What a client at this address may do before its first request.
    pub(crate) fn allowed(&self, address: IpAddr) -> Allowed {
        let routes = self.current();
        let config = &routes.config;
        let is_proxy = routes.identity.trusts(address.to_canonical());
        let share = if is_proxy { 1.0 } else { config.peer_share };
        Allowed { share, stall: config.client_timeout }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Records> {
        &self.store
    }

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
        let routes = self.current();
        let page = routes.cors.page(&request);
        let preflight = page.as_ref().and_then(|_| routes.cors.preflight(&request));
        let mut response = match preflight {
            Some(preflight) => preflight,
            None => Self::pass_or_cover(routes.clone(), request, peer).await,
        };
        routes.cors.tell(page.as_ref(), response.headers_mut());
        if let Some(span) = span {
            span.end(&response);
        }
        response
    }

    /// One request, top to bottom. Its ways on are in boxes: a request whose body is still awaited has
    /// room for none of them.
    async fn pass_or_cover(
        routes: Arc<Routes>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let arrived = Instant::now();
        let (mut parts, body) = request.into_parts();
        if has_dot_segments(parts.uri.path()) {
            let text =
                "the path has `.` or `..` in it, and nothing was run; send the path that is meant";
            let problem = Problem::new(Code::RequestMalformed, text);
            return problem.errors(routes.config.errors).into_response();
        }
        let upgrade = Upgrade::asked(&mut parts, &body, routes.config.upgrade_idle);
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
                metrics::UNMATCHED.add(metrics::Unmatched::Refused);
                return route_missing().errors(policy.errors).into_response();
            }
            // HTTP/2 has no upgrades: RFC 9113, section 8.6.
            if let Some(upgrade) = upgrade.filter(|_| !routes.upstream.speaks_http2()) {
                upgrade.pass_on(&mut parts);
            }
            let request = Request::from_parts(parts, body);
            let mut response = Box::pin(routes.pass(policy, request, &hints, &floor)).await;
            if is_unmatched {
                metrics::UNMATCHED.add(metrics::Unmatched::Passed);
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

/// Counts a large head while its body is awaited and its answer made; `None`: there is no memory for it.
fn head_held(routes: &Routes, parts: &Parts, body: &Body) -> Option<Reservation> {
    let origin = upstream::deliver::origin(&parts.extensions);
    let mut held = routes.root.memory_of(origin.address).nothing();
    let lines = parts.headers.iter();
    let bytes: usize =
        lines.map(|(name, value)| name.as_str().len() + value.len() + HEAD_LINE).sum();
    let counts = bytes > UNCOUNTED_HEAD && !body.is_end_stream();
    (!counts || held.grow_to(bytes)).then_some(held)
}

/// What follows in a path, if it is this one or below it.
fn below<'a>(parent: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(parent).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}
