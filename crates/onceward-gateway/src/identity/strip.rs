//! Headers that outsiders must not send, because the upstream believes them.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

use super::{Caller, Identity, forwarding::strip_forwarding};

/// What a client may say to the gateway; the gateway reads, bounds and writes them anew.
const ALLOWED: [&str; 3] = ["onceward-deadline", "onceward-priority", "onceward-attempt"];

impl Identity {
    /// Removes what only Onceward, or only a trusted proxy, may say to the upstream.
    ///
    /// [`Identity::clean`] does it for headers; trailers need it too.
    pub(crate) fn strip_identity(&self, headers: &mut HeaderMap, caller: &Caller) {
        self.strip(headers, caller);
        if !caller.is_trusted_proxy {
            strip_forwarding(headers);
        }
    }

    pub(super) fn strip(&self, headers: &mut HeaderMap, caller: &Caller) {
        let names = if caller.is_trusted_proxy { &[][..] } else { &self.identity_headers[..] };
        let identities: Vec<Cow<'_, str>> = names.iter().map(with_hyphens).collect();
        remove_matching(headers, |name| {
            if identities.is_empty() && !name.as_str().starts_with('o') {
                return false;
            }
            let plain = with_hyphens(name);
            let is_reserved = plain.starts_with("onceward-") && !ALLOWED.contains(&name.as_str());
            is_reserved || identities.contains(&plain)
        });
    }
}

pub(crate) fn remove_matching(headers: &mut HeaderMap, matches: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| matches(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Many servers read `X_User` and `X-User` as one variable, so neither may pass for the other.
pub(super) fn with_hyphens(name: &HeaderName) -> Cow<'_, str> {
    match name.as_str().contains('_') {
        true => Cow::Owned(name.as_str().replace('_', "-")),
        false => Cow::Borrowed(name.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::{Peer, TokenRefused};
    use super::*;

    fn names_left(sent: &[&'static str], is_trusted_proxy: bool) -> Vec<String> {
        let identity_headers = vec![HeaderName::from_static("x-user")];
        let identity = Identity::build(None, &[], |_| None).unwrap();
        let identity = Identity { identity_headers, ..identity };
        let mut headers = HeaderMap::new();
        for name in sent {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let peer = Peer::new(([203, 0, 113, 9], 4711).into(), &http::uri::Scheme::HTTP, None);
        let claims = Err(TokenRefused::NotConfigured);
        identity.strip(&mut headers, &Caller { peer, is_trusted_proxy, claims });
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        left
    }

    #[test]
    fn an_outsider_cannot_send_an_identity_header_however_it_is_spelled() {
        let sent = ["x-user", "x-user", "x_user", "x-api-key", "accept"];
        assert_eq!(names_left(&sent, false), ["accept", "x-api-key"]);
    }

    #[test]
    fn a_trusted_proxy_may_send_an_identity_header() {
        assert_eq!(names_left(&["x-user", "accept"], true), ["accept", "x-user"]);
    }

    #[test]
    fn no_outsider_may_speak_for_onceward() {
        let sent = [
            "onceward-execution",
            "onceward-key",
            "onceward_key",
            "onceward_deadline",
            "onceward-anything",
            "onceward-deadline",
            "onceward-priority",
            "onceward-attempt",
            "idempotency-key",
        ];
        let left =
            ["idempotency-key", "onceward-attempt", "onceward-deadline", "onceward-priority"];
        assert_eq!(names_left(&sent, false), left);
        assert_eq!(names_left(&sent, true), left);
    }
}
