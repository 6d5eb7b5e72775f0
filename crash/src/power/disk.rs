//! A disk: what is certain, and what was written since.

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use sha2::{Digest as _, Sha256};

/// Drives write sectors whole, not pages.
const SECTOR_BYTES: usize = 512;

/// How many mixtures of kept and lost writes are tried beside the systematic ones.
const MIXTURES: u64 = 6;

/// The files of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(BTreeMap<String, Arc<Vec<u8>>>);

impl Files {
    /// Writes them into a directory.
    pub fn write_into(&self, directory: &Path) -> io::Result<()> {
        self.0.iter().try_for_each(|(name, bytes)| fs::write(directory.join(name), &**bytes))
    }

    /// Tells states apart. A dependency does it, which is optimised also in tests: a hasher of the
    /// standard library would be compiled here, and take most of their time.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for (name, bytes) in &self.0 {
            for part in [name.as_bytes(), bytes] {
                digest.update(part.len().to_le_bytes());
                digest.update(part);
            }
        }
        digest.finalize().into()
    }
}

/// One directory on a disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What is certainly in each file, whether or not it has a name.
    contents: Vec<Arc<Vec<u8>>>,
    /// The names that are certain.
    names: BTreeMap<String, usize>,
    /// The names as processes see them.
    visible: BTreeMap<String, usize>,
    /// What is not certain, in the order in which it was done.
    pending: Vec<Pending>,
    /// Counts all changes.
    changes: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    change: Change,
    /// A sync of it has failed: the system believes that it is written, and never tries again.
    given_up: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write { file: usize, offset: usize, bytes: Arc<Vec<u8>> },
    Resize { file: usize, length: usize },
    Create { name: String, file: usize },
    Delete { name: String },
}

/// How much of a change has reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    All,
    /// The bytes of a write before this one.
    Before(usize),
    /// The bytes of a write from this one on.
    From(usize),
}

/// What a sync makes certain: everything of its kind that was done before it began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sync {
    File { file: usize, until: u64 },
    Directory { until: u64 },
}

