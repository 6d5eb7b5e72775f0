//! What is installed without Rust: `cargo xtask package` makes each package of the command that is tested, installs
//! it where nothing else is, starts it in front of a service, and sends a write and its retry.
//!
//! The command that is published is static and takes minutes to build; `cargo xtask package --check` does that.

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::command::Finished;

/// The program of `cargo xtask`, which cargo puts beside the command.
fn xtask() -> Option<PathBuf> {
    let xtask = Path::new(env!("CARGO_BIN_EXE_onceward")).with_file_name("xtask");
    if !xtask.exists() {
        eprintln!(
            "SKIPPED: {} is not there; `cargo xtask test command-line` builds it",
            xtask.display()
        );
        return None;
    }
    Some(xtask)
}

fn is_installed(program: &str) -> bool {
    let runs = Command::new(program).arg("--version").output();
    let runs = runs.is_ok_and(|output| output.status.success());
    if !runs {
        eprintln!("SKIPPED: {program} is not on this machine");
    }
    runs
}

/// What makes wheels is installed by `cargo xtask test`.
fn has_python() -> bool {
    let stamp =
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools/packaging/packages.txt");
    if !stamp.exists() {
        eprintln!(
            "SKIPPED: {} is not there; `cargo xtask test command-line` makes it",
            stamp.display()
        );
    }
    stamp.exists()
}

/// Makes these packages of the command, and tries them.
fn packaged(xtask: &Path, arguments: &[&str]) -> (TempDir, Finished) {
    let to = tempfile::tempdir().unwrap();
    let mut command = Command::new(xtask);
    command.args(["package", "--binary", env!("CARGO_BIN_EXE_onceward"), "--to"]).arg(to.path());
    // It asks where it was started from, and cargo says that it is this package.
    command.args(arguments).env_remove("CARGO_MANIFEST_DIR");
    let finished = Finished::of(&mut command);
    assert!(finished.is_success(), "{finished}");
    (to, finished)
}

fn files(directory: &Path, extension: &str) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(extension));
    names.sort();
    names
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn a_wheel_gives_the_command_in_an_empty_environment() {
    let Some(xtask) = xtask().filter(|_| has_python()) else { return };
    let (to, finished) = packaged(&xtask, &["--only", "wheel", "--check"]);
    assert!(
        finished.stdout.contains("\nwheel: installed in an empty place and started"),
        "{finished}"
    );
    // The command of this test needs a C library, and the name says which.
    let [wheel] = &files(to.path(), ".whl")[..] else { panic!("{finished}") };
    let start = format!("onceward-{VERSION}-py3-none-manylinux_2_");
    assert!(wheel.starts_with(&start) && wheel.ends_with("_x86_64.whl"), "{wheel}");
}

#[test]
fn an_npm_package_gives_the_command_in_an_empty_folder() {
    let Some(xtask) = xtask().filter(|_| is_installed("npm")) else { return };
    let (to, finished) = packaged(&xtask, &["--only", "npm", "--check"]);
    let line = "\nnpm package: installed in an empty place and started";
    assert!(finished.stdout.contains(line), "{finished}");
    assert_eq!(files(to.path(), ".tgz"), [format!("onceward-{VERSION}.tgz")]);
}

/// The command runs as the unit starts it, as a user without rights, in a root that holds the package alone.
#[test]
fn a_debian_package_serves_by_its_unit_in_an_empty_root() {
    let Some(xtask) = xtask().filter(|_| is_installed("dpkg-deb")) else { return };
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        eprintln!("SKIPPED: only root can install a package into an empty root");
        return;
    }
    let (to, finished) = packaged(&xtask, &["--only", "deb", "--check"]);
    let line = "\nDebian package: installed in an empty place and started";
    assert!(finished.stdout.contains(line), "{finished}");
    assert_eq!(files(to.path(), ".deb"), [format!("onceward_{VERSION}_amd64.deb")]);
}

#[test]
fn the_crates_hold_what_a_registry_wants() {
    let Some(xtask) = xtask() else { return };
    let (to, finished) = packaged(&xtask, &["--only", "crates"]);
    let crates = ["onceward", "onceward-core", "onceward-gateway"];
    let named = crates.map(|name| format!("{name}-{VERSION}.crate"));
    assert_eq!(files(to.path(), ".crate"), named, "{finished}");
    for name in crates {
        let mut list = Command::new("tar");
        list.arg("-tzf").arg(to.path().join(format!("{name}-{VERSION}.crate")));
        let listed = Finished::of(&mut list).stdout;
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"] {
            let file = format!("{name}-{VERSION}/{file}");
            assert!(listed.lines().any(|line| line == file), "{file} is not in it:\n{listed}");
        }
    }
}

#[test]
fn the_image_and_its_services_find_their_files() {
    let Some(xtask) = xtask().filter(|_| has_python()) else { return };
    packaged(&xtask, &["--only", "image"]);
}
