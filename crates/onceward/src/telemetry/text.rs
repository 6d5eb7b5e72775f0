//! The text exposition format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// The head of a family.
pub(super) fn write_head(text: &mut String, name: &str, kind: &str, about: &str) {
    let about = about.trim().replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a String never fails.
    let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} {kind}");
}

/// One sample; `labels` without their braces.
pub(super) fn write_sample(text: &mut String, name: &str, labels: &str, value: impl Display) {
    let _ = match labels.is_empty() {
        true => writeln!(text, "{name} {value}"),
        false => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

/// One label; its value may be anything.
pub(super) fn write_label(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
}
