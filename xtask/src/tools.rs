//! Programs beside cargo that the checks need, installed at a known version when they are absent.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo::Cargo;
use crate::failure::Failure;

/// Installs cargo-deny when `cargo deny` does not work.
pub(crate) fn ensure_cargo_deny(root: &Path) -> Result<(), Failure> {
    if Cargo::new("deny --version").succeeds(root) {
        return Ok(());
    }
    let install = Cargo::new("install cargo-deny --locked --version 0.20.2");
    println!("`cargo deny` is not installed; installing it with: {install}");
    install.run(root)
}

/// Why code for a target cannot be compiled here.
pub(crate) struct TargetMissing(pub(crate) String);

/// Installs the standard parts of a compilation target when they are absent.
pub(crate) fn ensure_target(target: &str) -> Result<(), TargetMissing> {
    if target_is_installed(target) {
        return Ok(());
    }
    println!(
        "the target {target} is not installed; installing it with: rustup target add {target}"
    );
    match Command::new("rustup").args(["target", "add", target]).status() {
        Ok(status) if status.success() && target_is_installed(target) => Ok(()),
        Ok(status) => {
            Err(TargetMissing(format!("`rustup target add {target}` ended with {status}")))
        }
        Err(error) => Err(TargetMissing(format!("rustup could not be started: {error}"))),
    }
}

/// Asks the compiler and not rustup, because a compiler may come from elsewhere.
fn target_is_installed(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// The version of strace; installed from the distribution when it is absent and may be.
pub(crate) fn strace() -> Result<String, String> {
    if let Some(version) = strace_version() {
        return Ok(version);
    }
    println!("strace is not installed; installing it with: apt-get install strace");
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends", "strace"]] {
        let output = Command::new("apt-get").args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("apt-get could not be started: {error}"))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let reason = words.lines().next().unwrap_or("without a word").to_owned();
            return Err(format!("`apt-get {}` failed: {reason}", arguments.join(" ")));
        }
    }
    strace_version().ok_or_else(|| "it was installed but does not run".to_owned())
}

fn strace_version() -> Option<String> {
    let output = Command::new("strace").arg("--version").output().ok()?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = words.lines().next()?.split_whitespace().last()?;
    output.status.success().then(|| format!("strace {version}"))
}

/// The version of a program that a test puts behind the gateway, or the word that it is skipped.
pub(crate) fn program(name: &'static str) -> String {
    let flag = if name == "nginx" { "-v" } else { "--version" };
    let output =
        Command::new(name).arg(flag).output().ok().filter(|output| output.status.success());
    let Some(output) = output else { return format!("no {name} (skipped: not installed)") };
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    format!("{name} {}", words.split_whitespace().last().unwrap_or_default())
}
