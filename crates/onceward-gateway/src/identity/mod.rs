//! Who asks: what a request says about its caller, verified, and the scope that follows from it.
//!
//! A request proves nothing by itself. A token counts once its signature is verified, a certificate
//! once the TLS listener accepted it, and a header only if a trusted proxy sent it. Whatever is not
//! proven is missing, and a missing scope value refuses the request: there is no shared bucket.

mod certificate;
mod document;
mod forwarded;
mod forwarding;
mod keys;
mod network;
mod origin;
mod permission;
mod scope;
mod strip;
#[cfg(test)]
mod test_keys;
mod token;
#[cfg(test)]
mod token_tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use serde_json::Value;

use crate::config::{Config, Jwt, ScopePart};

pub(crate) use certificate::certified;
pub(crate) use document::{Document, document};
pub(crate) use origin::Origin;
pub(crate) use permission::may_see;
pub(crate) use scope::{plain, scope_of};
pub(crate) use strip::remove_matching;
pub(crate) use token::TokenRefused;

use forwarding::OwnHop;
use scope::hexadecimal;
use token::Tokens;

/// The other end of a connection, the same for all of its requests.
#[derive(Debug)]
pub(crate) struct Peer {
    address: IpAddr,
    /// Tells connections apart.
    connection: u64,
    /// Whom the client's certificate names, see [`certified`], if it sent one and the listener verified it.
    certified: Option<String>,
    hop: OwnHop,
}

impl Peer {
    /// On a connection of this scheme.
    pub(crate) fn new(
        address: SocketAddr,
        scheme: &Scheme,
        certified: Option<String>,
    ) -> Arc<Self> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let connection = OPENED.fetch_add(1, Ordering::Relaxed);
        let address = address.ip().to_canonical();
        Arc::new(Self { address, connection, certified, hop: OwnHop::new(address, scheme) })
    }
}

/// The sender of a request: the gateway finds it out once, and keeps it in the request's extensions.
///
/// It has no `Debug`, so that claims about people do not slip into logs.
#[derive(Clone)]
pub(crate) struct Caller {
    peer: Arc<Peer>,
    /// Its headers can be believed.
    is_trusted_proxy: bool,
    claims: Result<Arc<Value>, TokenRefused>,
}

impl Caller {
    /// Whether a trusted proxy sent the request, whose headers can be believed.
    pub(crate) fn is_behind_trusted_proxy(&self) -> bool {
        self.is_trusted_proxy
    }

    pub(crate) fn claims(&self) -> Result<&Value, &TokenRefused> {
        self.claims.as_deref()
    }

    pub(crate) fn certified(&self) -> Option<&str> {
        self.peer.certified.as_deref()
    }
}

pub(crate) struct Identity {
    trusted_proxies: Vec<IpNet>,
    tokens: Option<Tokens>,
    /// The names of the `header:` scopes, which only trusted proxies may send.
    identity_headers: Vec<HeaderName>,
}

impl Identity {
    /// Loads what the configuration names; an error says what to change.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let environment = |name: &str| std::env::var(name).ok();
        let identity = Self::build(config.jwt.as_ref(), &config.trusted_proxies, environment)?;
        let parts = config.routes.iter().flat_map(|route| &route.scope);
        let identity_headers = parts.filter_map(|part| match part {
            ScopePart::Header(name) => Some(name.clone()),
            _ => None,
        });
        Ok(Self { identity_headers: identity_headers.collect(), ..identity })
    }

    fn build(
        jwt: Option<&Jwt>,
        trusted_proxies: &[IpNet],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let tokens = jwt.map(|jwt| Tokens::load(jwt, environment)).transpose()?;
        let trusted_proxies =
            trusted_proxies.iter().map(|network| network::canonical(*network)).collect();
        Ok(Self { trusted_proxies, tokens, identity_headers: Vec::new() })
    }

    /// Reads the file of public keys again and gives the number of keys in use.
    ///
    /// After an error the keys of before stay in use. A shared secret is read only at start.
    pub(crate) fn reload(&self) -> Result<usize, String> {
        self.tokens.as_ref().map_or(Ok(0), Tokens::reload)
    }

    /// The keys of the file that cannot verify a token, each with the reason, for `doctor` and logs.
    pub(crate) fn unusable_keys(&self) -> Vec<String> {
        self.tokens.as_ref().map(Tokens::unusable_keys).unwrap_or_default()
    }

    pub(crate) fn caller(&self, headers: &HeaderMap, peer: Arc<Peer>) -> Caller {
        let claims = match &self.tokens {
            Some(tokens) => tokens.verify(headers).map(Arc::new),
            None => Err(TokenRefused::NotConfigured),
        };
        let is_trusted_proxy = self.trusts(peer.address);
        Caller { peer, is_trusted_proxy, claims }
    }

    /// Makes the headers fit for the upstream: removes what outsiders must not say, see
    /// [`Identity::strip_identity`], and writes whom the request is forwarded for.
    ///
    /// Once for each request, after hop-by-hop headers are gone: else a client could name the new
    /// lines in `Connection` and so have them removed.
    pub(crate) fn clean(&self, parts: &mut Parts, caller: &Caller) {
        self.strip(&mut parts.headers, caller);
        forwarding::set_forwarding(parts, caller);
    }

    /// Whether headers that come from this address are believed.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_configuration_says_whose_headers_reach_the_upstream() {
        let text = "upstream = 'http://127.0.0.1:3000'\ntrusted_proxies = ['10.0.0.0/8']\n\
                    [[route]]\nmatch = 'POST /a'\nscope = ['header:x-user']\nauthorize = 'none'\n";
        let file = Some(("onceward.toml".into(), text.to_owned()));
        let config = Config::load(&Sources { file, ..Sources::default() }).unwrap();
        let identity = Identity::new(&config).unwrap();
        for (address, trusted) in [("10.0.0.1:1", true), ("203.0.113.9:1", false)] {
            let (mut parts, ()) = Request::new(()).into_parts();
            let peer = Peer::new(address.parse().unwrap(), &Scheme::HTTP, None);
            parts.headers.insert("x-user", HeaderValue::from_static("ada"));
            parts.headers.insert("onceward-key", HeaderValue::from_static("forged"));
            let caller = identity.caller(&parts.headers, peer);
            identity.clean(&mut parts, &caller);
            assert_eq!(parts.headers.contains_key("x-user"), trusted);
            assert!(!parts.headers.contains_key("onceward-key"));
            assert_eq!(parts.headers["x-forwarded-proto"], "http");
            assert_eq!(caller.is_behind_trusted_proxy(), trusted);
        }
    }
}
