//! Programs of others that a run compares with, installed when they are absent and may be.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::Failure;

/// The version of a program; installed from the distribution when it is absent.
pub(crate) fn from_distribution(
    program: &str,
    package: &str,
    flag: &str,
) -> Result<String, Failure> {
    if let Some(version) = version(program, flag) {
        return Ok(version);
    }
    eprintln!("{program} is not installed; installing it with: apt-get install {package}");
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends", package]] {
        // Debian starts what it installs, but not at this run level.
        let mut command = Command::new("apt-get");
        finish(command.args(arguments).env("RUNLEVEL", "1"))?;
    }
    version(program, flag).ok_or_else(|| format!("{program} was installed but does not run").into())
}

/// What a program says about itself, or nothing if there is none.
pub(crate) fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    let number = words
        .split(|letter: char| letter.is_whitespace() || "=/".contains(letter))
        .map(|word| word.trim_start_matches('v'))
        .find(|word| {
            word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit())
        });
    output.status.success().then(|| format!("{program} {}", number.unwrap_or("of some version")))
}

/// The directory with these packages of npm, below `target/`; installed when they are absent.
pub(crate) fn from_npm(packages: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    version("npm", "--version").ok_or("npm is not installed")?;
    let names: Vec<_> = packages
        .iter()
        .map(|(name, version)| format!("{}-{version}", name.replace(['@', '/'], "-")))
        .collect();
    let directory = kept()?.join(names.join("_").trim_matches('-'));
    let stamp = directory.join("installed");
    if stamp.exists() {
        return Ok(directory);
    }
    let pinned: Vec<_> =
        packages.iter().map(|(name, version)| format!("{name}@{version}")).collect();
    eprintln!("installing with npm: {}", pinned.join(" "));
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("package.json"), r#"{"private": true}"#)?;
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact"]);
    finish(command.args(&pinned).current_dir(&directory))?;
    std::fs::write(stamp, "")?;
    Ok(directory)
}

/// A program of Go, below `target/`; built from these files when it is absent or they are others.
pub(crate) fn from_go(name: &str, files: &[(&str, &str)]) -> Result<PathBuf, Failure> {
    let directory = kept()?.join(name);
    let program = directory.join("peer");
    let is_same = |(file, text): &(&str, &str)| {
        std::fs::read_to_string(directory.join(file)).is_ok_and(|written| written == *text)
    };
    if program.exists() && files.iter().all(is_same) {
        return Ok(program);
    }
    eprintln!("building with go: {name}");
    std::fs::create_dir_all(&directory)?;
    for (file, text) in files {
        std::fs::write(directory.join(file), text)?;
    }
    finish(Command::new("go").args(["build", "-o", "peer", "."]).current_dir(&directory))?;
    Ok(program)
}

/// Where programs of others are kept.
fn kept() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).ok_or("the program is in no directory")?;
    Ok(target.join("bench-peers"))
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Result<(), Failure> {
    let shown = || {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        words.take(2).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let shown = shown();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let reason = words.lines().find(|line| line.contains("rror")).or(words.lines().last());
    Err(format!("`{shown}` failed: {}", reason.unwrap_or("without a word")).into())
}
