//! The minimum supported Rust version is written in two places: the manifest and README.md.

use std::path::Path;

use super::Findings;
use crate::failure::Failure;
use crate::source;
use crate::workspace::Workspace;

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<(), Failure> {
    let readme = root.join("README.md");
    if !readme.is_file() {
        findings.notice("skipped: there is no README.md to compare the Rust version with");
        return Ok(());
    }
    let stated = stated_versions(&source::read(&readme)?);
    if stated.is_empty() {
        findings.notice("skipped: README.md does not state a Rust version");
        return Ok(());
    }
    let workspace = Workspace::read(root)?;
    let Some(required) = workspace.rust_version() else {
        findings.fail("Cargo.toml states no `rust-version`, but README.md states one");
        return Ok(());
    };
    for (line, version) in stated {
        if !same(&version, required) {
            findings.fail(format!(
                "README.md:{line} states Rust {version}, but `rust-version` in Cargo.toml is {required}"
            ));
        }
    }
    Ok(())
}

/// Versions behind the word `Rust`, and every version in a line that mentions the MSRV.
fn stated_versions(readme: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in readme.lines().enumerate() {
        let lower = line.to_lowercase();
        let about_it = ["msrv", "minimum supported rust", "rust-version"];
        let whole_line = about_it.iter().any(|phrase| lower.contains(phrase));
        let mut previous = "";
        for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.') {
            let version = word.trim_matches('.');
            if is_rust_version(version) && (whole_line || previous == "Rust") {
                found.push((number + 1, version.to_owned()));
            }
            if !word.is_empty() {
                previous = word;
            }
        }
    }
    found
}

fn is_rust_version(word: &str) -> bool {
    word.strip_prefix("1.").is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn same(one: &str, other: &str) -> bool {
    let short = |version: &str| version.strip_suffix(".0").unwrap_or(version).to_owned();
    // `1.0` itself would lose its minor version, and nothing here is that old.
    short(one) == short(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_and_other_numbers_are_not() {
        let readme = "Needs **Rust 1.95** or newer.\nSQLite 3.51, tokio 1.54.\nMSRV: `1.94.0`.\nRust is 1.5 times nicer.";
        assert_eq!(stated_versions(readme), [(1, "1.95".to_owned()), (3, "1.94.0".to_owned())]);
    }

    #[test]
    fn a_patch_version_of_zero_changes_nothing() {
        assert!(same("1.95.0", "1.95"));
        assert!(!same("1.95.1", "1.95"));
        assert!(!same("1.9", "1.95"));
    }
}
