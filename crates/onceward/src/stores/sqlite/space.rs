//! What the file system says about the file: its kind, its room, whether the file is still there.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::telemetry;

/// How often the free space is looked at: far less can be written in between than the reserve.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Watches the room that is left for new claims.
pub(super) struct Space {
    directory: PathBuf,
    reserve_bytes: u64,
    looked_at: Option<Instant>,
    is_full: bool,
}

impl Space {
    pub(super) fn new(path: &Path, reserve_bytes: u64) -> Self {
        let directory = path.parent().unwrap_or(path).to_path_buf();
        Self { directory, reserve_bytes, looked_at: None, is_full: false }
    }

    /// Whether the file system has less room than the reserve. What cannot be asked has room.
    pub(super) fn is_full(&mut self) -> bool {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return self.is_full;
        }
        self.looked_at = Some(Instant::now());
        let was_full = self.is_full;
        let available = available_bytes(&self.directory);
        self.is_full = available.is_ok_and(|available| available < self.reserve_bytes);
        if self.is_full && !was_full {
            telemetry::STORE_FULL.raise(self.refusal());
        }
        self.is_full
    }

    pub(super) fn refusal(&self) -> String {
        format!(
            "the file system of {:?} has less than {} bytes left; nothing was written, running \
             operations can still be settled: free some space, or lower `reserve_bytes`",
            self.directory, self.reserve_bytes
        )
    }
}

/// How much room the file system of a file has left, if the system tells.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    available_bytes(path.parent().unwrap_or(path)).ok().filter(|bytes| *bytes < u64::MAX)
}

#[cfg(unix)]
fn available_bytes(directory: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn available_bytes(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// Notices that a file was deleted or replaced while it is open.
///
/// SQLite would go on writing to what nobody will find any more: acknowledged, and lost.
pub(super) struct Presence {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Presence {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_path_buf(), identity: identity(path) }
    }

    /// Whether this is the file. A hard link is not: it has a write-ahead log of its own.
    pub(super) fn is(&self, file: &Path) -> bool {
        let whole = |path: &Path| path.canonicalize().ok();
        file == self.path || whole(file).is_some_and(|file| Some(file) == whole(&self.path))
    }

    pub(super) fn is_lost(&self) -> bool {
        identity(&self.path) != self.identity
    }

    pub(super) fn complaint(&self) -> String {
        format!(
            "{:?} was deleted or replaced while it was in use; nothing was written: restart this \
             process, and stop it first the next time",
            self.path
        )
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// The name of the network file system that a path is on, if it is.
///
/// FUSE counts as one: what is behind it (sshfs, object storage) is not known here.
#[cfg(target_os = "linux")]
pub(super) fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let kinds = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9p"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x6573_5546, "FUSE"),
    ];
    let found = rustix::fs::statfs(path)?.f_type as u64 & 0xffff_ffff;
    Ok(kinds.into_iter().find_map(|(kind, name)| (kind == found).then_some(name)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn network_file_system(_: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}
