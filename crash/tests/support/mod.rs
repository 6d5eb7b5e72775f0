//! What the tests of this folder share: a worker that can be told things, and what must be true
//! after whatever was done to it.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod skip;
pub(crate) mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use tempfile::TempDir;
use worker::Worker;

/// The operation to which something is done.
pub(crate) const KEY: &str = "charge-2";

/// An operation that has ended before.
const EARLIER: &str = "charge-1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    External,
    Transactional,
}

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::External, Self::Transactional];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Transactional => "transactional",
        }
    }
}

/// A directory with a store, and a ledger.
pub(crate) struct Bench {
    pub(crate) kind: Kind,
    pub(crate) reserve_bytes: u64,
    directory: PathBuf,
    /// The answer to the operation that has ended before, if there was one.
    earlier: Option<String>,
    /// Here is the ledger: it is outside, whatever happens to the store.
    outside: TempDir,
}

impl Bench {
    /// An empty directory.
    pub(crate) fn empty(kind: Kind) -> Self {
        let outside = TempDir::new().unwrap();
        let directory = outside.path().canonicalize().unwrap();
        Self { kind, reserve_bytes: 16 << 20, directory, earlier: None, outside }
    }

    /// A directory that somebody else looks after.
    pub(crate) fn on(directory: &Path, kind: Kind, reserve_bytes: u64) -> Self {
        let directory = directory.canonicalize().unwrap();
        Self { directory, reserve_bytes, ..Self::empty(kind) }
    }

    /// A store that has been used and closed: one operation has ended in it.
    pub(crate) fn used(kind: Kind) -> Self {
        let mut bench = Self::empty(kind);
        let mut worker = Worker::start(&bench);
        let said = worker.ask(&format!("run {EARLIER}"));
        bench.earlier = Some(said.strip_prefix(&format!("ack {EARLIER} ")).unwrap().to_owned());
        assert!(worker.end().success());
        bench
    }

    /// The same, and then a worker was killed in the middle of the operation.
    pub(crate) fn interrupted(kind: Kind) -> Self {
        let bench = Self::used(kind);
        let mut worker = Worker::start(&bench);
        assert_eq!(worker.ask(&format!("begin {KEY}")), format!("begun {KEY}"));
        worker.kill();
        bench
    }

    pub(crate) fn copy(&self) -> Self {
        let copy = Self { earlier: self.earlier.clone(), ..Self::empty(self.kind) };
        for entry in fs::read_dir(&self.directory).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.directory.join(entry.file_name())).unwrap();
        }
        copy
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.directory.join("onceward.db")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.outside.path().join("ledger")
    }

    /// Where strace writes to.
    pub(crate) fn trace(&self) -> PathBuf {
        self.outside.path().join("trace")
    }

    /// The answers of all executions that had an effect.
    pub(crate) fn effects(&self, key: &str) -> Vec<String> {
        match self.kind {
            Kind::External => {
                let ledger = fs::read_to_string(self.ledger()).unwrap_or_default();
                let lines = ledger.lines().filter_map(|line| line.split_once(' '));
                lines.filter(|(of, _)| *of == key).map(|(_, body)| body.to_owned()).collect()
            }
            Kind::Transactional => {
                let connection = rusqlite::Connection::open(self.database()).unwrap();
                charges(&connection, key)
            }
        }
    }

    /// Starts a worker afresh, as after a crash, and asks it what became of the operation.
    ///
    /// `said` is what the workers before it have said about it.
    pub(crate) fn check_after_restart(&self, said: &[String]) -> Result<String, String> {
        let mut worker = Worker::start(self);
        if let Some(earlier) = &self.earlier {
            let replay = worker.ask(&format!("retry {EARLIER}"));
            assert_eq!(replay, format!("replay {EARLIER} {earlier}"), "it had ended before");
        }
        let answer = worker.ask(&format!("retry {KEY}"));
        let next = worker.ask("run charge-3");
        assert!(next.starts_with("ack charge-3"), "everything goes on: {next}");
        assert!(worker.end().success());
        self.check(said, &answer).map(|()| answer)
    }

    /// Holds what the outside has been told against the effects.
    pub(crate) fn check(&self, said: &[String], answer: &str) -> Result<(), String> {
        let effects = self.effects(KEY);
        let is_true = match bound(answer) {
            Some(body) => effects == [body],
            // Only of an effect outside the store may it stay unknown whether it happened.
            None => self.kind == Kind::External && is_unknown(answer) && effects.len() <= 1,
        };
        let mut promised = said.iter().filter_map(|line| bound(line));
        match is_true && promised.all(|body| bound(answer) == Some(body)) {
            true => Ok(()),
            false => Err(format!(
                "{:?}: the workers said {said:?}, then {answer:?}, and the effects are {effects:?}",
                self.kind
            )),
        }
    }
}

fn is_unknown(line: &str) -> bool {
    line == format!("unknown {KEY}")
}

/// The rows of the worker's own table; none if there is no table yet.
pub(crate) fn charges(connection: &rusqlite::Connection, key: &str) -> Vec<String> {
    let select = "SELECT body FROM charges WHERE key = ?1";
    match connection.prepare(select) {
        Ok(mut rows) => {
            rows.query_map([key], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        }
        Err(error) if error.to_string().contains("no such table") => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// The body of an answer that binds the store; `None`: it says something else.
pub(crate) fn bound(line: &str) -> Option<&str> {
    let (word, rest) = line.split_once(' ')?;
    let (key, body) = rest.split_once(' ')?;
    (["ack", "ran", "replay"].contains(&word) && key == KEY).then_some(body)
}

/// Does it to each item, several at a time: most of the time is spent waiting for leases and disks.
pub(crate) fn each_in_parallel<'a, T: Sync, R: Send>(
    lanes: usize,
    items: &'a [T],
    body: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut results = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.push(body(item));
        }
        results
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    })
}
