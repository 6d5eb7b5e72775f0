//! What a disk may hold after the power has failed, worked out from a trace of system calls.
//!
//! The model takes SQLite and the file system at their word and no further:
//!
//! - A write may reach the disk at any time after it was made, in any order with others, or only in
//!   part, cut between two sectors. It is certain once a sync of its file has returned that began
//!   after it. After a sync that failed the system does not try again: only a new write can be
//!   made certain by a later sync.
//! - That a file was created or deleted is certain once a sync of its directory has returned. A sync
//!   of the file itself is not enough, although on journaling file systems it would be.
//! - The shared memory of SQLite (`-shm`) is memory, and gone.

mod disk;
mod trace;

pub use disk::{Disk, Files};
pub use trace::{Point, Trace};

use std::collections::{HashMap, hash_map::Entry};

use disk::Kept;

/// What a disk may hold, and what the outside had been told by then.
pub struct Crash {
    point: usize,
    kept: Vec<Kept>,
}

impl Crash {
    /// All that may be left after the power failed at any moment of a trace, each state once.
    ///
    /// A state that may occur at several moments is taken at the last one, when most was promised.
    #[must_use]
    pub fn all(trace: &Trace) -> Vec<Self> {
        let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
        let mut crashes: Vec<Self> = Vec::new();
        for (point, Point { disk, .. }) in trace.points.iter().enumerate() {
            for kept in disk.choices() {
                let digest = disk.after_power_loss(&kept).digest();
                let crash = Self { point, kept };
                match seen.entry(digest) {
                    Entry::Occupied(known) => crashes[*known.get()] = crash,
                    Entry::Vacant(new) => {
                        new.insert(crashes.len());
                        crashes.push(crash);
                    }
                }
            }
        }
        crashes
    }

    /// The files that are left.
    #[must_use]
    pub fn files(&self, trace: &Trace) -> Files {
        trace.points[self.point].disk.after_power_loss(&self.kept)
    }

    /// What had been said to the outside before.
    #[must_use]
    pub fn said<'t>(&self, trace: &'t Trace) -> &'t [String] {
        &trace.said[..trace.points[self.point].said]
    }
}
