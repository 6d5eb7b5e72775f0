//! Where the files of tests are.

use std::env;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// Less than this is left to others.
const ROOM_BYTES: u64 = 4 << 30;

/// A new directory that is removed when it is dropped, in memory where there is room.
///
/// Tests prove that files outlive the programs that wrote them, not that they outlive the machine: waiting
/// for a disk at every commit would prove nothing more. `TMPDIR` says otherwise.
///
/// ```
/// let directory = testbed::directory();
/// std::fs::write(directory.path().join("a"), "b").unwrap();
/// ```
///
/// # Panics
///
/// When none can be made.
pub fn directory() -> TempDir {
    let made = tempfile::Builder::new().prefix("onceward-").tempdir_in(place());
    made.unwrap_or_else(|error| panic!("no temporary directory for a test: {error}"))
}

/// Where [`directory`] makes them.
pub(crate) fn place() -> PathBuf {
    let is_chosen = env::var_os("TMPDIR").is_some();
    let place = Path::new(MEMORY);
    if !is_chosen && has_room(place) { place.to_owned() } else { env::temp_dir() }
}

fn has_room(place: &Path) -> bool {
    rustix::fs::statvfs(place).is_ok_and(|system| {
        let is_writable = !system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
        is_writable && system.f_bavail.saturating_mul(system.f_frsize) >= ROOM_BYTES
    })
}
