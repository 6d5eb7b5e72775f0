//! How far the store has come: its commits are counted, in the file and beside it.
//!
//! SQLite takes a log that was damaged or cut off for one that ends there, and goes on without a word:
//! it cannot tell damage from a commit that the power cut short. With a count it can. Each commit
//! of the writer stores the next number in the same transaction, and waits for the disk. So
//!
//! - a number anywhere in the log proves that the commit before it was durable: its transaction began
//!   when that commit was visible, and SQLite shows a commit after it has synced it;
//! - the number in the file beside the store (`-mark`) was durable: it is written after the commit, and
//!   nothing waits for it, so that after a power cut it is old and never new.
//!
//! If the store then has a smaller number, durable commits are gone. The commits of sweeps and of the
//! user's own connections do not count: they need not have waited for the disk.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension as _, Statement, types::Type};
use sha2::{Digest as _, Sha256};

use super::sql;
use crate::telemetry::event;

/// What a mark begins with; the last byte is its version.
const MAGIC: [u8; 8] = *b"\x89owmark\x01";

const MARK_BYTES: usize = 40;

/// SQLite keeps the one row at the end of its page, and pages and frames end at multiples of this.
const ALIGNMENT: usize = 8;

/// How much of a log is read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Which store it is, and the number of its last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    store: [u8; 16],
    commits: u64,
}

impl Mark {
    /// Of a new store, before its first commit.
    pub(super) fn fresh() -> Self {
        Self { store: uuid::Uuid::new_v4().into_bytes(), commits: 0 }
    }

    /// The number of its last commit.
    pub(super) fn commits(self) -> u64 {
        self.commits
    }

    /// The mark in the file; `None`: it has none. Its tables are of this version.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let stored = connection.query_row(sql::READ_MARK, [], |row| row.get::<_, Vec<u8>>(0));
        stored.optional()?.map(|bytes| Self::decoded(&bytes)).transpose()
    }

    pub(super) fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute(sql::WRITE_MARK, [self.bytes()]).map(drop)
    }

    fn bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.store);
        bytes[24..32].copy_from_slice(&self.commits.to_be_bytes());
        let checksum = Sha256::digest(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum[..8]);
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (store, commits) = (bytes.get(8..24)?, bytes.get(24..32)?);
        let mark = Self {
            store: store.try_into().ok()?,
            commits: u64::from_be_bytes(commits.try_into().ok()?),
        };
        (mark.bytes() == bytes).then_some(mark)
    }

    fn decoded(bytes: &[u8]) -> rusqlite::Result<Self> {
        Self::of_bytes(bytes).ok_or_else(|| spoilt("the count of its commits cannot be read"))
    }
}

/// No error code: the store takes it for damage, refuses to write and raises an alarm.
fn spoilt(detail: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, detail.into().into())
}

/// The writer's view: counts each commit, in the transaction and afterwards beside it.
pub(super) struct Marks<'c> {
    read: Statement<'c>,
    write: Statement<'c>,
    path: PathBuf,
    beside: MarkFile,
    last: Option<Mark>,
}

impl<'c> Marks<'c> {
    pub(super) fn new(connection: &'c Connection, path: &Path) -> rusqlite::Result<Self> {
        Ok(Self {
            read: connection.prepare(sql::READ_MARK)?,
            write: connection.prepare(sql::WRITE_MARK)?,
            path: path.to_path_buf(),
            beside: MarkFile::new(path),
            last: None,
        })
    }

    /// Counts the transaction that is open.
    pub(super) fn count(&mut self) -> rusqlite::Result<Mark> {
        let bytes: Vec<u8> = self.read.query_row([], |row| row.get(0))?;
        let found = Mark::decoded(&bytes)?;
        if let Some(last) = self.last
            && (found.store != last.store || found.commits < last.commits)
        {
            return Err(spoilt(format!(
                "it ends with commit {}, though commit {} of this process was durable: another \
                 state of it was put in its place",
                found.commits, last.commits
            )));
        }
        let next = Mark { commits: found.commits + 1, ..found };
        self.write.execute([next.bytes()])?;
        Ok(next)
    }

    /// Notes that the transaction which was counted so is durable.
    pub(super) fn note(&mut self, mark: Mark) {
        self.last = Some(mark);
        self.beside.write(mark);
    }
}

impl Drop for Marks<'_> {
    /// A file that was deleted while it was in use comes back, so that the next start is not refused for
    /// want of it alone.
    fn drop(&mut self) {
        if is_beside(&self.path) {
            return;
        }
        let found = self.read.query_row([], |row| row.get::<_, Vec<u8>>(0));
        if let Ok(mark) = found.and_then(|bytes| Mark::decoded(&bytes)) {
            let last = self.last.filter(|last| last.store == mark.store).unwrap_or(mark);
            // The next start says what is missing, if it could not be written.
            let _ = ensure(&self.path, Mark { commits: last.commits.max(mark.commits), ..mark });
        }
    }
}

/// The file beside the store. What cannot be written there makes less noticed, and nothing lost.
struct MarkFile {
    path: PathBuf,
    file: Option<File>,
    has_failed: bool,
}

/// Makes certain that the file beside the store is there and is about this store, on the disk as well:
/// before the first commit that it counts. From then on a store without it has lost it.
pub(super) fn ensure(path: &Path, mark: Mark) -> io::Result<()> {
    let file = beside(path, "-mark");
    let written = fs::read(&file).ok().and_then(|bytes| Mark::of_bytes(&bytes));
    if written.is_some_and(|written| written.store == mark.store) {
        return Ok(());
    }
    let mut opened = open_beside(&file)?;
    write_at_start(&mut opened, &mark.bytes())?;
    opened.sync_all()?;
    sync_directory(&file)
}

