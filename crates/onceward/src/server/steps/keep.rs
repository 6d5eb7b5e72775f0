//! What is kept of an answer: its header lines and its bytes, without what must not be stored.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use onceward_core::{Effect, Header, Outcome, StoredBody};
use sha2::{Digest as _, Sha256};

use super::capture::Captured;
use crate::server::{
    Idempotency, NotKept, Redaction, Resource,
    headers::{self, REDACTED},
    options::checked::Options,
};

/// What is kept of an answer, and the bytes that are too many for the record itself.
pub(crate) fn outcome(idempotency: &Idempotency, captured: &Captured) -> (Outcome, Option<Bytes>) {
    let options = idempotency.options();
    let (mut outcome, mut bytes) = as_it_is(options, captured);
    if options.chosen.redact.is_some() {
        if let Some(bytes) = bytes.take() {
            outcome.body = StoredBody::Inline(bytes.into());
        }
        redact(options, &mut outcome);
        if let StoredBody::Inline(redacted) = &mut outcome.body {
            bytes = Some(std::mem::take(redacted).into());
        }
    }
    match bytes {
        None => (outcome, None),
        Some(bytes) if bytes.len() > options.chosen.max_inline => {
            (Outcome { body: StoredBody::Unavailable, ..outcome }, Some(bytes))
        }
        Some(bytes) => (Outcome { body: StoredBody::Inline(bytes.into()), ..outcome }, None),
    }
}

/// Whether an answer is the one of which this was kept, after something was hidden in it. What a
/// router adds on the way out, as the length, does not matter.
pub(crate) fn is_kept_of(idempotency: &Idempotency, captured: &Captured, stored: &Outcome) -> bool {
    if captured.head().is_none() || !is_redacted(&stored.headers) {
        return false;
    }
    let (mut kept, large) = outcome(idempotency, captured);
    if let Some(bytes) = large {
        kept.body = spooled(&bytes);
    }
    let has = |line: &Header| kept.headers.contains(line);
    (kept.status, &kept.body, &kept.trailers) == (stored.status, &stored.body, &stored.trailers)
        && stored.headers.iter().all(has)
}

/// Before anything is hidden: the bytes, if they are kept at all, are beside it.
fn as_it_is(options: &Options, captured: &Captured) -> (Outcome, Option<Bytes>) {
    let head = captured.head().expect("no answer never means that an answer is kept");
    let (status, headers, extensions) = head;
    if options.chosen.status_only {
        return (not_kept(status, location_only(headers)), None);
    }
    let Some(headers) = options.kept.of(headers) else {
        return (not_kept(status, location_only(headers)), None);
    };
    if extensions.get::<NotKept>().is_some() {
        return (not_kept(status, headers), None);
    }
    if let Some(resource) = extensions.get::<Resource>()
        && options.chosen.rebuild.is_some()
    {
        let (kind, id) = (resource.kind().to_owned(), resource.id().to_owned());
        let body = StoredBody::Reference { kind, id };
        return (Outcome { body, ..not_kept(status, headers) }, None);
    }
    let Captured::Whole { whole, .. } = captured else {
        return (not_kept(status, headers), None);
    };
    let trailers =
        whole.trailers.as_ref().map_or(Some(Vec::new()), |headers| options.kept.of(headers));
    let Some(trailers) = trailers else { return (not_kept(status, headers), None) };
    (Outcome { trailers, ..not_kept(status, headers) }, Some(whole.bytes.clone()))
}

fn not_kept(status: StatusCode, headers: Vec<Header>) -> Outcome {
    let body = StoredBody::Unavailable;
    Outcome { status: status.as_u16(), headers, body, trailers: Vec::new() }
}

/// Where the result can be found is worth keeping, if nothing else can be.
fn location_only(headers: &HeaderMap) -> Vec<Header> {
    let location = headers.get(header::LOCATION).map(HeaderValue::as_bytes);
    let location = location.filter(|value| value.len() < headers::MAX_BYTES);
    location.map(|value| (header::LOCATION.as_str().into(), value.into())).into_iter().collect()
}

/// What a resolver or an operator found out about an unknown outcome is kept by the same rules.
pub(crate) fn found_out(options: &Options, mut outcome: Outcome) -> Outcome {
    outcome.headers = options.kept.of(&headers::restore(&outcome.headers)).unwrap_or_default();
    outcome.headers.retain(|(name, _)| **name != *REDACTED.as_str() && **name != *"content-length");
    if matches!(outcome.status, 204 | 205 | 304) && matches!(outcome.body, StoredBody::Inline(_)) {
        outcome.body = StoredBody::Inline(Vec::new());
    }
    if options.chosen.status_only {
        outcome.body = StoredBody::Unavailable;
        leave_only_location(&mut outcome);
    }
    redact(options, &mut outcome);
    outcome
}

/// The same for a record that a service ended by SQL before its functions knew what to keep.
pub(crate) fn read_back(options: &Options, outcome: &mut Outcome) {
    if options.chosen.status_only && options.terms.effect() == Effect::Transactional {
        outcome.body = StoredBody::Unavailable;
        leave_only_location(outcome);
    }
}

/// Lets the service hide what must not be stored. If its redaction fails, nothing of the answer is stored.
fn redact(options: &Options, outcome: &mut Outcome) {
    let Some(redact) = &options.chosen.redact else { return };
    let (status, body) = (outcome.status, outcome.body.clone());
    match catch_unwind(AssertUnwindSafe(|| redact(outcome))) {
        Ok(Redaction::Unchanged) => {}
        Ok(Redaction::Redacted) => {
            if outcome.body != body {
                outcome.headers.retain(|line| !tells_about_the_body(line));
                outcome.trailers.retain(|line| !tells_about_the_body(line));
            }
            outcome.headers.push((REDACTED.as_str().into(), b"true"[..].into()));
        }
        Ok(Redaction::NotKept) => {
            outcome.body = StoredBody::Unavailable;
            leave_only_location(outcome);
        }
        Err(_) => {
            tracing::error!(
                "a redaction panicked, and its answer is not kept: correct the redaction"
            );
            (outcome.body, outcome.headers) = (StoredBody::Unavailable, Vec::new());
            outcome.trailers = Vec::new();
        }
    }
    outcome.status = status;
}

fn leave_only_location(outcome: &mut Outcome) {
    outcome.headers.retain(|(name, _)| **name == *header::LOCATION.as_str());
    outcome.trailers = Vec::new();
}

/// These lines would be wrong for other bytes, and a digest helps to guess the hidden ones.
fn tells_about_the_body((name, _): &Header) -> bool {
    const LINES: [&str; 6] =
        ["content-length", "content-digest", "content-md5", "digest", "etag", "repr-digest"];
    LINES.contains(&&**name)
}

/// Whether something was hidden in an answer, by the line that says so in its record.
pub(crate) fn is_redacted(headers: &[Header]) -> bool {
    headers.iter().any(|(name, _)| **name == *REDACTED.as_str())
}

/// Stands in the record for bytes that are kept beside it.
pub(crate) fn spooled(bytes: &[u8]) -> StoredBody {
    StoredBody::Spooled { length: bytes.len() as u64, digest: Sha256::digest(bytes).into() }
}
