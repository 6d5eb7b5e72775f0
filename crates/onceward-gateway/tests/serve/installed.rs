//! What `cargo xtask test` has installed of other languages, and scripts that use it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Where it is.
pub(crate) fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools")
}

/// A script of these tests.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve").join(name)
}

/// How a script is started that needs this package of Python.
pub(crate) fn python(package: &str, name: &str) -> Option<Vec<PathBuf>> {
    let stamp = fs::read_to_string(tools().join("python/packages.txt")).unwrap_or_default();
    let pinned = format!("{package}==");
    let is_there = stamp.split(' ').any(|word| word.starts_with(&pinned));
    is_there.then(|| vec![tools().join("python/bin/python"), "-B".into(), script(name)])
}

/// How a script is started that needs the packages of Node in this place; it is copied into a directory
/// of its own, because Node looks for packages beside it.
pub(crate) fn node(place: &str, name: &str, directory: &Path) -> Option<Vec<PathBuf>> {
    let place = tools().join(place);
    if !place.join("installed.json").exists() {
        return None;
    }
    symlink(place.join("node_modules"), directory.join("node_modules")).unwrap();
    let copy = directory.join(Path::new(name).file_name().unwrap());
    fs::copy(script(name), &copy).unwrap();
    Some(vec!["node".into(), copy])
}

/// Compiles a package below `target/tools`, as seen from this module, and gives its program; `None` where
/// there is no Go.
pub(crate) fn go(module: &str, package: &str, program: &str) -> Option<PathBuf> {
    let place = tools().join("go");
    let mut command = Command::new("go");
    command.args(["install", package]).current_dir(script(module)).env("GOFLAGS", "-mod=mod");
    command.env("GOPATH", place.join("path")).env("GOBIN", place.join("bin"));
    let output = command.output().ok()?;
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go install {package}: {words}");
    Some(place.join("bin").join(program))
}
