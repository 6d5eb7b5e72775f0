//! Which header lines of an answer are kept for its replay: rule 16 of the contract.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use onceward_core::Header;

pub(super) const OPERATION: HeaderName = HeaderName::from_static("onceward-operation");
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");
/// The only word that clients are sent about an outcome.
pub(super) const UNKNOWN: HeaderValue = HeaderValue::from_static("unknown");
pub(super) const UNPROTECTED: HeaderName = HeaderName::from_static("onceward-unprotected");
pub(super) const COMPLETED: HeaderName = HeaderName::from_static("idempotency-completed");
pub(super) const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
pub(super) const REDACTED: HeaderName = HeaderName::from_static("onceward-redacted");
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub(super) const PREFER: HeaderName = HeaderName::from_static("prefer");
pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What the layer says itself: an answer's own lines of these names are never passed on.
const OWN: [HeaderName; 7] =
    [OPERATION, OUTCOME, UNPROTECTED, COMPLETED, EXPIRES, REDACTED, REPLAYED];

/// They belong to one connection; no option keeps them.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// They belong to one exchange: its time, its trace, its caller's session.
const PER_EXCHANGE: [&str; 16] = [
    "age",
    "b3",
    "date",
    "request-id",
    "server-timing",
    "set-cookie",
    "traceparent",
    "tracestate",
    "traceresponse",
    "www-authenticate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
];

/// The same, for whole families. What CORS allows, it allows to the page that has asked.
const PER_EXCHANGE_PREFIXES: [&str; 4] = ["access-control-", "ratelimit", "x-ratelimit", "x-b3-"];

/// The most that is kept of all header lines together, in bytes.
pub(super) const MAX_BYTES: usize = 32 << 10;

/// Decides which header lines are kept.
pub(super) struct HeaderFilter {
    also: Vec<HeaderName>,
    never: Vec<HeaderName>,
}

impl HeaderFilter {
    pub(super) fn new(also: Vec<HeaderName>, never: Vec<HeaderName>) -> Result<Self, String> {
        if let Some(name) = also.iter().find(|name| is_hop_by_hop(name) || OWN.contains(name)) {
            return Err(format!("`{name}` belongs to one connection or to Onceward: leave it out"));
        }
        match also.iter().find(|name| never.contains(name)) {
            Some(name) => Err(format!("`{name}` is to be kept and to be dropped: choose one")),
            None => Ok(Self { also, never }),
        }
    }

    /// The lines to keep, values of one name in their order; `None`: too many to keep.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Vec<Header>> {
        let nominated = nominated(headers);
        let headers = headers.iter().filter(|(name, _)| self.keeps(name, &nominated));
        let kept: Vec<_> =
            headers.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect();
        (bytes(&kept) <= MAX_BYTES).then_some(kept)
    }

    /// Takes away what this route does not replay. What the layer stored has no such lines, but SQL stores
    /// those that a service gives it, and other rules may have counted when it was stored.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        let dropped: Vec<_> =
            headers.keys().filter(|name| !self.keeps(name, &[])).cloned().collect();
        for name in dropped {
            headers.remove(name);
        }
    }

    fn keeps(&self, name: &HeaderName, nominated: &[String]) -> bool {
        if is_hop_by_hop(name) || OWN.contains(name) || self.never.contains(name) {
            return false;
        }
        if nominated.iter().any(|other| other == name.as_str()) {
            return false;
        }
        self.also.contains(name) || !is_per_exchange(name)
    }
}

pub(super) fn strip_own(headers: &mut HeaderMap) {
    for name in &OWN {
        headers.remove(name);
    }
}

/// Header lines as they were stored, without those that belong to a connection or to the layer: what
/// a resolver or a person wrote was not filtered before.
pub(super) fn restore(stored: &[Header]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(stored.len() + 4);
    for (name, value) in stored {
        let (name, value) = (HeaderName::try_from(&**name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = (name, value)
            && !is_hop_by_hop(&name)
            && !OWN.contains(&name)
        {
            headers.append(name, value);
        }
    }
    headers
}

fn bytes(headers: &[Header]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
}

pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

fn is_per_exchange(name: &HeaderName) -> bool {
    let name = name.as_str();
    PER_EXCHANGE.contains(&name)
        || PER_EXCHANGE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What the `Connection` lines name belongs to the connection too.
fn nominated(headers: &HeaderMap) -> Vec<String> {
    let headers = headers.get_all(header::CONNECTION);
    let names =
        headers.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn kept(kept: &HeaderFilter, headers: &[(&'static str, &[u8])]) -> Vec<(String, Vec<u8>)> {
        let headers = kept.of(&map(headers)).unwrap();
        headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn end_to_end_lines_are_kept_in_their_order() {
        let plain = HeaderFilter::new(vec![], vec![]).unwrap();
        let headers: [(&str, &[u8]); 4] =
            [("link", b"<a>"), ("link", b"<b>"), ("x-raw", b"\xff"), ("etag", b"\"7\"")];
        let expected = headers.map(|(name, value)| (name.to_owned(), value.to_vec()));
        assert_eq!(kept(&plain, &headers), expected);
    }

    #[test]
    fn lines_of_one_exchange_or_connection_are_dropped() {
        let plain = HeaderFilter::new(vec![], vec![]).unwrap();
        let names = HOP_BY_HOP.iter().chain(&PER_EXCHANGE).copied();
        let names =
            names.chain(["ratelimit", "ratelimit-policy", "x-ratelimit-reset", "x-b3-spanid"]);
        let names = names.chain(["access-control-allow-origin", "access-control-expose-headers"]);
        for name in names.chain(OWN.iter().map(HeaderName::as_str)).collect::<Vec<_>>() {
            let mut headers = HeaderMap::new();
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("x"));
            assert_eq!(plain.of(&headers), Some(vec![]), "{name}");
        }
        let nominated: [(&str, &[u8]); 2] = [("connection", b"close, X-Hop"), ("x-hop", b"1")];
        assert_eq!(kept(&plain, &nominated), []);
    }

    #[test]
    fn choices_are_respected_and_contradictions_refused() {
        let name = HeaderName::from_static;
        let chosen = HeaderFilter::new(vec![name("set-cookie")], vec![name("etag")]).unwrap();
        let headers: [(&str, &[u8]); 2] = [("set-cookie", b"a=1"), ("etag", b"1")];
        assert_eq!(kept(&chosen, &headers), [("set-cookie".to_owned(), b"a=1".to_vec())]);
        for refused in ["connection", "te", "idempotent-replayed"] {
            assert!(HeaderFilter::new(vec![name(refused)], vec![]).is_err(), "{refused}");
        }
        assert!(HeaderFilter::new(vec![name("etag")], vec![name("etag")]).is_err());
    }

    #[test]
    fn too_many_bytes_are_not_kept() {
        let plain = HeaderFilter::new(vec![], vec![]).unwrap();
        let value = |bytes: usize| vec![b'v'; bytes - "etag".len() - 4];
        assert!(plain.of(&map(&[("etag", &value(MAX_BYTES))])).is_some());
        assert!(plain.of(&map(&[("etag", &value(MAX_BYTES + 1))])).is_none());
    }
}
