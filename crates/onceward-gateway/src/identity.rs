//! Who asks: what a request says about its caller, verified, and the scope that follows from it.
//!
//! A request proves nothing by itself. A token counts once its signature is verified, a certificate
//! once the TLS listener accepted it, and a header only if a trusted proxy sent it. Whatever is not
//! proven is missing, and a missing scope value refuses the request: there is no shared bucket.

mod forwarded;
mod forwarding;
mod keys;
mod network;
mod permission;
mod scope;
mod strip;
#[cfg(test)]
mod test_keys;
mod token;
#[cfg(test)]
mod token_tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use http::uri::Scheme;
use serde_json::Value;

use crate::config::{Config, Jwt, Network, ScopePart};

pub(crate) use permission::may_see;
pub(crate) use scope::{plain, scope_of};
pub(crate) use token::TokenRefused;

use token::Tokens;

/// The other end of the connection; the listener puts it into the extensions of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The subject of the client's certificate, if it sent one and the listener verified it.
    pub(crate) certificate_subject: Option<String>,
}

/// Who is at the other end of the connection of one request.
#[derive(Clone)]
struct Sender {
    peer: Option<Peer>,
    is_trusted_proxy: bool,
}

impl Sender {
    fn address(&self) -> Option<IpAddr> {
        Some(self.peer.as_ref()?.address.ip().to_canonical())
    }
}

/// What is known about who asks, found out once for each request and kept in its extensions.
///
/// It has no `Debug`, so that claims about people do not slip into logs.
#[derive(Clone)]
pub(crate) struct Caller {
    sender: Sender,
    claims: Result<Arc<Value>, TokenRefused>,
}

impl Caller {
    /// Whether a trusted proxy sent the request, whose headers can be believed.
    pub(crate) fn is_behind_trusted_proxy(&self) -> bool {
        self.sender.is_trusted_proxy
    }

    /// The claims of the verified token, or why there are none.
    pub(crate) fn claims(&self) -> Result<&Value, &TokenRefused> {
        self.claims.as_deref()
    }

    /// The subject of the verified client certificate.
    pub(crate) fn certificate_subject(&self) -> Option<&str> {
        self.sender.peer.as_ref()?.certificate_subject.as_deref()
    }
}

/// Verifies callers: knows the keys of tokens and the proxies that are trusted.
pub(crate) struct Identity {
    trusted_proxies: Vec<Network>,
    tokens: Option<Tokens>,
    /// The names of the `header:` scopes, which only trusted proxies may send.
    identity_headers: Vec<HeaderName>,
    /// Of the public listener.
    scheme: Scheme,
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
        let scheme = if config.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        Ok(Self { identity_headers: identity_headers.collect(), scheme, ..identity })
    }

    fn build(
        jwt: Option<&Jwt>,
        trusted_proxies: &[Network],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let tokens = jwt.map(|jwt| Tokens::load(jwt, environment)).transpose()?;
        let trusted_proxies = trusted_proxies.to_vec();
        Ok(Self { trusted_proxies, tokens, identity_headers: Vec::new(), scheme: Scheme::HTTP })
    }

    /// Reads the file of public keys again and says how many keys are in use.
    ///
    /// After an error the keys of before stay in use. A shared secret is read only at start.
    pub(crate) fn reload(&self) -> Result<usize, String> {
        self.tokens.as_ref().map_or(Ok(0), Tokens::reload)
    }

    /// The keys of the file that cannot verify a token, each with the reason, for `doctor` and logs.
    pub(crate) fn unusable_keys(&self) -> Vec<String> {
        self.tokens.as_ref().map(Tokens::unusable_keys).unwrap_or_default()
    }

    /// Verifies what the request says about its sender.
    ///
    /// A request without a [`Peer`] came from an unknown address, which is never trusted.
    pub(crate) fn caller(&self, parts: &Parts) -> Caller {
        let claims = match &self.tokens {
            Some(tokens) => tokens.verify(&parts.headers).map(Arc::new),
            None => Err(TokenRefused::NotConfigured),
        };
        Caller { sender: self.sender(parts), claims }
    }

    /// Makes the headers fit for the upstream: removes what outsiders must not say, see
    /// [`Identity::strip_identity`], and tells whom the request is forwarded for.
    ///
    /// Once for each request, after hop-by-hop headers are gone: else a client could name the new
    /// lines in `Connection` and so have them removed.
    pub(crate) fn clean(&self, parts: &mut Parts) {
        let sender = self.sender(parts);
        self.strip(&mut parts.headers, &sender);
        forwarding::set_forwarding(parts, &sender, &self.scheme);
    }

    fn sender(&self, parts: &Parts) -> Sender {
        let peer = parts.extensions.get::<Peer>().cloned();
        let is_trusted_proxy = peer.as_ref().is_some_and(|peer| self.trusts(peer.address.ip()));
        Sender { peer, is_trusted_proxy }
    }

    /// Whether headers that come from this address are believed.
    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(address))
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
            let address = address.parse().unwrap();
            parts.extensions.insert(Peer { address, certificate_subject: None });
            parts.headers.insert("x-user", HeaderValue::from_static("ada"));
            parts.headers.insert("onceward-key", HeaderValue::from_static("forged"));
            identity.clean(&mut parts);
            assert_eq!(parts.headers.contains_key("x-user"), trusted);
            assert!(!parts.headers.contains_key("onceward-key"));
            assert_eq!(parts.headers["x-forwarded-proto"], "http");
            assert_eq!(identity.caller(&parts).is_behind_trusted_proxy(), trusted);
        }
    }
}
