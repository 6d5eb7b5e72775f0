//! Operations for people.

use serde_json::Value;

use crate::commands::terminal::columns;

const COLUMNS: [(&str, &str); 6] = [
    ("OPERATION", "operation"),
    ("STATE", "state"),
    ("ATTEMPT", "attempt"),
    ("STARTED", "started_at"),
    ("NAME", "name"),
    ("SCOPE", "scope"),
];

pub(super) fn lines(operations: &[Value]) -> String {
    let mut rows = vec![COLUMNS.map(|(head, _)| head.to_owned())];
    rows.extend(operations.iter().map(|one| COLUMNS.map(|(_, name)| cell(name, &one[name]))));
    columns(&rows, 0..0)
}

fn cell(name: &str, value: &Value) -> String {
    match name {
        "started_at" => seconds(&text(value)).to_owned(),
        _ => text(value),
    }
}

pub(in crate::commands) fn seconds(time: &str) -> &str {
    time.split_once('.').map_or(time, |(whole, _)| whole)
}

/// A value as a person reads it. What came from outside cannot move the cursor.
pub(in crate::commands) fn text(value: &Value) -> String {
    let plain = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    plain.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

const MEMBERS: [&str; 13] = [
    "operation",
    "name",
    "scope",
    "key_digest",
    "state",
    "cause",
    "effect",
    "attempt",
    "started_at",
    "updated_at",
    "expires_at",
    "unreadable",
    "execution",
];

/// Everything about one operation, and what the operator can do about it.
pub(super) fn whole(document: &Value) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let is_there = |name: &&str| !document[name].is_null();
    lines.extend(MEMBERS.into_iter().filter(is_there).map(|name| (name, text(&document[name]))));
    if let Value::Object(answer) = &document["answer"] {
        let of = |name: &str| text(answer.get(name).unwrap_or(&Value::Null));
        let [status, kept, bytes, headers] = ["status", "kept", "bytes", "headers"].map(of);
        lines.push(("answer", format!("{status}, {kept}, {bytes} bytes; headers: {headers}")));
    }
    for entry in document["trail"].as_array().into_iter().flatten() {
        let part = |joint: &str, value: &Value| match value {
            Value::Null => String::new(),
            value => format!("{joint}{}", text(value)),
        };
        let (by, why) = (part(" by ", &entry["actor"]), part(": ", &entry["reason"]));
        lines.push(("trail", format!("{} {}{by}{why}", text(&entry["at"]), text(&entry["kind"]))));
    }
    lines.extend(advice(document).map(|advice| ("next", advice.to_owned())));
    let lines = lines.into_iter().map(|(name, text)| format!("{name:11} {text}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn advice(document: &Value) -> Option<&'static str> {
    Some(match (document["unreadable"].as_str(), document["state"].as_str()) {
        (Some("sealed"), _) => {
            "nothing is lost: its answer is sealed with a key that is not at hand here; use \
             --config with all keys of [encryption]"
        }
        (Some(_), _) => {
            "its record is damaged: find out by business data what became of it; `purge \
             --force` frees the key"
        }
        (None, None) => "its record is gone: the key is new",
        (None, Some("unknown")) => {
            "find out whether it happened, then `keys resolve --applied` or `--not-applied`; until \
             then the gateway refuses every retry"
        }
        (None, Some("interrupted" | "failed_retryable")) => {
            "nothing: the next retry runs it again; or `keys release`, if none will come"
        }
        (None, Some("in_progress")) => "wait: it ends, or its lease does",
        _ => return None,
    })
}
