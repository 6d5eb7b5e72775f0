//! Installs what the peers need, below `target/compare`, each with the usual tool of its language.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::peers::Directories;
use crate::cargo::{Cargo, forget_own_package};
use crate::failure::Failure;

/// A peer that can be started.
pub(crate) struct Installed {
    /// Where its service and packages are.
    pub(crate) directory: PathBuf,
    /// `name version`, of all that its answers depend on.
    pub(crate) versions: Vec<String>,
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf, Failure> {
    let call = Cargo::new("metadata --format-version 1 --no-deps");
    let metadata: Value = serde_json::from_str(&call.capture(root)?).unwrap_or_default();
    metadata["target_directory"].as_str().map(PathBuf::from).ok_or_else(|| {
        Failure::new(
            format!("`{call}` does not name the target directory"),
            "check that `cargo --version` is the toolchain you expect",
        )
    })
}

/// A service that needs nothing but Node.
pub(crate) fn node(directories: &Directories<'_>, name: &str) -> Result<Installed, String> {
    let node = version("node", "--version").ok_or("node is not installed")?;
    Ok(Installed { directory: copied(directories, name)?, versions: vec![node] })
}

/// With the packages of its `package.json`.
pub(crate) fn npm(directories: &Directories<'_>, name: &str) -> Result<Installed, String> {
    let Installed { directory, mut versions } = node(directories, name)?;
    version("npm", "--version").ok_or("npm is not installed")?;
    once(&directory, "package.json", |directory| {
        let mut command = Command::new("npm");
        command.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--no-package-lock",
        ]);
        finish(command.current_dir(directory))
    })?;
    let manifest: Value = serde_json::from_str(&text(&directory.join("package.json"))?)
        .map_err(|error| format!("its package.json is not JSON: {error}"))?;
    let packages = manifest["dependencies"].as_object().into_iter().flatten();
    let packages =
        packages.filter_map(|(name, version)| Some(format!("{name} {}", version.as_str()?)));
    versions.splice(0..0, packages);
    Ok(Installed { directory, versions })
}

/// With the packages of its `requirements.txt`, in an environment of its own.
pub(crate) fn pip(directories: &Directories<'_>, name: &str) -> Result<Installed, String> {
    let python = version("python3", "--version").ok_or("python3 is not installed")?;
    let directory = copied(directories, name)?;
    once(&directory, "requirements.txt", |directory| {
        finish(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(directory))?;
        let mut command = Command::new(directory.join("venv/bin/python"));
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        finish(command.args(["-r", "requirements.txt"]).current_dir(directory))
    })?;
    let requirements = text(&directory.join("requirements.txt"))?;
    let packages = requirements.lines().map(|line| line.replace("==", " "));
    Ok(Installed { directory, versions: packages.chain([python]).collect() })
}

/// A crate, with the versions of its own lock file.
pub(crate) fn cargo(
    directories: &Directories<'_>,
    name: &str,
    shown: &[&str],
) -> Result<Installed, String> {
    let directory = copied(directories, name)?;
    let mut command = Command::new("cargo");
    command.args(["build", "--locked", "--quiet", "--target-dir", "target"]);
    forget_own_package(&mut command);
    finish(command.current_dir(&directory))?;
    let lock = text(&directory.join("Cargo.lock"))?;
    let versions =
        shown.iter().filter_map(|package| Some(format!("{package} {}", locked(&lock, package)?)));
    Ok(Installed { versions: versions.collect(), directory })
}

/// A Go module, with the versions of its own `go.mod`.
pub(crate) fn go(
    directories: &Directories<'_>,
    name: &str,
    shown: &[&str],
) -> Result<Installed, String> {
    from_distribution("go", "golang-go", "version")?;
    let go = version("go", "version").ok_or("go is not installed")?;
    let directory = copied(directories, name)?;
    let mut command = Command::new("go");
    command.args(["build", "-o", "service", "."]).env("GOTOOLCHAIN", "local");
    finish(command.current_dir(&directory))?;
    let module = text(&directory.join("go.mod"))?;
    let versions = shown.iter().filter_map(|package| {
        let line = module.lines().find(|line| line.contains(package))?;
        let version = line.split_whitespace().find(|word| word.starts_with('v'))?;
        Some(format!("{package} {}", version.trim_start_matches('v')))
    });
    Ok(Installed { versions: versions.chain([go]).collect(), directory })
}

/// A program of the distribution; installed when it is absent.
pub(crate) fn from_distribution(
    program: &str,
    package: &str,
    flag: &str,
) -> Result<String, String> {
    if let Some(version) = version(program, flag) {
        return Ok(version);
    }
    eprintln!("{program} is not installed; installing it with: apt-get install {package}");
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends", package]] {
        // Debian starts what it installs, but not at this run level.
        finish(Command::new("apt-get").args(arguments).env("RUNLEVEL", "1"))?;
    }
    version(program, flag).ok_or_else(|| format!("{program} was installed but does not run"))
}

