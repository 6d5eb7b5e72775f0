//! What the worker is asked to do, in the words of the library.

use std::time::Duration;

use onceward::{
    Effect, Fingerprint, Key, OperationId, OperationName, Outcome, Request, Scope, Terms,
    protocol::StoredBody,
};

/// As short as terms allow, because every retry after a crash waits for its end.
const LEASE: Duration = Duration::from_millis(100);

/// A request for one charge.
pub(crate) fn request(key: &str, effect: Effect) -> Request {
    let scope = Scope::of("tenant", "acme").expect("it is a scope");
    let name = OperationName::new("POST /charges").expect("it is a name");
    let key = Key::new(key).expect("tests use short keys");
    Request {
        operation: OperationId::new(scope, name, key),
        fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
        terms: Terms::of(effect).lease(LEASE).build().expect("the lease is not too short"),
    }
}

/// The body of an answer on one short line: the padding at its end is only counted.
pub(crate) fn shown(outcome: &Outcome) -> String {
    let StoredBody::Inline(bytes) = &outcome.body else { return "not-inline".to_owned() };
    let text = String::from_utf8_lossy(bytes);
    match text.trim_end_matches(PADDING) {
        whole if whole.len() == text.len() => whole.to_owned(),
        trimmed => format!("{trimmed}*{}", text.len()),
    }
}

/// What a body is made longer with; no body ends with it otherwise.
pub(crate) const PADDING: char = 'x';
