//! What the file system says about the file: its kind, its room, whether its files are still there.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onceward_core::StoreError;

use super::{log, mark::beside};
use crate::telemetry;

/// How often the writer looks at the free space: far less can be written in between than the reserve.
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
        refusal(&self.directory, self.reserve_bytes)
    }
}

/// Looks whether there is room for new claims now. What cannot be asked has room.
pub(super) fn check(path: &Path, reserve_bytes: u64) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(path);
    match available_bytes(directory) {
        Ok(available) if available < reserve_bytes => {
            Err(StoreError::Full(refusal(directory, reserve_bytes)))
        }
        _ => Ok(()),
    }
}

/// The option is what `onceward init` writes; in a service it is what the store was opened with.
fn refusal(directory: &Path, reserve_bytes: u64) -> String {
    format!(
        "the file system of {directory:?} has less than {reserve_bytes} bytes left; nothing was written, \
         running operations can still be settled: free some space; or stop the process, move the file with \
         what is beside it to a larger file system, and name it there in `store`"
    )
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

/// Notices that a file of the store was deleted or replaced while it is open.
///
/// SQLite would go on writing to what no process will find any more: acknowledged, and lost. That the
/// files come back does not help: what was in them may be gone, so that it is remembered.
pub(super) struct StoreFiles {
    path: PathBuf,
    log: PathBuf,
    /// The database, its log, its shared memory, and what counts its commits.
    files: [(PathBuf, Option<(u64, u64)>); 4],
    /// How long the log was when it was looked at last.
    log_bytes: AtomicU64,
    gone: OnceLock<(PathBuf, Loss)>,
}

/// What happened to a file of the store while it was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Replaced,
    CutOff,
}

/// A file of the store that was deleted, replaced or cut off.
pub(super) struct LostFile<'p>(&'p Path, Loss);

impl StoreFiles {
    /// Of a store whose log is open.
    pub(super) fn of(path: &Path) -> Self {
        let files = ["", "-wal", "-shm", "-mark"].map(|ending| beside(path, ending));
        Self {
            log_bytes: AtomicU64::new(log::length(path)),
            path: path.to_path_buf(),
            log: beside(path, "-wal"),
            files: files.map(|file| {
                let identity = identity(&file);
                (file, identity)
            }),
            gone: OnceLock::new(),
        }
    }

    /// Whether this is the file. A hard link is not: it has a write-ahead log of its own.
    pub(super) fn is(&self, file: &Path) -> bool {
        let whole = |path: &Path| path.canonicalize().ok();
        file == self.path || whole(file).is_some_and(|file| Some(file) == whole(&self.path))
    }

    /// Looks whether all files are still there.
    pub(super) fn look(&self) -> Result<(), LostFile<'_>> {
        self.was_seen()?;
        let gone = self.files.iter().find(|(file, opened)| identity(file) != *opened);
        let (file, loss) = match gone {
            Some((file, _)) => (file, Loss::Replaced),
            None if self.is_log_cut_off() => (&self.log, Loss::CutOff),
            None => return Ok(()),
        };
        if self.gone.set((file.clone(), loss)).is_ok() {
            telemetry::STORE_REPLACED.raise(LostFile(file, loss).complaint());
        }
        self.was_seen()
    }

    /// SQLite itself makes the log shorter when it begins it anew; then it says how much it needs.
    fn is_log_cut_off(&self) -> bool {
        let found = log::length(&self.path);
        let before = self.log_bytes.swap(found, Ordering::Relaxed);
        found < before && log::lacks_frames(&self.path)
    }

    /// Whether they were all there at every look so far.
    pub(super) fn was_seen(&self) -> Result<(), LostFile<'_>> {
        self.gone.get().map_or(Ok(()), |(file, loss)| Err(LostFile(file, *loss)))
    }

    /// Whether the log has holes, so that nothing of it may be copied into the file.
    pub(super) fn was_log_cut_off(&self) -> bool {
        self.gone.get().is_some_and(|(_, loss)| *loss == Loss::CutOff)
    }

    /// Whether another file has the name of the log, or this one has holes.
    pub(super) fn is_log_spoilt(&self) -> bool {
        // What this finds is remembered.
        let _ = self.look();
        self.was_log_cut_off() || self.is_log_replaced()
    }

    fn is_log_replaced(&self) -> bool {
        let of_log = |(file, _): &&(PathBuf, _)| *file == self.log;
        let opened = self.files.iter().find(of_log).and_then(|(_, opened)| *opened);
        identity(&self.log).is_some_and(|found| Some(found) != opened)
    }
}

impl LostFile<'_> {
    /// Before anything was written.
    pub(super) fn into_error(self) -> StoreError {
        StoreError::Unusable(format!("{}; nothing was written", self.complaint()))
    }

    /// The change may be lost or not.
    pub(super) fn after_commit(&self) -> StoreError {
        StoreError::Unavailable(format!("{}; the last commit may be lost", self.complaint()))
    }

    fn complaint(&self) -> String {
        let Self(file, loss) = self;
        match loss {
            Loss::Replaced => format!(
                "{file:?} was deleted or replaced while it was in use, so that no change would outlive \
                 this process: stop it with SIGTERM, by which it saves what can be saved, then start it \
                 again, and stop it first the next time"
            ),
            Loss::CutOff => format!(
                "{file:?} was cut off while it was in use, and what had been committed there is gone: \
                 stop this process and copy the file with all that lies beside it; the next start says \
                 how much is missing"
            ),
        }
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
/// FUSE counts as one: the store cannot see what is behind it (sshfs, object storage).
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
