//! Whom a request is forwarded for: believed only from trusted proxies, and sent to the upstream.

use std::net::IpAddr;
use std::sync::OnceLock;

use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    Caller, Identity,
    forwarded::{Hop, forwarded_hops, x_forwarded_for_hops},
    strip::{remove_matching, with_hyphens},
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

impl Identity {
    /// Who sent the request to the outermost trusted proxy: the rightmost address that is not trusted.
    ///
    /// A proxy usually writes one of the two headers and passes on what a client put into the other,
    /// so when they disagree neither is believed and the answer is the peer.
    ///
    /// To be asked before [`Identity::clean`], which adds the peer to the headers.
    pub(crate) fn client_address(&self, headers: &HeaderMap, caller: &Caller) -> IpAddr {
        self.sought_client(headers, caller).unwrap_or_else(|Unclear(address)| address)
    }

    /// The same, and whether the headers leave a doubt.
    pub(super) fn sought_client(
        &self,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<IpAddr, Unclear> {
        let peer = caller.peer.address;
        if !caller.is_trusted_proxy {
            return Ok(peer);
        }
        let walk =
            |hops: Option<Vec<Hop>>| hops.map_or(Err(Unclear(peer)), |hops| self.walk(peer, &hops));
        let standard = joined(headers, &header::FORWARDED)
            .map(|text| walk(text.and_then(|text| forwarded_hops(&text))));
        let older = joined(headers, &X_FORWARDED_FOR)
            .map(|text| walk(text.map(|text| x_forwarded_for_hops(&text))));
        match (standard, older) {
            (Some(standard), Some(older)) if standard != older => Err(Unclear(peer)),
            (standard, older) => standard.or(older).unwrap_or(Ok(peer)),
        }
    }

    /// Goes from the peer to the client for as long as the one who reports the next hop is trusted.
    fn walk(&self, peer: IpAddr, hops: &[Hop]) -> Result<IpAddr, Unclear> {
        let mut client = peer;
        for hop in hops.iter().rev() {
            let Hop::Address(address) = *hop else { return Err(Unclear(client)) };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        Ok(client)
    }
}

/// The headers do not say who the client is: it is behind this trusted address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclear(IpAddr);

/// Writes for the upstream whom the request is forwarded for.
///
/// What an outsider said is replaced. What a trusted proxy said is continued: the addresses are
/// appended, and its scheme and host, which are those that the client used, are kept. If that proxy
/// speaks only one of the two dialects, the other is not started: an upstream that prefers it would
/// take the proxy for the client.
pub(super) fn set_forwarding(parts: &mut Parts, caller: &Caller) {
    let (hop, host) = (&caller.peer.hop, host_of(parts));
    let element = hop.element(host.as_ref());
    let headers = &mut parts.headers;
    if caller.is_trusted_proxy {
        return continue_forwarding(headers, hop, element, host);
    }
    strip_forwarding(headers);
    headers.insert(header::FORWARDED, element);
    headers.insert(X_FORWARDED_FOR, hop.address.clone());
    headers.insert(X_FORWARDED_PROTO, hop.scheme.clone());
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Takes away what an outsider says about whom it forwards for.
pub(super) fn strip_forwarding(headers: &mut HeaderMap) {
    remove_matching(headers, |name| {
        name.as_str().starts_with(['f', 'x']) && is_about_forwarding(&with_hyphens(name))
    });
}

fn continue_forwarding(
    headers: &mut HeaderMap,
    hop: &OwnHop,
    element: HeaderValue,
    host: Option<HeaderValue>,
) {
    let speaks_standard = headers.contains_key(header::FORWARDED);
    let speaks_older = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST]
        .iter()
        .any(|name| headers.contains_key(name));

    if speaks_standard || !speaks_older {
        let earlier = joined(headers, &header::FORWARDED).flatten();
        let earlier = earlier.filter(|text| forwarded_hops(text).is_some());
        set(headers, header::FORWARDED, earlier.as_deref(), element);
    }
    if speaks_older || !speaks_standard {
        let earlier = joined(headers, &X_FORWARDED_FOR).flatten();
        set(headers, X_FORWARDED_FOR, earlier.as_deref(), hop.address.clone());
        headers.entry(X_FORWARDED_PROTO).or_insert_with(|| hop.scheme.clone());
        if let Some(host) = host {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
    }
}

/// What this gateway itself sees of a connection, written once for all of its requests.
#[derive(Debug)]
pub(super) struct OwnHop {
    address: HeaderValue,
    is_ipv6: bool,
    scheme: HeaderValue,
    /// A host that was named on the connection, and the element for it: most name only one.
    element: OnceLock<(Option<HeaderValue>, HeaderValue)>,
}

impl OwnHop {
    pub(super) fn new(address: IpAddr, scheme: &Scheme) -> Self {
        let scheme = if *scheme == Scheme::HTTPS { "https" } else { "http" };
        let (scheme, is_ipv6) = (HeaderValue::from_static(scheme), address.is_ipv6());
        let address = HeaderValue::try_from(address.to_string());
        let address = address.unwrap_or(HeaderValue::from_static("unknown"));
        Self { address, is_ipv6, scheme, element: OnceLock::new() }
    }

    fn element(&self, host: Option<&HeaderValue>) -> HeaderValue {
        let make = || (host.cloned(), self.new_element(host));
        match self.element.get_or_init(make) {
            (of, element) if of.as_ref() == host => element.clone(),
            _ => self.new_element(host),
        }
    }

    fn new_element(&self, host: Option<&HeaderValue>) -> HeaderValue {
        let scheme = self.scheme.to_str().unwrap_or("http");
        let address = self.address.to_str().unwrap_or("unknown");
        let node = match self.is_ipv6 {
            true => format!("\"[{address}]\""),
            false => address.to_owned(),
        };
        let host = host.and_then(|host| host.to_str().ok());
        let host = host.map(|host| format!(";host={}", quoted(host))).unwrap_or_default();
        HeaderValue::try_from(format!("for={node}{host};proto={scheme}"))
            .unwrap_or(HeaderValue::from_static("for=unknown"))
    }
}

/// The host that the request names, if it names one and it is plain text.
fn host_of(received: &Parts) -> Option<HeaderValue> {
    if let Some(authority) = received.uri.authority() {
        return authority.as_str().rsplit('@').next()?.parse().ok();
    }
    let mut headers = received.headers.get_all(header::HOST).iter();
    let host = headers.next()?;
    let is_one = headers.next().is_none() && !host.is_empty() && host.to_str().is_ok();
    is_one.then(|| host.clone())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// All lines as one list. `None` if there is none, `Some(None)` if one is not plain text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Option<String>> {
    headers.contains_key(name).then(|| {
        let headers: Result<Vec<&str>, _> =
            headers.get_all(name).iter().map(HeaderValue::to_str).collect();
        headers.ok().map(|headers| headers.join(", "))
    })
}

/// Writes one line, after the earlier values.
fn set(headers: &mut HeaderMap, name: HeaderName, earlier: Option<&str>, own: HeaderValue) {
    let value = match earlier.map(|text| text.trim_matches([' ', '\t', ','])) {
        None | Some("") => own,
        Some(earlier) => {
            let text = [earlier.as_bytes(), b", ", own.as_bytes()].concat();
            HeaderValue::try_from(text).unwrap_or(own)
        }
    };
    headers.insert(name, value);
}

fn is_about_forwarding(name: &str) -> bool {
    name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-")
}

#[cfg(test)]
#[path = "forwarding_tests.rs"]
mod tests;
