//! The key: made once for a call, the same on every attempt.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward_core::Key;
use uuid::Uuid;

pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether a call carries a key; makes one where its method needs it and the caller has none.
///
/// Two lines, or one that servers must refuse, are sent as they are, but count as no key: no repeat may
/// rely on them.
pub(super) fn provide(headers: &mut HeaderMap, method: &Method, make: bool) -> bool {
    if make && !headers.contains_key(KEY) && (method == Method::POST || method == Method::PATCH) {
        let key = HeaderValue::try_from(Uuid::now_v7().hyphenated().to_string());
        headers.insert(KEY, key.expect("a UUID is visible ASCII"));
    }
    own(headers).is_some()
}

pub(super) fn own(headers: &HeaderMap) -> Option<Key> {
    Key::from_lines(headers.get_all(KEY).iter().map(HeaderValue::as_bytes)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_and_patches_get_one_and_the_callers_own_wins() {
        for method in [Method::POST, Method::PATCH] {
            let mut headers = HeaderMap::new();
            assert!(provide(&mut headers, &method, true));
            let key = headers[KEY].to_str().unwrap().parse::<Uuid>().unwrap();
            assert_eq!(key.get_version_num(), 7);
            headers.insert(KEY, HeaderValue::from_static("\"mine\""));
            assert!(provide(&mut headers, &method, true));
            assert_eq!(headers[KEY], "\"mine\"");
        }
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let mut headers = HeaderMap::new();
            assert!(!provide(&mut headers, &method, true), "{method} does without");
            assert!(headers.is_empty());
        }
        assert!(!provide(&mut HeaderMap::new(), &Method::POST, false));
    }

    #[test]
    fn what_servers_must_refuse_is_no_key() {
        for lines in [&["a", "b"][..], &[""], &["a, b"]] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(KEY, HeaderValue::from_static(line));
            }
            assert!(!provide(&mut headers, &Method::POST, true), "{lines:?}");
            assert_eq!(headers.get_all(KEY).iter().count(), lines.len(), "sent as they are");
        }
    }
}
