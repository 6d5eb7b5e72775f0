//! Looks into a SQLite file: whether it can be used, how durable it is, how much room it has.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use onceward::{
    seal::Keyring,
    store::sqlite::{Durability, OpenError, SqliteStore},
};

use super::{Promised, STORE_TIMEOUT, StoreFindings, look};
use crate::{
    commands::doctor::finding::{Findings, texts},
    config::Config,
};

const RESERVE: u64 = 16 << 20;

const LITTLE: u64 = 1 << 30;

pub(super) async fn examine(
    path: &Path,
    config: &Config,
    keys: Option<Arc<Keyring>>,
    findings: &mut Findings,
) -> Option<StoreFindings> {
    if !is_readable(path, findings) || !has_log(path, findings) || is_log_gone(path, findings) {
        return None;
    }
    let builder = SqliteStore::builder(path).without_migrations().busy_timeout(STORE_TIMEOUT);
    let opened = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys)).open();
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            refused(&error, path, findings);
            return None;
        }
    };
    check_durability(store.durability(), findings);
    let seen = look(config, &store, Promised::Sqlite(store.durability().clone()), findings).await?;
    check_room(seen.census.free_bytes, findings);
    Some(seen)
}

fn is_readable(path: &Path, findings: &mut Findings) -> bool {
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let texts = texts(
                format!("{} cannot be read by this user", path.display()),
                "a gateway of this user does not start",
                format!("chown $(id -un) {}", path.display()),
            );
            findings.problem("store-unreadable", "store", texts);
            false
        }
        _ => true,
    }
}

/// A file without a write-ahead log would get one by being opened, and nothing is changed here.
fn has_log(path: &Path, findings: &mut Findings) -> bool {
    let mut head = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let is_database = read.is_ok() && head.starts_with(b"SQLite format 3\0");
    if !is_database || head[18..] == [2, 2] {
        return true;
    }
    let texts = texts(
        format!("{} has no write-ahead log (journal_mode is not wal)", path.display()),
        "nothing is lost by it: the gateway gives it one when it starts; until then it was not \
         looked into",
        format!("sqlite3 {} 'PRAGMA journal_mode=wal'", path.display()),
    );
    findings.warning("store-journal", "store", texts);
    false
}

/// SQLite makes and deletes the log and its shared memory together. It would make a new log here, and
/// take away from a gateway that runs what it may still save.
fn is_log_gone(path: &Path, findings: &mut Findings) -> bool {
    let is_there = |ending| Path::new(&format!("{}{ending}", path.display())).exists();
    if is_there("-wal") || !is_there("-shm") {
        return false;
    }
    let texts = texts(
        format!("{0}-wal is gone, though {0}-shm is there", path.display()),
        "the log was deleted while a process had it open: a gateway that runs takes no new operations, \
         and what only the log had is lost if it is killed",
        "stop all gateways with SIGTERM, by which they save what they have, and look again",
    );
    findings.problem("store-log-gone", "store", texts);
    true
}

fn refused(error: &OpenError, path: &Path, findings: &mut Findings) {
    let name = path.display();
    let migrate = format!("onceward migrate --store sqlite://{name}");
    let stopped = "the gateway does not start; nothing in the file was changed";
    let (code, mend) = match error {
        OpenError::Outdated { .. } => return outdated(error, path, &migrate, findings),
        OpenError::Busy { .. } => {
            let texts = texts(
                error.to_string(),
                "clients get 503 `store-unavailable` while it lasts, and nothing is run",
                format!("fuser -v {name}   # who has it open"),
            );
            findings.warning("store-busy", "store", texts);
            return;
        }
        OpenError::DirectoryMissing { directory } => {
            ("store-directory-missing", format!("mkdir -p {}", directory.display()))
        }
        OpenError::NetworkFileSystem { .. } => {
            ("store-on-network", "store = \"sqlite://…\" on a disk of this machine".to_owned())
        }
        OpenError::ReadOnly { .. } => {
            ("store-read-only", format!("chown $(id -un) {name}, and the directory of it"))
        }
        OpenError::NotADatabase { .. } => {
            ("store-not-a-database", "store = another file, or restore a backup".to_owned())
        }
        OpenError::Corrupt { .. } => {
            let mend = "restore a backup, and treat operations since then as unknown";
            ("store-corrupt", mend.to_owned())
        }
        OpenError::CommitsMissing { .. } => {
            let copy = format!("mkdir kept && cp {name}* kept/   # then restore a backup, or: ");
            ("store-commits-missing", format!("{copy}{migrate} --accept-loss REASON"))
        }
        OpenError::DatabaseMissing { .. } | OpenError::MarkMissing { .. } => {
            let back = "put the file back or restore a backup; or, if nothing else was lost or you accept it: ";
            ("store-file-missing", format!("{back}{migrate} --accept-loss REASON"))
        }
        OpenError::Newer { .. } => {
            ("store-newer", "use the newer software again; nothing goes back".to_owned())
        }
        _ => ("store-unusable", "correct the cause, and look again".to_owned()),
    };
    findings.problem(code, "store", texts(error.to_string(), stopped, mend));
}

