//! Whom a request is forwarded for: believed only from trusted proxies, and told to the upstream.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::forwarded::{Hop, forwarded_hops, x_forwarded_for_hops};
use super::strip::{remove_matching, with_hyphens};
use super::{Identity, Sender};

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
    pub(crate) fn client_address(&self, parts: &Parts) -> Option<IpAddr> {
        let (sender, headers) = (self.sender(parts), &parts.headers);
        let peer = sender.address()?;
        if !sender.is_trusted_proxy {
            return Some(peer);
        }
        let standard = joined(headers, &header::FORWARDED).map(|text| {
            self.walk(peer, &text.and_then(|text| forwarded_hops(&text)).unwrap_or_default())
        });
        let older = joined(headers, &X_FORWARDED_FOR)
            .map(|text| self.walk(peer, &x_forwarded_for_hops(&text.unwrap_or_default())));
        match (standard, older) {
            (Some(standard), Some(older)) if standard != older => Some(peer),
            (standard, older) => Some(standard.or(older).unwrap_or(peer)),
        }
    }

    /// Goes from the peer to the client for as long as the one who reports the next hop is trusted.
    fn walk(&self, peer: IpAddr, hops: &[Hop]) -> IpAddr {
        let mut client = peer;
        for hop in hops.iter().rev() {
            let Hop::Address(address) = *hop else { break };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        client
    }
}

/// Tells the upstream whom the request is forwarded for, in the headers that are sent to it.
///
/// What an outsider said is replaced. What a trusted proxy said is continued: the addresses are
/// appended, and its scheme and host, which are those that the client used, are kept. If that proxy
/// speaks only one of the two dialects, the other is not started: an upstream that prefers it would
/// take the proxy for the client.
pub(super) fn set_forwarding(parts: &mut Parts, sender: &Sender, scheme: &Scheme) {
    let hop = OwnHop { address: sender.address(), host: host_of(parts), scheme };
    let headers = &mut parts.headers;
    if !sender.is_trusted_proxy {
        remove_matching(headers, |name| is_about_forwarding(&with_hyphens(name)));
    }
    let speaks_standard = headers.contains_key(header::FORWARDED);
    let speaks_older = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST]
        .iter()
        .any(|name| headers.contains_key(name));

    if speaks_standard || !speaks_older {
        let earlier = joined(headers, &header::FORWARDED).flatten();
        let earlier = earlier.filter(|text| forwarded_hops(text).is_some());
        set(headers, header::FORWARDED, earlier.as_deref(), hop.as_element());
    }
    if speaks_older || !speaks_standard {
        let earlier = joined(headers, &X_FORWARDED_FOR).flatten();
        set(headers, X_FORWARDED_FOR, earlier.as_deref(), hop.as_address());
        if !headers.contains_key(X_FORWARDED_PROTO) {
            set(headers, X_FORWARDED_PROTO, None, hop.scheme.as_str().to_owned());
        }
        if let (false, Some(host)) = (headers.contains_key(X_FORWARDED_HOST), hop.host) {
            set(headers, X_FORWARDED_HOST, None, host);
        }
    }
}

/// What this gateway itself saw.
struct OwnHop<'a> {
    address: Option<IpAddr>,
    host: Option<String>,
    scheme: &'a Scheme,
}

impl OwnHop<'_> {
    fn as_address(&self) -> String {
        self.address.map_or_else(|| "unknown".into(), |address| address.to_string())
    }

    /// In pieces, not formatted: every request gets one.
    fn as_element(&self) -> String {
        let address = self.as_address();
        let mut element = String::with_capacity(128);
        match self.address {
            Some(IpAddr::V6(_)) => element.extend(["for=\"[", &address, "]\""]),
            _ => element.extend(["for=", &address]),
        }
        if let Some(host) = &self.host {
            element.push_str(";host=\"");
            for letter in host.chars() {
                if matches!(letter, '\\' | '"') {
                    element.push('\\');
                }
                element.push(letter);
            }
            element.push('"');
        }
        element.extend([";proto=", self.scheme.as_str()]);
        element
    }
}

/// The host that the request names, if it names one and it is plain text.
fn host_of(received: &Parts) -> Option<String> {
    if let Some(authority) = received.uri.authority() {
        return Some(authority.as_str().rsplit('@').next()?.to_owned());
    }
    let mut lines = received.headers.get_all(header::HOST).iter();
    let host = lines.next()?.to_str().ok()?;
    (lines.next().is_none() && !host.is_empty()).then(|| host.to_owned())
}

/// All lines as one list. `None` if there is none, `Some(None)` if one is not plain text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Option<String>> {
    headers.contains_key(name).then(|| {
        let lines: Result<Vec<&str>, _> =
            headers.get_all(name).iter().map(HeaderValue::to_str).collect();
        lines.ok().map(|lines| lines.join(", "))
    })
}

/// Writes one line, after what was said earlier.
fn set(headers: &mut HeaderMap, name: HeaderName, earlier: Option<&str>, own: String) {
    let text = match earlier.map(|text| text.trim_matches([' ', '\t', ','])) {
        None | Some("") => own,
        Some(earlier) => format!("{earlier}, {own}"),
    };
    match HeaderValue::try_from(text) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    }
}

fn is_about_forwarding(name: &str) -> bool {
    name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-")
}

#[cfg(test)]
#[path = "forwarding_tests.rs"]
mod tests;