/// Whether the file beside the store is there, and was not cut off.
pub(super) fn is_beside(path: &Path) -> bool {
    fs::metadata(beside(path, "-mark")).is_ok_and(|found| found.len() >= MARK_BYTES as u64)
}

fn open_beside(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// A name that is not on the disk is gone after a power cut.
fn sync_directory(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(directory) if cfg!(unix) => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

impl MarkFile {
    fn new(path: &Path) -> Self {
        Self { path: beside(path, "-mark"), file: None, has_failed: false }
    }

    fn write(&mut self, mark: Mark) {
        if self.has_failed {
            return;
        }
        if let Err(error) = self.try_write(mark) {
            self.has_failed = true;
            complain(&self.path, &error);
        }
    }

    fn try_write(&mut self, mark: Mark) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open_beside(&self.path)?),
        };
        write_at_start(file, &mark.bytes())
    }
}

fn complain(path: &Path, error: &io::Error) {
    tracing::warn!(
        event = event::SQLITE_TROUBLE,
        "{path:?} cannot be written, so that lost commits may go unnoticed until this process is \
         started again: {error}"
    );
}

#[cfg(unix)]
fn write_at_start(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

#[cfg(not(unix))]
fn write_at_start(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek as _, Write as _};
    file.rewind().and_then(|()| file.write_all(bytes))
}

/// Traces of durable commits, gathered before the file itself is read.
///
/// It must be gathered first: what other processes commit meanwhile, the file has by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The last durable commit of each store that has left a trace.
    durable: Vec<Mark>,
}

/// Durable commits that the file lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// The last durable commit that left a trace.
    pub(super) known: u64,
    /// The last commit in the file; `None`: it does not even have the table.
    pub(super) found: Option<u64>,
}

impl Evidence {
    /// Looks at the files beside a store, and makes certain that its log is on the disk: a process that
    /// was killed may have left commits there that it never synced, and that are believed from now on.
    ///
    /// The database and `-shm` are not touched: SQLite's locks on them would end when they are closed.
    pub(super) fn gather(path: &Path) -> io::Result<Self> {
        let mut evidence = Self::default();
        let written = fs::read(beside(path, "-mark")).ok();
        if let Some(mark) = written.and_then(|bytes| Mark::of_bytes(&bytes)) {
            evidence.is_durable(mark);
        }
        match OpenOptions::new().read(true).write(true).open(beside(path, "-wal")) {
            Ok(mut log) => {
                evidence.read_log(&mut log)?;
                log.sync_data()?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(evidence)
    }

    /// What a file with this mark lacks.
    pub(super) fn missing(&self, found: Option<Mark>) -> Option<Missing> {
        let is_later = |durable: &&Mark| match found {
            Some(found) => durable.store == found.store && durable.commits > found.commits,
            // A store whose table is gone looks like another one.
            None => true,
        };
        let known = self.durable.iter().filter(is_later).map(|mark| mark.commits).max()?;
        Some(Missing { known, found: found.map(|found| found.commits) })
    }

    /// The mark of this store when the operator gives up all that is missing.
    pub(super) fn after_all(&self, found: Mark) -> Mark {
        let of_store = self.durable.iter().filter(|mark| mark.store == found.store);
        let known = of_store.map(|mark| mark.commits).max().unwrap_or_default();
        Mark { commits: known.max(found.commits) + 1, ..found }
    }

    /// The last durable commit of whatever store left a trace.
    pub(super) fn last(&self) -> u64 {
        self.durable.iter().map(|mark| mark.commits).max().unwrap_or_default()
    }

    fn is_durable(&mut self, mark: Mark) {
        match self.durable.iter_mut().find(|known| known.store == mark.store) {
            Some(known) => known.commits = known.commits.max(mark.commits),
            None => self.durable.push(mark),
        }
    }

    /// Finds marks wherever they are: what SQLite does not believe any more counts as well.
    fn read_log(&mut self, log: &mut File) -> io::Result<()> {
        let mut piece = Vec::with_capacity(PIECE_BYTES + MARK_BYTES);
        loop {
            let kept = piece.len();
            log.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            if piece.len() == kept {
                return Ok(());
            }
            for (word, _) in piece
                .as_chunks::<ALIGNMENT>()
                .0
                .iter()
                .enumerate()
                .filter(|(_, word)| **word == MAGIC)
            {
                let place = word * ALIGNMENT;
                let mark = piece.get(place..place + MARK_BYTES).and_then(Mark::of_bytes);
                if let Some(mark) = mark
                    && let Some(commits) = mark.commits.checked_sub(1)
                {
                    self.is_durable(Mark { commits, ..mark });
                }
            }
            // A mark may lie across the end of the piece.
            piece.drain(..piece.len().saturating_sub(MARK_BYTES) / ALIGNMENT * ALIGNMENT);
        }
    }
}

/// What is left beside a store whose file is gone: where there is something, it is no new store.
pub(super) fn left_of(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    let mark = beside(path, "-mark");
    let log = beside(path, "-wal");
    let has_log = fs::metadata(&log).is_ok_and(|found| found.len() > 0);
    if mark.exists() { Some(mark) } else { has_log.then_some(log) }
}

/// Removes the log of a store whose file is gone: SQLite must not take it for that of a new one.
pub(super) fn forget_log(path: &Path) -> io::Result<()> {
    for ending in ["-wal", "-shm"] {
        match fs::remove_file(beside(path, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_directory(path)
}

/// The file that lies beside this one, with a longer name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