/// The gateway migrates when it starts, so that this is no problem; that nothing is there may be one.
fn outdated(error: &OpenError, path: &Path, migrate: &str, findings: &mut Findings) {
    if path.exists() {
        let means = "the gateway updates them when it starts, and older software then cannot use \
                     the file any more";
        findings.warning("store-outdated", "store", texts(error.to_string(), means, migrate));
        return;
    }
    let texts = texts(
        format!("{} does not exist", path.display()),
        "the gateway makes an empty one when it starts; if there were records before, they are not \
         found, and every retry runs again",
        format!("correct `store`, or, for a first start: {migrate}"),
    );
    findings.warning("store-missing", "store", texts);
}

fn check_durability(durability: &Durability, findings: &mut Findings) {
    let Durability { journal_mode, synchronous } = durability;
    if journal_mode != "wal" || *synchronous < 2 {
        let texts = texts(
            format!("SQLite says journal_mode={journal_mode}, synchronous={synchronous}"),
            "a power cut may take back what was acknowledged, and its retry runs again",
            "use the SQLite that this software was built with, on a local disk",
        );
        findings.problem("not-durable", "store", texts);
    }
}

fn check_room(free: Option<u64>, findings: &mut Findings) {
    let Some(free) = free.filter(|free| *free < LITTLE) else { return };
    let mend = "make room on that disk: the file does not shrink by itself";
    let what = format!("{} MiB are free on the disk of the store", free >> 20);
    if free < RESERVE {
        let means = "new operations are refused (503) so that running ones can be settled";
        findings.problem("disk-full", "store", texts(what, means, mend));
    } else {
        let means = "below 16 MiB new operations are refused (503)";
        findings.warning("disk-low", "store", texts(what, means, mend));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::tests::found;
    use super::*;
    use crate::commands::doctor::finding::Severity;

    #[test]
    fn room_is_held_against_the_reserve() {
        for (free, expected) in [
            (None, vec![]),
            (Some(1 << 30), vec![]),
            (Some((1 << 30) - 1), vec![("disk-low", Severity::Warning)]),
            (Some(16 << 20), vec![("disk-low", Severity::Warning)]),
            (Some((16 << 20) - 1), vec![("disk-full", Severity::Problem)]),
        ] {
            assert_eq!(found(|findings| check_room(free, findings)), expected, "{free:?}");
        }
    }

    #[test]
    fn what_sqlite_promises_is_read_back() {
        for (journal_mode, synchronous, is_right) in
            [("wal", 2, true), ("wal", 3, true), ("wal", 1, false), ("delete", 2, false)]
        {
            let durability = Durability { journal_mode: journal_mode.to_owned(), synchronous };
            let found = found(|findings| check_durability(&durability, findings));
            assert_eq!(found.is_empty(), is_right, "{durability:?}");
        }
    }

    #[test]
    fn every_refusal_of_the_store_has_its_name() {
        let path = PathBuf::from("onceward.db");
        let found_of = |error: &OpenError| found(|findings| refused(error, &path, findings));
        let busy = OpenError::Busy { path: path.clone(), waited: STORE_TIMEOUT };
        assert_eq!(found_of(&busy), [("store-busy", Severity::Warning)]);
        let path = || path.clone();
        for (error, code) in [
            (OpenError::NetworkFileSystem { path: path(), kind: "NFS" }, "store-on-network"),
            (OpenError::ReadOnly { path: path() }, "store-read-only"),
            (OpenError::Corrupt { path: path(), detail: "torn".into() }, "store-corrupt"),
            (
                OpenError::CommitsMissing { path: path(), found: Some(7), known: 9 },
                "store-commits-missing",
            ),
            (OpenError::MarkMissing { path: path(), found: 7 }, "store-file-missing"),
        ] {
            assert_eq!(found_of(&error), [(code, Severity::Problem)]);
        }
    }
}
