//! Messages for people.

use std::time::Duration;

use serde_json::Value;

pub(super) use crate::commands::keys::{seconds, text};
use crate::{
    commands::terminal::{columns, counted},
    config::show_duration,
};

const COLUMNS: [(&str, &str); 8] = [
    ("MESSAGE", "message"),
    ("SINK", "sink"),
    ("STATE", "state"),
    ("ATTEMPTS", "attempts"),
    ("ENQUEUED", "enqueued_at"),
    ("TOPIC", "topic"),
    ("AGGREGATE", "aggregate"),
    ("BYTES", "bytes"),
];

pub(super) fn lines(messages: &[Value]) -> String {
    let mut rows = vec![COLUMNS.map(|(head, _)| head.to_owned())];
    rows.extend(messages.iter().map(|one| COLUMNS.map(|(_, name)| cell(name, &one[name]))));
    columns(&rows, 0..0)
}

fn cell(name: &str, value: &Value) -> String {
    match name {
        "enqueued_at" => seconds(&text(value)).to_owned(),
        _ => text(value),
    }
}

const SINK_COLUMNS: [(&str, &str); 9] = [
    ("SINK", "sink"),
    ("LAG", "lag"),
    ("OLDEST", "oldest_waiting_seconds"),
    ("WAITING", "waiting"),
    ("SCHEDULED", "scheduled"),
    ("HELD", "held"),
    ("DEAD", "dead"),
    ("LANES", "lanes_held"),
    ("RELAYS", "relays"),
];

/// How each sink is.
pub(super) fn sinks(sinks: &[Value]) -> String {
    let mut rows = vec![SINK_COLUMNS.map(|(head, _)| head.to_owned())];
    let cell = |name: &str, value: &Value| match (name, value) {
        ("oldest_waiting_seconds", Value::Number(seconds)) => {
            show_duration(Duration::from_secs(seconds.as_u64().unwrap_or_default()))
        }
        ("relays", Value::Array(relays)) => relays.len().to_string(),
        (_, value) => text(value),
    };
    rows.extend(sinks.iter().map(|one| SINK_COLUMNS.map(|(_, name)| cell(name, &one[name]))));
    columns(&rows, 1..9)
}

const MEMBERS: [&str; 10] = [
    "message",
    "topic",
    "aggregate",
    "enqueued_at",
    "not_before",
    "expires_at",
    "bytes",
    "headers",
    "operation",
    "trace",
];

/// Everything about one message, and what the operator can do about it.
pub(super) fn whole(document: &Value) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let is_said = |name: &&str| {
        !document[name].is_null() && document[name].as_array().is_none_or(|list| !list.is_empty())
    };
    lines.extend(MEMBERS.into_iter().filter(is_said).map(|name| (name, text(&document[name]))));
    for name in ["body", "body_base64"] {
        lines.extend(document[name].as_str().map(|body| (name, text(&body.into()))));
    }
    let sinks = || document["sinks"].as_array().into_iter().flatten();
    for one in sinks() {
        let of = |name: &str| text(&one[name]);
        let due = one["due_at"].as_str().map(|due| format!(", due {}", seconds(due)));
        let why = Some(of("why")).filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
        let attempts = usize::try_from(one["attempts"].as_u64().unwrap_or_default());
        let attempts = counted(attempts.unwrap_or(usize::MAX), "failed attempt");
        let (sink, state) = (of("sink"), of("state"));
        let [due, why] = [due, why].map(Option::unwrap_or_default);
        lines.push(("sink", format!("{sink} {state}, {attempts}{due}{why}")));
    }
    for entry in document["trail"].as_array().into_iter().flatten() {
        let of = |name: &str| text(&entry[name]);
        let by = entry["actor"].as_str().map(|_| format!(" by {}", of("actor")));
        let (at, kind, sink, reason) = (of("at"), of("kind"), of("sink"), of("reason"));
        let by = by.unwrap_or_default();
        lines.push(("trail", format!("{at} {kind} at {sink}{by}: {reason}")));
    }
    let advice = sinks().filter_map(|one| advice(&one["state"])).next();
    lines.extend(advice.map(|advice| ("next", advice.to_owned())));
    let lines = lines.into_iter().map(|(name, text)| format!("{name:11} {text}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn advice(state: &Value) -> Option<&'static str> {
    Some(match state.as_str()? {
        "dead" => {
            "mend what refused it, then `messages redrive`; or `messages discard`. Until then later messages of its \
             aggregate wait, unless the sink skips dead letters"
        }
        "held" => "its endpoint said that it wants no more: when it does again, `messages redrive`",
        "waiting" => {
            "nothing: the relay sends it; `messages redrive` sends it at once, if it failed before"
        }
        _ => return None,
    })
}
