//! What cargo knows about this workspace.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo::Cargo;
use crate::failure::Failure;

/// The root of the repository that this tool was started from.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    match own.parent() {
        Some(root) if root.join("Cargo.toml").is_file() => Ok(root.to_path_buf()),
        _ => Err(Failure::new(
            format!("no workspace above {}", own.display()),
            "start this tool inside the repository, as `cargo xtask …`",
        )),
    }
}

/// One program that `cargo test` builds: the unit tests of a library or binary, or a file in `tests/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestTarget {
    pub(crate) package: String,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Library,
    Binary,
    Integration,
    Example,
    Bench,
}

impl Kind {
    /// Of a target, as `cargo metadata` and build messages describe it; `None` for a build script.
    pub(crate) fn of(target: &Value) -> Option<Self> {
        match target["kind"][0].as_str()? {
            "custom-build" => None,
            "test" => Some(Self::Integration),
            "bin" => Some(Self::Binary),
            "example" => Some(Self::Example),
            "bench" => Some(Self::Bench),
            _ => Some(Self::Library),
        }
    }
}

impl TestTarget {
    /// Whether it is the integration test `tests/<name>.rs`.
    pub(crate) fn is_test(&self, name: &str) -> bool {
        self.kind == Kind::Integration && self.name == name
    }

    /// The option of cargo that chooses targets of its kind and name.
    pub(crate) fn selector(&self) -> String {
        match self.kind {
            Kind::Library => "--lib".to_owned(),
            Kind::Binary => format!("--bin {}", self.name),
            Kind::Integration => format!("--test {}", self.name),
            Kind::Example => format!("--example {}", self.name),
            Kind::Bench => format!("--bench {}", self.name),
        }
    }

    /// The call that runs this target alone.
    pub(crate) fn cargo_test(&self) -> Cargo {
        Cargo::new(&format!("test -p {} --all-features {}", self.package, self.selector()))
    }

    /// The name by which people know it: `onceward tests/sqlite_store.rs`.
    pub(crate) fn label(&self) -> String {
        let Self { package, name, .. } = self;
        match self.kind {
            Kind::Library => format!("{package} unit tests"),
            Kind::Binary => format!("{package} unit tests of the command {name}"),
            Kind::Integration => format!("{package} tests/{name}.rs"),
            Kind::Example => format!("{package} example {name}"),
            Kind::Bench => format!("{package} bench {name}"),
        }
    }
}

/// What `cargo metadata` says.
#[derive(Clone)]
pub(crate) struct Workspace {
    metadata: Value,
}

impl Workspace {
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let call = Cargo::new("metadata --format-version 1 --all-features");
        let metadata = serde_json::from_str(&call.capture(root)?).map_err(|error| {
            Failure::new(
                format!("`{call}` printed something that is not JSON: {error}"),
                "check that `cargo --version` is the toolchain you expect",
            )
        })?;
        Ok(Self { metadata })
    }

    /// Where cargo builds.
    pub(crate) fn target_directory(&self) -> PathBuf {
        self.metadata["target_directory"].as_str().unwrap_or("target").into()
    }

    /// Every target whose tests `cargo test --workspace` runs, doc tests aside.
    pub(crate) fn test_targets(&self) -> Vec<TestTarget> {
        let targets_of = |package: &Value| -> Vec<TestTarget> {
            let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
            let targets = package["targets"].as_array().into_iter().flatten();
            targets
                .filter(|target| target["test"] == true)
                .filter_map(|target| {
                    Some(TestTarget {
                        package: text("name"),
                        kind: Kind::of(target)?,
                        name: target["name"].as_str()?.to_owned(),
                        manifest: PathBuf::from(text("manifest_path")),
                    })
                })
                .collect()
        };
        self.members().flat_map(targets_of).collect()
    }

    /// The members, each with its directory from the root of the repository.
    pub(crate) fn member_directories(&self) -> Vec<(String, PathBuf)> {
        let root = Path::new(self.metadata["workspace_root"].as_str().unwrap_or_default());
        let member = |package: &Value| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let directory = manifest.parent()?.strip_prefix(root).ok()?.to_path_buf();
            Some((package["name"].as_str()?.to_owned(), directory))
        };
        self.members().filter_map(member).collect()
    }

    /// The members that name this one among their dependencies.
    pub(crate) fn dependents(&self, name: &str) -> Vec<String> {
        let depends = |package: &&Value| {
            let mut dependencies = package["dependencies"].as_array().into_iter().flatten();
            dependencies.any(|dependency| dependency["name"] == name)
        };
        let names = self.members().filter(depends).filter_map(|package| package["name"].as_str());
        names.filter(|own| *own != name).map(str::to_owned).collect()
    }

    /// The minimum supported Rust version that the manifests state.
    pub(crate) fn rust_version(&self) -> Option<&str> {
        self.members().find_map(|package| package["rust_version"].as_str())
    }

    /// The version of `SQLite` that is compiled in: the bundled source states it in its header.
    pub(crate) fn sqlite_version(&self) -> Option<String> {
        let package = self.packages().find(|package| package["name"] == "libsqlite3-sys")?;
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let header = fs::read_to_string(manifest.parent()?.join("sqlite3/sqlite3.h")).ok()?;
        let definition = header.lines().find(|line| line.starts_with("#define SQLITE_VERSION "))?;
        Some(definition.split('"').nth(1)?.to_owned())
    }

    /// Everything that cargo compiles here, members of the workspace and dependencies.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    fn members(&self) -> impl Iterator<Item = &Value> {
        let members = self.metadata["workspace_members"].as_array();
        self.packages()
            .filter(move |package| members.is_some_and(|ids| ids.contains(&package["id"])))
    }
}

#[cfg(test)]
impl Workspace {
    pub(crate) fn of_json(text: &str) -> Self {
        Self { metadata: serde_json::from_str(text).unwrap() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_test_targets_of_members_only() {
        let workspace = Workspace::of_json(
            r#"{"workspace_members": ["a"], "packages": [
                {"id": "a", "name": "onceward", "manifest_path": "/x/Cargo.toml", "rust_version": "1.95",
                 "targets": [{"kind": ["lib"], "name": "onceward", "test": true},
                             {"kind": ["test"], "name": "simulation", "test": true},
                             {"kind": ["example"], "name": "shop", "test": false},
                             {"kind": ["custom-build"], "name": "build-script-build", "test": true}]},
                {"id": "b", "name": "serde", "manifest_path": "/y/Cargo.toml",
                 "targets": [{"kind": ["lib"], "name": "serde", "test": true}]}]}"#,
        );
        let labels: Vec<_> = workspace.test_targets().iter().map(TestTarget::label).collect();
        assert_eq!(labels, ["onceward unit tests", "onceward tests/simulation.rs"]);
        assert_eq!(workspace.rust_version(), Some("1.95"));
        assert_eq!(
            workspace.test_targets()[1].cargo_test().to_string(),
            "cargo test -p onceward --all-features --test simulation"
        );
    }
}