impl Disk {
    /// A disk on which the files that are now in this directory are certain.
    pub fn with(directory: &Path) -> io::Result<Self> {
        let mut disk = Self::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str() {
                disk.names.insert(name.to_owned(), disk.contents.len());
                disk.contents.push(Arc::new(fs::read(entry.path())?));
            }
        }
        disk.visible.clone_from(&disk.names);
        Ok(disk)
    }

    pub(super) fn open(&mut self, name: &str) {
        if !self.visible.contains_key(name) {
            let file = self.contents.len();
            self.contents.push(Arc::default());
            self.visible.insert(name.to_owned(), file);
            self.change(Change::Create { name: name.to_owned(), file });
        }
    }

    pub(super) fn delete(&mut self, name: &str) {
        if self.visible.remove(name).is_some() {
            self.change(Change::Delete { name: name.to_owned() });
        }
    }

    pub(super) fn write(&mut self, name: &str, offset: usize, bytes: Vec<u8>) -> Option<()> {
        let file = *self.visible.get(name)?;
        self.change(Change::Write { file, offset, bytes: Arc::new(bytes) });
        Some(())
    }

    pub(super) fn resize(&mut self, name: &str, length: usize) -> Option<()> {
        let file = *self.visible.get(name)?;
        self.change(Change::Resize { file, length });
        Some(())
    }

    pub(super) fn begin_sync(&self, name: &str) -> Option<Sync> {
        let file = *self.visible.get(name)?;
        Some(Sync::File { file, until: self.changes })
    }

    pub(super) fn begin_sync_of_directory(&self) -> Sync {
        Sync::Directory { until: self.changes }
    }

    pub(super) fn end_sync(&mut self, sync: Sync) {
        let is_certain = |pending: &Pending| !pending.given_up && sync.covers(pending);
        let (certain, pending): (Vec<_>, _) =
            std::mem::take(&mut self.pending).into_iter().partition(is_certain);
        self.pending = pending;
        for newer in certain {
            apply(&newer.change, Kept::All, &mut self.contents, &mut self.names);
            let pending = std::mem::take(&mut self.pending).into_iter();
            self.pending = pending.flat_map(|older| older.without(&newer)).collect();
        }
    }

    pub(super) fn fail_sync(&mut self, sync: Sync) {
        for pending in self.pending.iter_mut().filter(|pending| sync.covers(pending)) {
            pending.given_up = true;
        }
    }

    fn change(&mut self, change: Change) {
        self.changes += 1;
        self.pending.push(Pending { number: self.changes, change, given_up: false });
    }

    /// Which of the changes under way may be kept: none, all, all but one, only one, one torn in the
    /// middle beside all or none of the others, and some mixtures.
    pub(super) fn choices(&self) -> Vec<Vec<Kept>> {
        let count = self.pending.len();
        let all = vec![Kept::All; count];
        let nothing = vec![Kept::Nothing; count];
        let mut choices = vec![nothing.clone(), all.clone()];
        for (index, Pending { change, .. }) in self.pending.iter().enumerate() {
            let mut with = |base: &[Kept], kept| {
                let mut choice = base.to_vec();
                choice[index] = kept;
                choices.push(choice);
            };
            with(&all, Kept::Nothing);
            with(&nothing, Kept::All);
            if let Some(middle) = change.middle() {
                for base in [&all, &nothing] {
                    with(base, Kept::Before(middle));
                    with(base, Kept::From(middle));
                }
            }
        }
        if count > 2 {
            // From the count, so that every run tries the same.
            let mut random = fastrand::Rng::with_seed(self.changes);
            let mut mixture = || {
                let kept = |_| if random.bool() { Kept::All } else { Kept::Nothing };
                (0..count).map(kept).collect()
            };
            choices.extend((0..MIXTURES).map(|_| mixture()));
        }
        choices
    }

    pub(super) fn after_power_loss(&self, kept: &[Kept]) -> Files {
        let (mut contents, mut names) = (self.contents.clone(), self.names.clone());
        for (Pending { change, .. }, kept) in self.pending.iter().zip(kept) {
            apply(change, *kept, &mut contents, &mut names);
        }
        let file = |(name, file): (String, usize)| (name, Arc::clone(&contents[file]));
        Files(names.into_iter().map(file).collect())
    }
}

impl Pending {
    /// What is left of a write that was given up, when a newer one over it is certain.
    fn without(self, newer: &Self) -> Vec<Self> {
        let (
            Change::Write { file, offset, bytes },
            Change::Write { file: of, offset: at, bytes: over },
        ) = (&self.change, &newer.change)
        else {
            return vec![self];
        };
        let (end, newer_end) = (offset + bytes.len(), at + over.len());
        if !self.given_up || file != of || self.number > newer.number {
            return vec![self];
        }
        let part = |from: usize, to: usize| Self {
            change: Change::Write {
                file: *file,
                offset: from,
                bytes: Arc::new(bytes[from - offset..to - offset].to_vec()),
            },
            ..self
        };
        let parts = [(*offset, end.min(*at)), (newer_end.max(*offset), end)];
        parts.into_iter().filter(|(from, to)| from < to).map(|(from, to)| part(from, to)).collect()
    }
}

impl Sync {
    fn covers(self, pending: &Pending) -> bool {
        match (self, &pending.change) {
            (
                Self::File { file, until },
                Change::Write { file: of, .. } | Change::Resize { file: of, .. },
            ) => file == *of && pending.number <= until,
            (Self::Directory { until }, Change::Create { .. } | Change::Delete { .. }) => {
                pending.number <= until
            }
            _ => false,
        }
    }
}

impl Change {
    /// The place in a write at which a sector ends, as near to its middle as there is one.
    fn middle(&self) -> Option<usize> {
        let Self::Write { offset, bytes, .. } = self else { return None };
        let boundary = (offset + bytes.len() / 2).next_multiple_of(SECTOR_BYTES);
        [boundary.checked_sub(SECTOR_BYTES), Some(boundary)]
            .into_iter()
            .flatten()
            .rev()
            .find(|place| (offset + 1..offset + bytes.len()).contains(place))
            .map(|place| place - offset)
    }
}

