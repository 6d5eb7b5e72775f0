//! What the libraries show to their users: listed in a file, so that a change of it is seen, and with
//! an example for every item.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo::Cargo;
use crate::failure::Failure;
use crate::source;

/// Compares the public items of the libraries with their listings in docs/public-api.
///
/// A change of the surface is a decision: `--write` writes the listings, and the difference is part of
/// the commit. An item without an example is refused.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask surface           what has changed\n  \
                        cargo xtask surface --write   takes the change into docs/public-api")]
pub(crate) struct Arguments {
    /// Write the listings instead of comparing them
    #[arg(long)]
    write: bool,
}

const LISTINGS: &str = "docs/public-api";
const LIBRARIES: [&str; 2] = ["onceward-core", "onceward"];
/// Of rustdoc's JSON: what the crate `public-api` reads. Each version of Rust writes one.
const KNOWN_FORMAT: u64 = 57;

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Failure> {
    for library in LIBRARIES {
        let Some(surface) = Surface::read(root, library)? else { return Ok(()) };
        surface.check_examples()?;
        match arguments.write {
            true => surface.write(root)?,
            false => surface.compare(root)?,
        }
    }
    Ok(())
}

pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    run(root, &Arguments { write: false })
}

/// The public items of one library.
struct Surface {
    library: &'static str,
    /// One item a line, as Rust would declare it.
    listing: String,
    /// What rustdoc says about each of them.
    document: Value,
}

impl Surface {
    /// `None`: this version of Rust describes libraries in another format.
    fn read(root: &Path, library: &'static str) -> Result<Option<Self>, Failure> {
        let path = describe(root, library)?;
        let text = source::read(&path)?;
        let document: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!("{} is no JSON: {error}", path.display()), "repeat it")
        })?;
        let format = document["format_version"].as_u64().unwrap_or_default();
        if format != KNOWN_FORMAT {
            println!(
                "\n!!!! SKIPPED: the public surface was NOT compared: this version of Rust describes \
                 libraries in format {format}, and the listing is read from format {KNOWN_FORMAT} \
                 (Rust 1.95).\n"
            );
            return Ok(None);
        }
        let listing = public_api::Builder::from_rustdoc_json(&path)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .map_err(|error| {
                Failure::new(format!("{library} cannot be listed: {error}"), "update `public-api`")
            })?;
        Ok(Some(Self { library, listing: listing.to_string(), document }))
    }

    fn file(&self) -> PathBuf {
        Path::new(LISTINGS).join(format!("{}.txt", self.library))
    }

    fn write(&self, root: &Path) -> Result<(), Failure> {
        let file = root.join(self.file());
        let written = fs::create_dir_all(root.join(LISTINGS));
        written.and_then(|()| fs::write(&file, &self.listing)).map_err(|error| {
            Failure::new(format!("{} cannot be written: {error}", file.display()), "make room")
        })?;
        println!("{} has {} lines", self.file().display(), self.listing.lines().count());
        Ok(())
    }

    fn compare(&self, root: &Path) -> Result<(), Failure> {
        let listed = source::read(&root.join(self.file()))?;
        let findings = differences(&listed, &self.listing);
        if findings.is_empty() {
            println!("{} shows what {} lists", self.library, self.file().display());
            return Ok(());
        }
        Err(Failure::of_findings(
            &format!("the comparison of {} with {}", self.library, self.file().display()),
            &findings,
            "if users of the library shall see this change, run `cargo xtask surface --write`, commit \
             the listing and say it in the CHANGELOG; otherwise make the item private",
        ))
    }

    fn check_examples(&self) -> Result<(), Failure> {
        let findings = items_without_example(&self.document);
        if findings.is_empty() {
            return Ok(());
        }
        Err(Failure::of_findings(
            &format!("the reading of {}'s pages", self.library),
            &findings,
            "write an example that compiles into the item's documentation, or make it private",
        ))
    }
}

