//! Upgrades of a connection, as to a WebSocket: which of them go on, and what of an answer goes back.
//!
//! Behind an upgrade the gateway sees bytes and no requests. So a request that may have a key never asks
//! for one, nor does any request for a protocol that carries requests: they would go past the gateway.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use hyper::{
    body::Incoming,
    upgrade::{self, OnUpgrade},
};
use onceward::Body;

use super::{
    headers::{listed, strip_of_upstream},
    tunnel::Tunnel,
    upstream::{answers::Answer, state::InFlight},
};

/// Protocols that carry requests, in any version.
const CARRY_REQUESTS: [&str; 5] = ["h2", "h2c", "h3", "http", "tls"];

/// What a client asks for: an extension of its request, if the gateway passes that on. Clones are the same.
#[derive(Clone)]
pub(crate) struct Upgrade {
    protocols: Vec<String>,
    client: OnUpgrade,
    /// How long both sides may be silent afterwards.
    idle: Duration,
}

impl Upgrade {
    /// What a head asks for, before the lines about its connection are gone; `None`: nothing that goes on.
    /// Only a GET may ask: no route takes keys with it.
    pub(super) fn asked(parts: &mut Parts, body: &Incoming, idle: Duration) -> Option<Self> {
        // hyper offers it for HTTP/1.1 alone.
        let client = parts.extensions.remove::<OnUpgrade>()?;
        let is_meant =
            listed(&parts.headers, &header::CONNECTION).any(|name| name == header::UPGRADE);
        let is_plain = parts.method == Method::GET && body.is_end_stream();
        let mut protocols = protocols(&parts.headers);
        protocols.retain(|protocol| !carries_requests(protocol));
        (is_meant && is_plain && !protocols.is_empty()).then_some(Self { protocols, client, idle })
    }

    /// Asks the upstream for the same.
    pub(super) fn pass_on(self, parts: &mut Parts) {
        let lines = HeaderValue::try_from(self.protocols.join(", "));
        tell(&mut parts.headers, lines.expect("its parts were in a header"));
        parts.extensions.insert(self);
    }

    /// Whether the upstream switched to what it was asked for, and to nothing else.
    pub(super) fn allows(&self, answer: &HeaderMap) -> bool {
        let is_asked =
            |chosen: &String| self.protocols.iter().any(|asked| asked.eq_ignore_ascii_case(chosen));
        let chosen = protocols(answer);
        !chosen.is_empty() && chosen.iter().all(is_asked)
    }

    /// The answer of an upstream that switched, for the client; the tunnel behind it is an extension.
    pub(super) fn switched(
        self,
        mut response: Response<Incoming>,
        answer: Answer,
        in_flight: Option<InFlight>,
    ) -> Response<Body> {
        let protocols = HeaderValue::try_from(protocols(response.headers()).join(", "));
        let ends = (self.client, upgrade::on(&mut response));
        let tunnel = Tunnel::new(ends, self.idle, answer, in_flight);
        let mut response = response.map(|_| Body::empty());
        strip_of_upstream(response.headers_mut());
        tell(response.headers_mut(), protocols.expect("its parts were in a header"));
        response.extensions_mut().insert(tunnel);
        response
    }
}

/// The protocols that a 426 wants: RFC 9110, section 15.5.22, says that a client must learn them.
pub(super) fn wanted<B>(response: &Response<B>) -> Option<HeaderValue> {
    let protocols = response.headers().get(header::UPGRADE);
    protocols.filter(|_| response.status() == StatusCode::UPGRADE_REQUIRED).cloned()
}

/// Writes the two lines about an upgrade, and no others about the connection.
pub(super) fn tell(headers: &mut HeaderMap, protocols: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocols);
}

/// As they are named, with their versions.
fn protocols(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::UPGRADE).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn carries_requests(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default();
    CARRY_REQUESTS.iter().any(|known| known.eq_ignore_ascii_case(name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_that_carry_requests_are_known_in_any_version() {
        for protocol in ["h2c", "H2C", "HTTP/2.0", "http /3", "TLS/1.0", "h2", "h3"] {
            assert!(carries_requests(protocol), "{protocol}");
        }
        for protocol in ["websocket", "WebSocket/13", "SPDY/3.1", "tcp", "https-proxy"] {
            assert!(!carries_requests(protocol), "{protocol}");
        }
    }

    #[test]
    fn protocols_are_read_from_all_lines() {
        let mut headers = HeaderMap::new();
        for line in ["websocket , , h2c", "tcp/1"] {
            headers.append(header::UPGRADE, HeaderValue::from_static(line));
        }
        assert_eq!(protocols(&headers), ["websocket", "h2c", "tcp/1"]);
    }
}