fn apply(
    change: &Change,
    kept: Kept,
    contents: &mut [Arc<Vec<u8>>],
    names: &mut BTreeMap<String, usize>,
) {
    if kept == Kept::Nothing {
        return;
    }
    match change {
        Change::Write { file, offset, bytes } => {
            let range = match kept {
                Kept::Before(middle) => 0..middle,
                Kept::From(middle) => middle..bytes.len(),
                Kept::All | Kept::Nothing => 0..bytes.len(),
            };
            let content = Arc::make_mut(&mut contents[*file]);
            let end = offset + range.end;
            if content.len() < end {
                resize(content, end);
            }
            content[offset + range.start..end].copy_from_slice(&bytes[range]);
        }
        Change::Resize { file, length } => resize(Arc::make_mut(&mut contents[*file]), *length),
        Change::Create { name, file } => drop(names.insert(name.clone(), *file)),
        Change::Delete { name } => drop(names.remove(name)),
    }
}

/// With whole slices, because without optimisation `Vec::resize` goes byte by byte.
fn resize(content: &mut Vec<u8>, length: usize) {
    content.truncate(length);
    content.extend_from_slice(&vec![0; length - content.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(disk: &Disk, kept: &[Kept]) -> Vec<(String, Vec<u8>)> {
        let files = disk.after_power_loss(kept).0;
        files.into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect()
    }

    #[test]
    fn only_what_was_synced_is_certain() {
        let mut disk = Disk::default();
        disk.open("a");
        disk.write("a", 0, vec![1; 3]).expect("it is there");
        let sync = disk.begin_sync("a").expect("it is there");
        disk.write("a", 3, vec![2]).expect("it is there");
        disk.end_sync(sync);
        assert_eq!(left(&disk, &[Kept::Nothing, Kept::All]), [], "the name is not certain");
        disk.end_sync(disk.begin_sync_of_directory());
        assert_eq!(left(&disk, &[Kept::Nothing]), [("a".into(), vec![1; 3])]);
        assert_eq!(left(&disk, &[Kept::All]), [("a".into(), vec![1, 1, 1, 2])]);
        disk.delete("a");
        assert_eq!(left(&disk, &[Kept::All, Kept::All]), []);
        assert_eq!(disk.choices().len(), 2 + 2 * 2);
    }

    #[test]
    fn after_a_sync_that_failed_only_a_new_write_can_be_made_certain() {
        let mut disk = Disk::default();
        disk.open("a");
        disk.end_sync(disk.begin_sync_of_directory());
        disk.write("a", 0, vec![1; 3]).expect("it is there");
        disk.fail_sync(disk.begin_sync("a").expect("it is there"));
        disk.end_sync(disk.begin_sync("a").expect("it is there"));
        assert_eq!(left(&disk, &[Kept::Nothing]), [("a".into(), vec![])]);
        disk.write("a", 1, vec![2]).expect("it is there");
        disk.end_sync(disk.begin_sync("a").expect("it is there"));
        assert_eq!(left(&disk, &[Kept::All, Kept::Nothing]), [("a".into(), vec![1, 2])]);
        disk.write("a", 0, vec![2; 3]).expect("it is there");
        disk.end_sync(disk.begin_sync("a").expect("it is there"));
        assert_eq!(disk.choices(), [[], []], "nothing is uncertain any more");
        assert_eq!(left(&disk, &[]), [("a".into(), vec![2; 3])]);
    }

    #[test]
    fn a_write_is_torn_between_sectors() {
        let write =
            |offset, length| Change::Write { file: 0, offset, bytes: vec![0; length].into() };
        assert_eq!(write(0, 4096).middle(), Some(2048));
        assert_eq!(write(56, 4096).middle(), Some(2048 + 456));
        assert_eq!(write(500, 24).middle(), Some(12));
        assert_eq!(write(32, 24).middle(), None);
        assert_eq!(write(0, 512).middle(), None);
    }
}
