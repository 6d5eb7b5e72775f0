//! Builds every test program once and remembers where cargo put it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cargo::{Cargo, forget_own_package};
use crate::failure::Failure;
use crate::workspace::{Kind, TestTarget};

/// What a build made.
#[derive(Debug, Default)]
pub(super) struct Programs {
    programs: Vec<Program>,
}

#[derive(Debug)]
struct Program {
    manifest: PathBuf,
    kind: Kind,
    name: String,
    /// Whether it is a test program, or the command itself, built for integration tests to start.
    holds_tests: bool,
    path: PathBuf,
}

/// Builds the programs of these targets, or of all. The features are those of the whole workspace
/// either way: choosing packages would choose other features, and build half of the tree again.
pub(super) fn build(
    root: &Path,
    targets: &[&TestTarget],
    everything: bool,
) -> Result<Programs, Failure> {
    let mut call = Cargo::new("test --workspace --all-features --no-run");
    if !everything {
        let chosen: BTreeSet<String> = targets.iter().map(|target| target.selector()).collect();
        let chosen = chosen.iter().flat_map(|words| words.split(' ')).map(str::to_owned);
        call = call.arguments(&chosen.collect::<Vec<_>>());
    }
    let messages = ["--message-format".to_owned(), "json-render-diagnostics".to_owned()];
    let output = call
        .clone()
        .arguments(&messages)
        .command(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| call.not_started(&error))?;
    if !output.status.success() {
        return Err(Failure::new(
            "the workspace does not compile, so no test ran",
            format!("read the compiler's messages above, then repeat with: {call}"),
        ));
    }
    Ok(Programs::of_messages(&String::from_utf8_lossy(&output.stdout)))
}

impl Programs {
    /// Reads cargo's JSON messages, one in a line.
    fn of_messages(messages: &str) -> Self {
        let parsed = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        Self {
            programs: parsed.filter_map(|message: Value| Program::of_message(&message)).collect(),
        }
    }

    /// The process that runs a test target the way `cargo test` does: in the directory of its
    /// package, and with the variables that describe the package and its commands.
    pub(super) fn command(&self, target: &TestTarget) -> Option<Command> {
        let program = self.programs.iter().find(|program| {
            program.holds_tests
                && program.manifest == target.manifest
                && program.kind == target.kind
                && program.name == target.name
        })?;
        let directory = target.manifest.parent()?;
        let mut command = Command::new(&program.path);
        forget_own_package(&mut command);
        command
            .current_dir(directory)
            .env("CARGO_MANIFEST_DIR", directory)
            .env("CARGO_MANIFEST_PATH", &target.manifest)
            .env("CARGO_PKG_NAME", &target.package)
            .envs(self.commands_of(&target.manifest));
        Some(command)
    }

    fn commands_of(&self, manifest: &Path) -> impl Iterator<Item = (String, OsString)> {
        self.programs
            .iter()
            .filter(move |program| program.manifest == manifest)
            .filter(|program| program.kind == Kind::Binary && !program.holds_tests)
            .map(|program| (format!("CARGO_BIN_EXE_{}", program.name), program.path.clone().into()))
    }
}

impl Program {
    fn of_message(message: &Value) -> Option<Self> {
        if message["reason"] != "compiler-artifact" {
            return None;
        }
        Some(Self {
            manifest: PathBuf::from(message["manifest_path"].as_str()?),
            kind: Kind::of(&message["target"])?,
            name: message["target"]["name"].as_str()?.to_owned(),
            holds_tests: message["profile"]["test"] == true,
            path: PathBuf::from(message["executable"].as_str()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_program_of_a_target_and_the_commands_beside_it() {
        let programs = Programs::of_messages(
            r#"{"reason":"compiler-artifact","manifest_path":"/g/Cargo.toml","target":{"kind":["bin"],"name":"onceward"},"profile":{"test":false},"executable":"/t/onceward"}
               {"reason":"compiler-artifact","manifest_path":"/g/Cargo.toml","target":{"kind":["bin"],"name":"onceward"},"profile":{"test":true},"executable":"/t/deps/onceward-1"}
               {"reason":"compiler-artifact","manifest_path":"/s/Cargo.toml","target":{"kind":["lib"],"name":"serde"},"profile":{"test":false},"executable":null}
               {"reason":"build-finished","success":true}"#,
        );
        let target = TestTarget {
            package: "onceward-gateway".into(),
            kind: Kind::Binary,
            name: "onceward".into(),
            manifest: "/g/Cargo.toml".into(),
        };
        let command = programs.command(&target).unwrap();
        assert_eq!(command.get_program(), "/t/deps/onceward-1");
        assert_eq!(command.get_current_dir(), Some(Path::new("/g")));
        let told = command.get_envs().find(|(name, _)| *name == "CARGO_BIN_EXE_onceward");
        assert_eq!(told.unwrap().1, Some("/t/onceward".as_ref()));
        assert!(programs.command(&TestTarget { name: "absent".into(), ..target }).is_none());
    }
}
