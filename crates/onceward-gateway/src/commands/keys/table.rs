//! Operations for people.

use serde_json::Value;

const COLUMNS: [(&str, &str); 6] = [
    ("OPERATION", "operation"),
    ("STATE", "state"),
    ("ATTEMPT", "attempt"),
    ("STARTED", "started_at"),
    ("NAME", "name"),
    ("SCOPE", "scope"),
];

/// One line each, below a head.
pub(super) fn lines(operations: &[Value]) -> String {
    let mut rows = vec![COLUMNS.map(|(head, _)| head.to_owned())];
    rows.extend(operations.iter().map(|one| COLUMNS.map(|(_, name)| cell(name, &one[name]))));
    let mut widths = [0; COLUMNS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; COLUMNS.len()]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
        padded.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cell(name: &str, value: &Value) -> String {
    match name {
        "started_at" => seconds(&text(value)).to_owned(),
        _ => text(value),
    }
}

/// Without the microseconds.
pub(super) fn seconds(time: &str) -> &str {
    time.split_once('.').map_or(time, |(whole, _)| whole)
}

/// A value as a person reads it. What came from outside cannot move the cursor.
pub(super) fn text(value: &Value) -> String {
    let plain = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    plain.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Everything about one operation, and what can be done about it.
pub(super) fn whole(document: &Value) -> String {
    let mut lines = Vec::new();
    let names = [
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
    for name in names {
        if !document[name].is_null() {
            lines.push(format!("{:11} {}", name, text(&document[name])));
        }
    }
    if let Value::Object(answer) = &document["answer"] {
        let of = |name: &str| text(answer.get(name).unwrap_or(&Value::Null));
        let (status, kept, bytes) = (of("status"), of("kept"), of("bytes"));
        lines.push(format!(
            "{:11} {status}, {kept}, {bytes} bytes; headers: {}",
            "answer",
            of("headers")
        ));
    }
    for entry in document["trail"].as_array().into_iter().flatten() {
        let by = match &entry["actor"] {
            Value::Null => String::new(),
            actor => format!(" by {}", text(actor)),
        };
        let why = match &entry["reason"] {
            Value::Null => String::new(),
            reason => format!(": {}", text(reason)),
        };
        lines.push(format!(
            "{:11} {} {}{by}{why}",
            "trail",
            text(&entry["at"]),
            text(&entry["kind"])
        ));
    }
    lines.extend(advice(document).map(|advice| format!("{:11} {advice}", "next")));
    lines.join("\n")
}

fn advice(document: &Value) -> Option<&'static str> {
    match document["unreadable"].as_str() {
        Some("sealed") => {
            return Some(
                "nothing is lost: its answer is sealed with a key that is not at hand here; use \
                 --config with all keys of [encryption]",
            );
        }
        Some(_) => {
            return Some(
                "its record is damaged: find out by business data what became of it; `purge \
                 --force` frees the key",
            );
        }
        None => {}
    }
    match document["state"].as_str() {
        None => Some("its record is gone: the key is new"),
        Some("unknown") => Some(
            "find out whether it happened, then `keys resolve --applied` or `--not-applied`; until \
             then every retry is refused",
        ),
        Some("interrupted" | "failed_retryable") => {
            Some("nothing: the next retry runs it again; or `keys release`, if none will come")
        }
        Some("in_progress") => Some("wait: it ends, or its lease does"),
        _ => None,
    }
}
