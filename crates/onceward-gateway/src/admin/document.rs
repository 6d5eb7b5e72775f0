//! Records as operators see them. Keys are digests; of answers, operators see sizes and names, never the
//! bytes.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use onceward::{
    Digest, Execution, Outcome, State, Status, Timestamp,
    protocol::{Found, Stored, StoredBody, Unreadable},
    server::cause_of,
    store::{Listed, TrailEntry},
};
use serde_json::{Map, Value, json};

pub(super) fn line(listed: &Listed) -> Value {
    match &listed.found {
        Found::Record(stored) => readable(listed.id, stored),
        Found::Unreadable { why, .. } => unreadable(listed.id, *why),
        Found::Nothing => absent(listed.id),
    }
}

/// Everything that may be shown of one operation, also after its record is gone.
pub(super) fn whole(id: Digest, found: &Found, trail: &[TrailEntry]) -> Value {
    let mut document = match found {
        Found::Record(stored) => {
            let mut document = readable(id, stored);
            document["effect"] = stored.record.effect.as_str().into();
            document["cause"] = cause_of(stored).into();
            document["execution"] = execution(id, stored.record.execution);
            document["answer"] = match &stored.record.state {
                State::Succeeded(outcome) | State::FailedFinal(outcome) => answered(outcome),
                _ => Value::Null,
            };
            document
        }
        Found::Unreadable { why, .. } => unreadable(id, *why),
        Found::Nothing => absent(id),
    };
    document["trail"] = trail.iter().map(|one| entry(id, one)).collect();
    document
}

fn readable(id: Digest, stored: &Stored) -> Value {
    let record = &stored.record;
    json!({
        "operation": id.to_string(),
        "scope": record.scope.to_string(),
        "name": record.operation.as_str(),
        "key_digest": record.key_digest.to_string(),
        "state": stored.status().as_str(),
        "attempt": record.attempts,
        "started_at": time(stored.started_at()),
        "updated_at": time(stored.updated_at),
        "expires_at": kept_until(stored),
    })
}

/// The names that every line has.
const NAMES: [&str; 8] =
    ["scope", "name", "key_digest", "state", "attempt", "started_at", "updated_at", "expires_at"];

fn absent(id: Digest) -> Value {
    let mut document: Map<_, _> = NAMES.iter().map(|name| ((*name).into(), Value::Null)).collect();
    document.insert("operation".into(), id.to_string().into());
    document.into()
}

/// An unreadable record is not absent: its outcome is unknown.
fn unreadable(id: Digest, why: Unreadable) -> Value {
    let mut document = absent(id);
    document["state"] = Status::Unknown.as_str().into();
    document["unreadable"] = why.as_str().into();
    document
}

/// Only what has ended ends by time; before that there is a lease, which is the owner's own business.
fn kept_until(stored: &Stored) -> Option<String> {
    match stored.status().is_open() {
        true => None,
        false => stored.expires_at().and_then(time),
    }
}

/// As the upstream got it in `Onceward-Execution`.
fn execution(id: Digest, execution: Execution) -> Value {
    format!("{id}.{execution}").into()
}

fn answered(outcome: &Outcome) -> Value {
    let (kept, bytes) = match &outcome.body {
        StoredBody::Inline(bytes) => ("inline", Some(bytes.len() as u64)),
        StoredBody::Spooled { length, .. } => ("spooled", Some(*length)),
        StoredBody::Reference { .. } => ("reference", None),
        StoredBody::Unavailable => ("unavailable", None),
    };
    let headers: Vec<&str> = outcome.headers.iter().map(|(name, _)| &**name).collect();
    json!({ "status": outcome.status, "kept": kept, "bytes": bytes, "headers": headers })
}

fn entry(id: Digest, entry: &TrailEntry) -> Value {
    json!({
        "at": time(entry.at),
        "kind": entry.note.kind.as_str(),
        "execution": execution(id, entry.note.execution),
        "actor": entry.note.actor,
        "reason": entry.note.reason,
    })
}

pub(super) fn time(time: Timestamp) -> Option<String> {
    Some(jiff::Timestamp::from_microsecond(time.unix_micros()).ok()?.to_string())
}

/// A document, with an end of line for people who read it in a terminal.
pub(super) fn answer(status: StatusCode, document: &Value) -> Response {
    let mut response = Response::new(format!("{document}\n").into());
    *response.status_mut() = status;
    let lines = response.headers_mut();
    lines.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    lines.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
