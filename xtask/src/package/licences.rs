//! The licences of all that is compiled into the command: a package has to hold them, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::binary::TARGET;
use crate::cargo::Cargo;
use crate::failure::Failure;
use crate::workspace::Workspace;

/// Where Debian's package of the C library says whose it is.
const MUSL: &str = "/usr/share/doc/musl-tools/copyright";

const HEADING: &str = "The command `onceward` contains the software below, with these licences.\n\n\
    The Rust standard library: MIT or Apache-2.0, the Rust project contributors; the text of the latter is below.\n\
    The C library musl: MIT, Copyright 2005-2020 Rich Felker, et al.\nSQLite: public domain.\n";

/// Every text once, below the names of those that have it.
pub(super) fn of_third_parties(root: &Path, workspace: &Workspace) -> Result<String, Failure> {
    let call =
        Cargo::new("tree --locked -p onceward-gateway --edges normal --prefix none --target")
            .arguments(&[TARGET.to_owned()]);
    let named = names(&call.capture(root)?);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut all = HEADING.to_owned();
    for package in workspace.packages().filter(|package| !package["source"].is_null()) {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        if !named.contains(&name) {
            continue;
        }
        let found = texts_of(package);
        if found.is_empty() {
            all += &format!("{name}: {}, without a text of its own\n", field("license"));
        }
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        all += &format!("\n{}\n{}\n\n{}\n", "=".repeat(78), names.join(", "), text.trim_end());
    }
    if let Ok(musl) = fs::read_to_string(MUSL) {
        all += &format!("\n{}\nmusl\n\n{}\n", "=".repeat(78), musl.trim_end());
    }
    Ok(all)
}

/// Reads `name v1.2.3 (how it is built)`.
fn names(tree: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    };
    tree.lines().filter_map(name).collect()
}

/// The texts in the source of a package, also of what it has taken from others.
fn texts_of(package: &Value) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
    let mut waiting: Vec<PathBuf> = manifest.parent().into_iter().map(Path::to_owned).collect();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if is_licence(&entry.file_name().to_string_lossy()) {
                texts.extend(fs::read_to_string(path));
            }
        }
    }
    texts
}

fn is_licence(name: &str) -> bool {
    const STARTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
    let (name, is_code) = (name.to_uppercase(), name.ends_with(".rs") || name.ends_with(".html"));
    !is_code && STARTS.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    #[test]
    fn what_cargo_tree_prints_is_read() {
        let tree = "onceward-gateway v0.1.0 (/x)\nserde v1.0.228\nserde_derive v1.0.1 (proc-macro)\nserde v1.0.228 (*)\n";
        let expected = ["onceward-gateway 0.1.0", "serde 1.0.228", "serde_derive 1.0.1"];
        assert_eq!(names(tree), expected.map(str::to_owned).into());
    }

    #[test]
    fn the_texts_of_what_is_compiled_in_are_there() {
        let root = root().unwrap();
        let all = of_third_parties(&root, &Workspace::read(&root).unwrap()).unwrap();
        // A crate, C that a crate has taken from others, and what only other systems need.
        assert!(all.contains("tokio 1.") && all.contains("Copyright (c) Tokio Contributors"));
        assert!(all.contains("Daan Leijen"), "mimalloc");
        assert!(!all.contains("windows-sys"), "it is compiled in on another system alone");
    }
}
