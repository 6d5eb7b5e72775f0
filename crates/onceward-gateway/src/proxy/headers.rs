//! Which header lines go on, and which belong to one connection only: RFC 9110, section 7.6.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::identity::remove_matching;

/// They speak of one connection, whether or not `Connection` names them.
static HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// What begins with this is between gateway and upstream.
const OWN: &str = "onceward-";

const OUTCOME: HeaderName = HeaderName::from_static("onceward-outcome");

/// Takes away what belongs to the connection that the message came on. `keys` are headers that may hold a
/// key: no `Connection` line takes them away.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap, keys: &[HeaderName]) {
    // Most messages have nothing of it.
    let is_about_connection =
        |name: &HeaderName| HOP_BY_HOP.contains(name) || *name == header::TRAILER;
    if !headers.keys().any(is_about_connection) {
        return;
    }
    let is_kept = |name: &HeaderName| is_end_to_end(name) || keys.contains(name);
    let named: Vec<_> =
        listed(headers, &header::CONNECTION).filter(|name| !is_kept(name)).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    // HTTP/1.1 sends only announced trailers, so it suffices not to announce those that mean something in
    // a head. Node, for one, takes `Connection: close` from them and fails the next client's request.
    let is_harmless = |name: &HeaderName| !HOP_BY_HOP.contains(name) && !is_kept(name);
    let announced: Vec<_> = listed(headers, &header::TRAILER).filter(is_harmless).collect();
    headers.remove(header::TRAILER);
    for name in announced {
        headers.append(header::TRAILER, name.into());
    }
}

/// The names that the lines of `list` name.
pub(super) fn listed(headers: &HeaderMap, list: &HeaderName) -> impl Iterator<Item = HeaderName> {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok())
}

/// A client must not make lines disappear that the gateway or the upstream goes by.
fn is_end_to_end(name: &HeaderName) -> bool {
    const KEPT: [HeaderName; 5] = [
        header::AUTHORIZATION,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::HOST,
    ];
    KEPT.contains(name) || name.as_str() == "idempotency-key" || name.as_str().starts_with(OWN)
}

/// HTTP/2 sends each cookie in a line of its own; before, there was one line: RFC 9113, section 8.2.3.
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// What the upstream says its answer means, if it does.
pub(super) fn outcome(headers: &HeaderMap) -> Option<Outcome> {
    match headers.get(OUTCOME)?.to_str().ok()?.trim() {
        "final" => Some(Outcome::Final),
        "retryable" => Some(Outcome::Retryable),
        "unknown" => Some(Outcome::Unknown),
        "no-store" => Some(Outcome::NoStore),
        _ => None,
    }
}

/// The words of `Onceward-Outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Final,
    Retryable,
    Unknown,
    NoStore,
}

/// Takes away what belongs to the upstream's connection, and what the upstream tells the gateway.
pub(super) fn strip_of_upstream(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers, &[]);
    remove_matching(headers, |name| name.as_str().starts_with(OWN));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_belongs_to_a_connection_does_not_go_on() {
        let mut headers = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("x-yours", "2"),
        ]);
        strip_hop_by_hop(&mut headers, &[]);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-yours"]);
    }

    #[test]
    fn only_harmless_trailers_are_announced() {
        let mut headers =
            headers(&[("trailer", "Connection, X-Sum, Idempotency-Key,"), ("trailer", "x-more")]);
        strip_hop_by_hop(&mut headers, &[]);
        assert_eq!(headers.get_all("trailer").iter().collect::<Vec<_>>(), ["x-sum", "x-more"]);
    }

    #[test]
    fn cookies_are_in_one_line() {
        let mut headers = headers(&[("cookie", "a=1"), ("x-other", "1"), ("cookie", "b=2")]);
        join_cookies(&mut headers);
        assert_eq!((headers.len(), &headers["cookie"]), (2, &HeaderValue::from_static("a=1; b=2")));
    }

    #[test]
    fn a_connection_line_cannot_take_away_what_counts() {
        let mut headers = headers(&[
            ("connection", "idempotency-key, authorization, content-length"),
            ("idempotency-key", "k"),
            ("authorization", "Bearer x"),
            ("content-length", "3"),
        ]);
        strip_hop_by_hop(&mut headers, &[]);
        assert_eq!(headers.len(), 3);
    }
}