/// What a program says about itself, or nothing if there is none.
fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let words = [output.stdout, output.stderr].concat();
    let number = number_in(&String::from_utf8_lossy(&words)).unwrap_or("of some version".into());
    let name = program.trim_end_matches('3');
    output.status.success().then(|| format!("{name} {number}"))
}

/// The first word that looks like a version.
fn number_in(words: &str) -> Option<String> {
    let words = words.split(|letter: char| letter.is_whitespace() || "=/".contains(letter));
    let numbers = words.map(|word| word.trim_start_matches("go").trim_start_matches('v'));
    let is_number = |word: &&str| {
        word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit())
    };
    numbers.into_iter().find(is_number).map(str::to_owned)
}

/// The version of a package in a lock file of cargo.
fn locked(lock: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    Some(lines.nth(1)?.split('"').nth(1)?.to_owned())
}

/// The directory of a peer below `target/compare`, with the files that the repository has for it.
fn copied(directories: &Directories<'_>, name: &str) -> Result<PathBuf, String> {
    let directory = directories.kept.join(name);
    copy(&directories.root.join("xtask/compare").join(name), &directory)
        .map_err(|error| format!("its service cannot be copied: {error}"))?;
    Ok(directory)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let copy_to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &copy_to)?;
            continue;
        }
        // A file that is written anew would be built anew.
        let bytes = fs::read(&path)?;
        if fs::read(&copy_to).ok().as_ref() != Some(&bytes) {
            fs::write(&copy_to, bytes)?;
        }
    }
    Ok(())
}

/// Installs unless it was done before for the same list of packages.
fn once(
    directory: &Path,
    list: &str,
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let (list, stamp) = (text(&directory.join(list))?, directory.join("installed"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    install(directory)?;
    fs::write(stamp, list).map_err(|error| format!("it cannot be noted as installed: {error}"))
}

fn text(file: &Path) -> Result<String, String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))
}

/// Runs a command to its end.
fn finish(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_owned();
    let words = [program.as_os_str()].into_iter().chain(command.get_args().take(3));
    let shown = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{shown}` failed: {}", reason_in(&String::from_utf8_lossy(&output.stderr))))
}

/// The lines that say what is wrong, without what is true only on this machine: paths and addresses.
fn reason_in(words: &str) -> String {
    let errors = words.lines().filter(|line| line.contains("rror")).take(2);
    let mut lines: Vec<&str> = errors.collect();
    if lines.is_empty() {
        lines.extend(words.lines().last());
    }
    let shown = |word: &str| match word {
        _ if word.contains("://") => "(URL)".to_owned(),
        _ if word.starts_with('/') => "(path)".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &&str| line.split_whitespace().map(shown).collect::<Vec<_>>().join(" ");
    match lines.is_empty() {
        true => "without a word".to_owned(),
        false => lines.iter().map(line).collect::<Vec<_>>().join(" / "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (words, version) in [
            ("v20.20.2\n", "20.20.2"),
            ("Python 3.11.7", "3.11.7"),
            ("go version go1.26.8 linux/amd64", "1.26.8"),
            ("Redis server v=6.0.16 sha=00000000:0", "6.0.16"),
        ] {
            assert_eq!(number_in(words).as_deref(), Some(version));
        }
    }

    #[test]
    fn the_version_of_a_crate_is_in_its_lock_file() {
        let lock = "[[package]]\nname = \"ruts-x\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"ruts\"\nversion = \"0.13.0\"\n";
        assert_eq!(locked(lock, "ruts").as_deref(), Some("0.13.0"));
        assert_eq!(locked(lock, "axum"), None);
    }

    #[test]
    fn what_was_installed_is_installed_again_only_if_its_list_changes() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("list");
        let mut times = 0;
        for content in ["a 1", "a 1", "a 2"] {
            fs::write(&list, content).unwrap();
            let count = |_: &Path| {
                times += 1;
                Ok(())
            };
            once(directory.path(), "list", count).unwrap();
        }
        assert_eq!(times, 2);
    }

    #[test]
    fn a_failure_is_told_with_its_reason() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo first >&2; echo 'Error: no such package' >&2; exit 1"]);
        let reason = finish(&mut command).unwrap_err();
        assert!(reason.starts_with("`sh -c ") && reason.ends_with("Error: no such package"));
    }

    #[test]
    fn a_reason_names_neither_addresses_nor_paths() {
        let words = "npm error code E404\nnpm error 404 GET https://host.example/x - not found\nnpm error 3";
        assert_eq!(reason_in(words), "npm error code E404 / npm error 404 GET (URL) - not found");
        assert_eq!(reason_in("a\nno space at /tmp/x left"), "no space at (path) left");
        assert_eq!(reason_in(""), "without a word");
    }
}
