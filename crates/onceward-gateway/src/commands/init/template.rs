//! The file that `onceward init` writes: every option with its sentences and its default.

use crate::config::{Described, Group, Reference, Shown};

const INTRODUCTION: &str = "\
# The configuration of `onceward serve` and `onceward relay`. Check it with: onceward check onceward.toml
#
# A line that starts with `#` and a word, as `#listen = …`, shows an option with its default: remove
# the `#` to change it. A line that starts with `# ` shows an example. Durations are written \"300ms\",
# \"30s\", \"10m\", \"24h\", \"7d\"; sizes \"64KiB\", \"8MiB\". Names of files are relative to this file. The
# environment variables ONCEWARD_LISTEN, ONCEWARD_ADMIN, ONCEWARD_UPSTREAM, ONCEWARD_STORE,
# ONCEWARD_GUARANTEE and ONCEWARD_TRUSTED_PROXIES (with commas) replace what this file says; the command
# line replaces both. All options and their ranges: onceward check --options
";

pub(crate) fn template() -> String {
    let Reference { process, sections, head, routes } = Reference::of_all_options();
    let mut text = INTRODUCTION.to_owned();
    process.iter().for_each(|group| add(&mut text, group));
    for (heading, options) in &sections {
        let name = heading.split(':').next().unwrap_or_default();
        text += &format!("\n# ---- {heading} ----\n\n# {name}\n");
        for option in options {
            text += &comment(option);
            text += &format!("# {} = {}\n", option.name, written(option));
        }
    }
    text += "\n# What a route leaves out is taken from here: any option of a route but `match`, `name` and\n\
             # `accept_identity_change`.\n[defaults]\n\n[[route]]\n";
    head.iter().chain(&routes).for_each(|group| add(&mut text, group));
    text
}

fn add(text: &mut String, (heading, options): &Group) {
    *text += &format!("\n# ---- {heading} ----\n");
    for option in options {
        let mark = match option.shown {
            Shown::Default(_) => "#",
            Shown::Example(_) => "# ",
            Shown::Required(_) => "",
        };
        *text += &format!("\n{}{mark}{} = {}\n", comment(option), option.name, written(option));
    }
}

fn comment(option: &Described) -> String {
    option.text.iter().map(|line| format!("#{line}\n")).collect()
}

fn written(option: &Described) -> &str {
    match &option.shown {
        Shown::Default(text) => text,
        Shown::Example(text) | Shown::Required(text) => text,
    }
}
