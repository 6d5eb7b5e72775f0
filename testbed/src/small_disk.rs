//! A disk that can be filled up.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::directory;

/// A file system in memory, unmounted when this is dropped.
pub struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// Mounts one of so many bytes; who may not mount is told why.
    pub fn mount(bytes: usize) -> Result<Self, String> {
        let directory = directory();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(directory.path());
        let output = mount.output().map_err(|error| format!("mount cannot be started: {error}"))?;
        match output.status.success() {
            true => Ok(Self { directory }),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes so much room, or as much as there is; `false`: there was less.
    ///
    /// # Panics
    ///
    /// When not even an empty file can be made.
    pub fn take(&self, bytes: usize) -> bool {
        let file = OpenOptions::new().append(true).create(true).open(self.ballast());
        let mut file = file.unwrap_or_else(|error| panic!("no file on the small disk: {error}"));
        (0..bytes / 4096).all(|_| file.write_all(&[0; 4096]).is_ok())
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        while self.take(1 << 20) {}
    }

    /// Gives all the room back that was taken.
    ///
    /// # Panics
    ///
    /// When none was taken.
    pub fn empty(&self) {
        let removed = fs::remove_file(self.ballast());
        removed.unwrap_or_else(|error| panic!("the room is still taken: {error}"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what a killed process still holds open must not keep it mounted.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = writeln!(io::stderr(), "{:?} is still mounted", self.path());
        }
    }
}
