//! Licences, bans and sources of everything that is compiled in, by the rules of deny.toml.
//!
//! The file is that of cargo-deny, which takes minutes to compile; the three checks that this
//! repository asks of it are a walk over `cargo metadata`. `cargo deny check bans licenses sources`
//! says the same where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::source;
use crate::workspace::Workspace;

/// Checks licences, bans and sources of all dependencies by the rules of deny.toml.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  cargo xtask dependencies")]
pub(crate) struct Arguments {}

pub(crate) fn run(root: &Path, _: &Arguments) -> Result<(), Failure> {
    check(root)
}

const RULES: &str = "deny.toml";

pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let text = source::read(&root.join(RULES))?;
    let rules: Rules = toml::from_str(&text).map_err(|error| {
        Failure::new(
            format!("{RULES} cannot be understood: {error}"),
            "every rule in it must be one that xtask/src/dependencies.rs checks",
        )
    })?;
    let workspace = Workspace::read(root)?;
    let packages: Vec<&Value> = workspace.packages().collect();
    let findings = findings(&rules, &packages)?;
    for notice in notices(&rules, &packages) {
        println!("{notice}");
    }
    if findings.is_empty() {
        println!("{} packages keep the rules of {RULES}", packages.len());
        return Ok(());
    }
    Err(Failure::of_findings(
        "the check of dependencies",
        &findings,
        "leave the dependency out, or change the rule in deny.toml and say in the commit why",
    ))
}