/// Lets rustdoc describe a library as JSON. That is not stable yet, so that rustdoc alone is told to
/// allow it: told to cargo, it would compile the dependencies anew.
fn describe(root: &Path, library: &str) -> Result<PathBuf, Failure> {
    let target = root.join("target");
    let script = target.join("rustdoc-for-json");
    let text = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
    fs::write(&script, text).and_then(|()| make_executable(&script)).map_err(|error| {
        Failure::new(format!("{} cannot be written: {error}", script.display()), "make room")
    })?;
    let line = format!(
        "rustdoc --quiet --package {library} --all-features --lib -- -Z unstable-options --output-format json"
    );
    Cargo::new(&line).environment("RUSTDOC", script.display().to_string()).run(root)?;
    Ok(target.join("doc").join(format!("{}.json", library.replace('-', "_"))))
}

fn make_executable(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}

fn differences(listed: &str, shown: &str) -> Vec<String> {
    let new = shown.lines().filter(|line| !listed.lines().any(|known| known == *line));
    let gone = listed.lines().filter(|line| !shown.lines().any(|known| known == *line));
    let new = new.map(|line| format!("new: {line}"));
    new.chain(gone.map(|line| format!("gone: {line}"))).collect()
}

/// Kinds of items that a reader looks up by name.
const SHOWN: [&str; 6] = ["struct", "enum", "trait", "function", "macro", "type_alias"];

/// Each case of the suites for stores and drivers is a function; the pages of the suites show how all are run.
const CASES: [&str; 2] = ["onceward_core::conformance::", "onceward::conformance::cases::"];

/// The paths of public items without an example, on their own page or on one of the modules they are in.
fn items_without_example(document: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let root = document["root"].to_string();
    let name = document["index"][&root]["name"].as_str().unwrap_or_default();
    walk(document, &root, name, "", &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

/// `around`: the pages of the modules that this one is in.
fn walk(document: &Value, module: &str, path: &str, around: &str, findings: &mut Vec<String>) {
    let page = &document["index"][module];
    let around = format!("{around}\n{}", page["docs"].as_str().unwrap_or_default());
    for id in page["inner"]["module"]["items"].as_array().into_iter().flatten() {
        let mut item = &document["index"][id.to_string()];
        if item["inner"]["use"].is_object() {
            // Items of another crate are not in the index: their own crate is asked for their example.
            item = &document["index"][item["inner"]["use"]["id"].to_string()];
        }
        let Some(name) = item["name"].as_str() else { continue };
        let path = format!("{path}::{name}");
        if item["attrs"].to_string().contains("hidden")
            || CASES.iter().any(|cases| path.starts_with(cases))
        {
            continue;
        }
        if item["inner"]["module"].is_object() {
            walk(document, &item["id"].to_string(), &path, &around, findings);
        } else if SHOWN.iter().any(|kind| !item["inner"][*kind].is_null())
            && !item["docs"].as_str().unwrap_or_default().contains("```")
            && !is_in_example(name, &around)
        {
            findings.push(format!("{path} has no example"));
        }
    }
}

/// Whether a block of code on these pages has this word.
fn is_in_example(name: &str, pages: &str) -> bool {
    let blocks = pages.split("```").skip(1).step_by(2);
    blocks.into_iter().any(|block| source::words(block).iter().any(|word| word.text == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_named_in_both_directions() {
        let found = differences("pub fn a()\npub fn b()\n", "pub fn b()\npub fn c()\n");
        assert_eq!(found, ["new: pub fn c()", "gone: pub fn a()"]);
    }

    #[test]
    fn an_item_without_an_example_is_found_through_modules_and_re_exports() {
        let function = |id: u8, name: &str, docs: &str| json!({ "id": id, "name": name, "docs": docs, "attrs": [], "inner": { "function": {} } });
        let document = json!({ "root": 0, "index": {
            "0": { "id": 0, "name": "shop", "inner": { "module": { "items": [1, 2, 9] } } },
            "1": { "id": 1, "name": "inside", "attrs": [], "inner": { "module": { "items": [3] } } },
            "2": { "id": 2, "inner": { "use": { "id": 4 } } },
            "3": function(3, "shown", "It pays.\n\n```\npay();\n```"),
            "4": function(4, "bare", "It pays."),
        } });
        assert_eq!(items_without_example(&document), ["shop::bare has no example"]);

        let mut shown = document;
        shown["index"]["0"]["docs"] = json!("A shop.\n\n```\nshop::bare();\n```");
        assert!(items_without_example(&shown).is_empty());
    }
}
