//! Files with the modes that a package gives them, and the programs that make packages of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) const EXECUTABLE: u32 = 0o755;
pub(super) const FILE: u32 = 0o644;

/// Writes a file and the directories above it; its mode does not depend on the person's umask.
pub(super) fn put(path: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> Result<(), String> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write().map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Removes the files of this directory that end so: those of an older version would be taken for new ones.
pub(super) fn remove(directory: &Path, extension: &str) -> Result<(), String> {
    let remove = || {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|own| own == extension) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    };
    remove().map_err(|error: std::io::Error| format!("{}: {error}", directory.display()))
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    put(to, bytes, mode)
}

pub(super) fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a command to its end, and gives what it printed; what it said last is why it failed.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program} could not be started: {error}"),
    })?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let words = [ended.stdout, ended.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    Err(format!("`{program}` failed ({}):\n{}", ended.status, words.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_program_is_named() {
        let absent = output(&mut Command::new("onceward-absent"));
        assert_eq!(absent, Err("onceward-absent is not installed".to_owned()));
    }
}