/// What deny.toml says. A rule that is not known here is an error: it would not be checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(rename = "graph")]
    _graph: Graph,
    licenses: Licenses,
    bans: Bans,
    #[serde(rename = "sources")]
    _sources: Sources,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Graph {
    /// This check always looks at all features; cargo-deny has to be told.
    #[serde(rename = "all-features")]
    _all_features: AlwaysOn,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bans {
    deny: Vec<Ban>,
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Warned,
    #[serde(rename = "wildcards")]
    _wildcards: Denied,
    #[serde(rename = "allow-wildcard-paths")]
    _allow_wildcard_paths: AlwaysOn,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Sources {
    #[serde(rename = "unknown-registry")]
    _unknown_registry: Denied,
    #[serde(rename = "unknown-git")]
    _unknown_git: Denied,
}

/// The only value that this check implements for a rule.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Denied {
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Warned {
    Warn,
}

#[derive(Deserialize)]
#[serde(try_from = "bool")]
struct AlwaysOn;

impl TryFrom<bool> for AlwaysOn {
    type Error = &'static str;

    fn try_from(on: bool) -> Result<Self, Self::Error> {
        if on { Ok(Self) } else { Err("only `true` is implemented") }
    }
}

fn findings(rules: &Rules, packages: &[&Value]) -> Result<Vec<String>, Failure> {
    let mut findings = Vec::new();
    for package in packages {
        findings.extend(licence_problem(rules, package));
        findings.extend(ban_of(rules, package));
        findings.extend(source_problem(package));
        findings.extend(wildcards(package));
    }
    let registries: BTreeSet<&str> =
        packages.iter().filter_map(|package| package["source"].as_str()).collect();
    if registries.len() > 1 {
        findings.push(format!("packages come from more than one place: {registries:?}"));
    }
    if packages.is_empty() {
        return Err(Failure::new(
            "cargo lists no package at all, so nothing was checked",
            "look at what `cargo metadata --all-features` prints",
        ));
    }
    Ok(findings)
}

fn licence_problem(rules: &Rules, package: &Value) -> Option<String> {
    let Some(text) = package["license"].as_str() else {
        return Some(format!("{} states no licence", shown(package)));
    };
    let expression = match spdx::Expression::parse_mode(text, spdx::ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => {
            return Some(format!("{} has a licence that cannot be read: {error}", shown(package)));
        }
    };
    let is_allowed =
        expression.evaluate(|requirement| rules.licenses.allow.contains(&requirement.to_string()));
    (!is_allowed).then(|| format!("{} is under {text}, which is not allowed", shown(package)))
}

fn ban_of(rules: &Rules, package: &Value) -> Option<String> {
    let ban = rules.bans.deny.iter().find(|ban| package["name"] == ban.name)?;
    Some(format!("{} is banned: {}", shown(package), ban.reason))
}

/// A package is of this workspace, or of cargo's default registry: then no manifest names a registry.
fn source_problem(package: &Value) -> Option<String> {
    if let Some(source) = package["source"].as_str()
        && !source.starts_with("registry+")
    {
        return Some(format!("{} comes from {source}, not from a registry", shown(package)));
    }
    let other = dependencies(package).find_map(|dependency| dependency["registry"].as_str())?;
    Some(format!("{} takes a dependency from another registry, {other}", shown(package)))
}

/// A member of this workspace says which versions it takes; its neighbours it may name by path alone.
fn wildcards(package: &Value) -> Vec<String> {
    if !package["source"].is_null() {
        return Vec::new();
    }
    let open = dependencies(package).filter(|found| found["req"] == "*" && found["path"].is_null());
    open.map(|found| format!("{} takes any version of {}", shown(package), found["name"])).collect()
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

/// What is no failure but should be seen.
fn notices(rules: &Rules, packages: &[&Value]) -> Vec<String> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        *versions.entry(package["name"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let several: Vec<&str> =
        versions.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect();
    let mut notices = Vec::new();
    if !several.is_empty() {
        notices.push(format!("in more than one version: {}", several.join(", ")));
    }
    let texts: Vec<&str> =
        packages.iter().filter_map(|package| package["license"].as_str()).collect();
    for licence in &rules.licenses.allow {
        if !texts.iter().any(|text| text.contains(licence.as_str())) {
            notices.push(format!("{RULES} allows {licence}, which no package needs"));
        }
    }
    notices
}

fn shown(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or("?").to_owned();
    format!("{} {}", text("name"), text("version"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::root;

    fn rules() -> Rules {
        toml::from_str(&source::read(&root().unwrap().join(RULES)).unwrap()).unwrap()
    }

    fn package(licence: &str) -> Value {
        json!({"name": "some", "version": "1.0.0", "license": licence,
               "source": "registry+https://index", "dependencies": []})
    }

    fn problems(package: &Value) -> Vec<String> {
        findings(&rules(), &[package]).unwrap()
    }

    #[test]
    fn a_licence_must_be_allowed_in_one_of_its_readings() {
        for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR Zlib) AND ISC"] {
            assert_eq!(problems(&package(fine)), [""; 0], "{fine}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0 WITH LLVM-exception", "My"]
        {
            assert_eq!(problems(&package(bad)).len(), 1, "{bad}");
        }
        let mut silent = package("");
        silent["license"] = Value::Null;
        assert_eq!(problems(&silent), ["some 1.0.0 states no licence"]);
    }

    #[test]
    fn a_banned_crate_is_named_with_the_reason() {
        let mut banned = package("MIT");
        banned["name"] = json!("openssl-sys");
        let problems = problems(&banned);
        assert!(problems[0].contains("is banned: a system library"), "{problems:?}");
    }

    #[test]
    fn everything_comes_from_the_one_registry() {
        let mut git = package("MIT");
        git["source"] = json!("git+https://elsewhere/some");
        assert!(problems(&git)[0].contains("not from a registry"));
        let mut other = package("MIT");
        other["dependencies"] = json!([{"name": "a", "req": "^1", "registry": "https://other"}]);
        assert!(problems(&other)[0].contains("another registry"));
        let mut second = package("MIT");
        second["source"] = json!("registry+https://second");
        let found = findings(&rules(), &[&package("MIT"), &second]).unwrap();
        assert!(found[0].contains("more than one place"), "{found:?}");
    }

    #[test]
    fn a_member_names_its_neighbours_by_path_and_the_rest_by_version() {
        let mut member = package("MIT");
        member["source"] = Value::Null;
        member["dependencies"] = json!([{"name": "testbed", "req": "*", "path": "/x"},
                                        {"name": "serde", "req": "*"}]);
        assert_eq!(problems(&member), ["some 1.0.0 takes any version of \"serde\""]);
    }

    #[test]
    fn a_rule_that_is_not_checked_here_is_an_error() {
        let text = source::read(&root().unwrap().join(RULES)).unwrap();
        assert!(
            toml::from_str::<Rules>(&text.replace("unknown-git", "required-git-spec")).is_err()
        );
        assert!(
            toml::from_str::<Rules>(&text.replace("wildcards = \"deny\"", "wildcards = \"allow\""))
                .is_err()
        );
    }
}
