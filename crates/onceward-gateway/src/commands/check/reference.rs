//! `onceward check --options`: every option with its range, its default and its sentences, in Markdown.

use crate::config::{Described, Group, Reference, Shown};

const INTRODUCTION: &str = "\
# Options of the gateway

For people who write `onceward.toml`: every option of its file, from the table that the gateway reads files with.
`onceward check --options` prints this page, `onceward init` writes a file with all of them, and [gateway.md](gateway.md)
says what they are for. Durations are written `\"300ms\"`, `\"30s\"`, `\"10m\"`, `\"24h\"`, `\"7d\"`; sizes `\"64KiB\"`, `\"8MiB\"`.
A running gateway takes over a changed option when it gets SIGHUP, unless its row says that it needs a restart.
";

pub(crate) fn reference() -> String {
    let Reference { process, sections, head, routes } = Reference::of_all_options();
    let mut page = INTRODUCTION.to_owned();
    for (heading, groups) in [
        ("Above the first section", process),
        ("Sections", sections),
        ("Only in `[[route]]`", head),
        ("In `[[route]]`, and in `[defaults]` for all routes that do not say it", routes),
    ] {
        page += &format!("\n## {heading}\n");
        groups.iter().for_each(|group| add(&mut page, group));
    }
    page
}

fn add(page: &mut String, (heading, options): &Group) {
    *page += &format!("\n### {}\n\n", escaped(heading));
    for option in options {
        *page += &row(option);
    }
}

fn row(Described { name, text, values, shown, needs_restart }: &Described) -> String {
    let shown = match shown {
        Shown::Default(text) => format!("`{text}` if not said"),
        Shown::Example(text) => format!("no default, as an example `{text}`"),
        Shown::Required(text) => format!("required, as `{text}`"),
    };
    let restart = if *needs_restart { "; needs a restart" } else { "" };
    let mut row = format!("- **`{name}`**: {values}; {shown}{restart}.\n");
    for line in *text {
        // What is indented further is a list of its own.
        let line = escaped(line);
        row += &match line.strip_prefix("   ") {
            Some(item) => format!("  - {item}\n"),
            None => format!("  {}\n", line.trim_start()),
        };
    }
    row
}

/// What Markdown would take for a tag, where the line does not show it as code.
fn escaped(line: &str) -> String {
    if line.contains('`') { line.to_owned() } else { line.replace('<', "\\<") }
}
