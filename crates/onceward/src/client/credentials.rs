//! New credentials for a call that was refused.

use http::{HeaderMap, HeaderName, header};

use super::key;

/// What belongs to the operation, its body and its target: no credentials.
const FIXED: [HeaderName; 4] =
    [key::KEY, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST];

/// New lines take the place of all old ones of their names.
pub(super) fn replace(headers: &mut HeaderMap, mut fresh: HeaderMap) {
    for name in FIXED {
        fresh.remove(name);
    }
    for name in fresh.keys() {
        headers.remove(name);
    }
    let mut last = None;
    for (name, line) in fresh {
        last = name.or(last);
        if let Some(name) = &last {
            headers.append(name.clone(), line);
        }
    }
}
