//! The Dockerfile and the compose file: what can be checked of them without an engine for containers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Contents;
use super::files::{output, text};
use crate::tools;

const DOCKERFILE: &str = "deploy/Dockerfile";
const COMPOSE: &str = "deploy/compose.yaml";

/// What is wrong with them; all packages are there by now, because the image is made of the command.
pub(super) fn findings(contents: &Contents<'_>) -> Vec<String> {
    let checked = |name: &str, found: Result<Vec<String>, String>| -> Vec<String> {
        let found = found.unwrap_or_else(|reason| vec![format!("NOT CHECKED: {reason}")]);
        found.into_iter().map(|what| format!("{name}: {what}")).collect()
    };
    let dockerfile = text(&contents.root.join(DOCKERFILE));
    let dockerfile =
        dockerfile.map(|dockerfile| missing_sources(contents.root, &contents.to, &dockerfile));
    [checked(DOCKERFILE, dockerfile), checked(COMPOSE, compose(contents))].concat()
}

/// What it copies of this repository and is not there.
fn missing_sources(root: &Path, packages: &Path, dockerfile: &str) -> Vec<String> {
    let copies = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources = copies.filter(|line| !line.starts_with("--from=")).flat_map(|line| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.pop();
        words
    });
    let place = |source: &str| match source.strip_prefix("target/package/") {
        Some(made) => packages.join(made),
        None => root.join(source),
    };
    sources
        .filter(|source| !place(source).is_file())
        .map(|source| format!("it copies {source}, which is not there"))
        .collect()
}

/// Whether the gateway of the compose file finds its files and understands what it gets.
fn compose(contents: &Contents<'_>) -> Result<Vec<String>, String> {
    let file = contents.root.join(COMPOSE);
    let directory = file.parent().unwrap_or(contents.root);
    let python = tools::packaging(contents.workspace)?;
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let json = output(Command::new(python).args(["-c", script]).arg(&file))?;
    let compose: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let mut findings = missing_files(directory, &compose);
    let mut check = Command::new(&contents.binary);
    check.arg("check").arg(contents.root.join("deploy/onceward.toml"));
    let variables = compose["services"]["onceward"]["environment"].as_object();
    let variables = variables.into_iter().flatten();
    let variables: Vec<_> =
        variables.map(|(name, value)| (name, value.as_str().unwrap_or_default())).collect();
    match output(check.envs(variables.iter().copied())) {
        Err(reason) => findings.push(reason),
        Ok(meaning) => findings.extend(not_taken(&variables, &meaning)),
    }
    Ok(findings)
}

/// What the service sets and the gateway does not count.
fn not_taken(variables: &[(&String, &str)], meaning: &str) -> Option<String> {
    let lost = variables.iter().find(|(_, value)| !meaning.contains(value));
    lost.map(|(name, value)| format!("the gateway does not count {name}={value}"))
}

/// The files and folders of this repository that its services name and that are not there.
fn missing_files(directory: &Path, compose: &Value) -> Vec<String> {
    let mut named = Vec::new();
    for (name, service) in compose["services"].as_object().into_iter().flatten() {
        let build = &service["build"];
        if let (Some(context), Some(file)) =
            (build["context"].as_str(), build["dockerfile"].as_str())
        {
            named.push((name, format!("{context}/{file}")));
        }
        let volumes = service["volumes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let sources = volumes.filter_map(|volume| volume.split(':').next());
        named.extend(
            sources.filter(|path| path.starts_with('.')).map(|path| (name, path.to_owned())),
        );
    }
    if named.is_empty() {
        return vec!["it names no file of this repository".to_owned()];
    }
    let is_missing = |(_, path): &(&String, String)| !directory.join(path).exists();
    let missing = named.into_iter().filter(is_missing);
    missing.map(|(name, path)| format!("{name} needs {path}, which is not there")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::root;

    #[test]
    fn what_is_copied_and_is_not_there_is_named() {
        let dockerfile = "FROM a AS b\nCOPY --from=b /x /y\nCOPY LICENSE-MIT absent /z/\n";
        let missing = missing_sources(&root().unwrap(), Path::new("/"), dockerfile);
        assert_eq!(missing, ["it copies absent, which is not there"]);
    }

    #[test]
    fn what_a_service_needs_and_is_not_there_is_named() {
        let compose = json!({"services": {
            "a": {"build": {"context": "..", "dockerfile": "deploy/Dockerfile"}},
            "b": {"volumes": ["./absent:/x:ro", "records:/y"]},
        }});
        let missing = missing_files(&root().unwrap().join("deploy"), &compose);
        assert_eq!(missing, ["b needs ./absent, which is not there"]);
        assert!(!missing_files(Path::new("/"), &json!({})).is_empty());
    }

    #[test]
    fn a_variable_that_does_not_count_is_named() {
        let name = "ONCEWARD_UPSTREAMS".to_owned();
        let variables = [(&name, "http://service:3000")];
        assert_eq!(not_taken(&variables, "valid\n  upstream  http://service:3000\n"), None);
        let lost = not_taken(&variables, "valid\n  upstream  http://127.0.0.1:3000\n").unwrap();
        assert!(lost.ends_with("ONCEWARD_UPSTREAMS=http://service:3000"), "{lost}");
    }

    #[test]
    fn the_image_is_made_of_what_packaging_makes() {
        let root = root().unwrap();
        let dockerfile = text(&root.join(DOCKERFILE)).unwrap();
        let missing = missing_sources(&root, Path::new("/absent"), &dockerfile);
        // Only what a build makes may be missing in a checkout.
        assert!(missing.iter().all(|what| what.contains("target/package/")), "{missing:?}");
    }
}
