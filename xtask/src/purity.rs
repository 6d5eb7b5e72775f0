//! The core is pure: no clock, no randomness, no I/O. Proven by its dependencies, by a target that
//! has no standard library, and by its source.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo::Cargo;
use crate::failure::Failure;
use crate::source;
use crate::tools;

/// Checks that onceward-core is pure.
///
/// (1) The crates it brings with it are exactly those in xtask/core-dependencies.txt. (2) It builds
/// for a target that has no standard library. (3) Its source says `#![no_std]` and never names `std`
/// outside of tests.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  cargo xtask purity")]
pub(crate) struct Arguments {}

pub(crate) fn run(root: &Path, _: &Arguments) -> Result<(), Failure> {
    check(root)
}

pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    check_dependencies(root)?;
    check_source(root)?;
    check_bare_target(root)
}

const ALLOWED: &str = "xtask/core-dependencies.txt";

fn check_dependencies(root: &Path) -> Result<(), Failure> {
    // All platforms, so that the list does not depend on whose machine makes it.
    let call = Cargo::new(
        "tree -p onceward-core -e normal --prefix none --all-features --target all --format {p}",
    );
    let tree = call.capture(root)?;
    let allowed = source::read(&root.join(ALLOWED))?;
    let findings = compare(&resolved_names(&tree), &allowed_names(&allowed));
    if findings.is_empty() {
        println!("onceward-core brings exactly the crates of {ALLOWED}");
        return Ok(());
    }
    Err(Failure::of_findings(
        "the purity check of onceward-core's dependencies",
        &findings,
        "find out who brings them with `cargo tree -p onceward-core -e normal`. If the change is \
         wanted, edit xtask/core-dependencies.txt and say in the commit why every author of a \
         store should carry it; otherwise take the dependency out of the core",
    ))
}

/// The names in `cargo tree --prefix none`, the core itself left out.
fn resolved_names(tree: &str) -> BTreeSet<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "onceward-core").map(String::from).collect()
}

/// One name in a line; `#` starts a comment.
fn allowed_names(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.split('#').next());
    names.map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

fn compare(resolved: &BTreeSet<String>, allowed: &BTreeSet<String>) -> Vec<String> {
    let new =
        resolved.difference(allowed).map(|name| format!("{name} is new and not in {ALLOWED}"));
    let gone =
        allowed.difference(resolved).map(|name| format!("{name} is in {ALLOWED} but not used"));
    new.chain(gone).collect()
}

fn check_source(root: &Path) -> Result<(), Failure> {
    let directory = root.join("crates/onceward-core/src");
    let mut sources = Vec::new();
    for path in source::files(&directory, "rs")? {
        let code = source::code_only(&source::read(&path)?);
        sources.push((path, source::without_tests(&code)));
    }
    let test_modules: BTreeSet<&str> =
        sources.iter().flat_map(|(_, own)| own.test_modules.iter().map(String::as_str)).collect();

    let mut findings = Vec::new();
    for (path, own) in &sources {
        let inside = path.strip_prefix(&directory).unwrap_or(path).with_extension("");
        let only_in_tests =
            inside.iter().any(|part| part.to_str().is_some_and(|part| test_modules.contains(part)));
        if !only_in_tests {
            let shown = source::shown(root, path);
            findings.extend(lines_that_name_std(&own.code).map(|line| {
                format!(
                    "{shown}:{line} names `std`; use `core` or `alloc`, or take it as an argument"
                )
            }));
        }
        if *path == directory.join("lib.rs") && !own.code.contains("#![no_std]") {
            findings.push(format!("{} does not say `#![no_std]`", source::shown(root, path)));
        }
    }
    if findings.is_empty() {
        println!("onceward-core says #![no_std] and never names std outside of tests");
        return Ok(());
    }
    Err(Failure::of_findings(
        "the purity check of onceward-core's source",
        &findings,
        "keep clocks, randomness and I/O in the crate `onceward`; the core gets them as arguments",
    ))
}

fn lines_that_name_std(code: &str) -> impl Iterator<Item = usize> {
    source::words(code).into_iter().filter(|word| word.text == "std").map(|word| word.line)
}

const BARE_TARGET: &str = "x86_64-unknown-none";

fn check_bare_target(root: &Path) -> Result<(), Failure> {
    if let Err(missing) = tools::ensure_target(BARE_TARGET) {
        println!(
            "\n!!!! SKIPPED: onceward-core was NOT built for {BARE_TARGET}: {}.\n\
             !!!! Its source and its dependencies were checked, the proof by compiler was not.\n",
            missing.0
        );
        return Ok(());
    }
    Cargo::new(&format!("check -p onceward-core --all-features --target {BARE_TARGET}"))
        .run(root)?;
    println!("onceward-core builds for {BARE_TARGET}, which has no standard library");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_in_both_directions() {
        let resolved = resolved_names(
            "onceward-core v0.1.0 (/somewhere)\nsha2 v0.11.1\ntokio v1.0.0\nsha2 v0.11.1 (*)\n",
        );
        let allowed = allowed_names("# why\n\nsha2   # digest\nuuid\n");
        let findings = compare(&resolved, &allowed);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("tokio is new"), "{findings:?}");
        assert!(findings[1].starts_with("uuid is in"), "{findings:?}");
    }

    #[test]
    fn std_is_found_as_a_word() {
        let code = "use core::fmt;\nuse std::time;\nlet std_like = no_std;\nextern crate std;";
        assert_eq!(lines_that_name_std(code).collect::<Vec<_>>(), [2, 4]);
    }
}
