//! The SQLite file of pending calls.

use std::{
    fs::OpenOptions,
    io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward_core::Key;
use rusqlite::{Connection, Row, params};

use super::{CallId, Pending, ResumeError};

/// Another process may be writing.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// "Onceward's calls": a file with another number here is not ours.
const APPLICATION: i64 = 0x6f63_616c;
const VERSION: i64 = 1;

/// Every commit is on the disk when it returns, also if the power fails then.
const SETTINGS: &str = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA;";
const TABLE: &str = "CREATE TABLE calls (
    key TEXT NOT NULL, method TEXT NOT NULL, uri TEXT NOT NULL,
    headers BLOB NOT NULL, body BLOB NOT NULL, since_ms INTEGER NOT NULL,
    PRIMARY KEY (key, method, uri)
) STRICT";

pub(super) struct File(Connection);

impl File {
    pub(super) fn open(path: &Path) -> Result<Self, ResumeError> {
        private(path).map_err(|error| ResumeError(format!("{}: {error}", path.display())))?;
        let mut file = Connection::open(path)?;
        file.busy_timeout(LOCK_TIMEOUT)?;
        file.execute_batch(SETTINGS)?;
        let change = file.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let number = |name| change.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        match (number("application_id")?, number("user_version")?) {
            (APPLICATION, VERSION) => {}
            (0, 0) if number("schema_version")? == 0 => {
                change.execute_batch(TABLE)?;
                change.pragma_update(None, "application_id", APPLICATION)?;
                change.pragma_update(None, "user_version", VERSION)?;
            }
            (APPLICATION, newer) => {
                return Err(ResumeError(format!(
                    "it was made by newer software (version {newer})"
                )));
            }
            _ => return Err(ResumeError("it is a database of something else".to_owned())),
        }
        change.commit()?;
        Ok(Self(file))
    }

    /// Whether it was not there before. Another request under the same key is refused: what became of
    /// the one that is there is not known, and would be forgotten with it.
    pub(super) fn keep(&mut self, call: &Pending) -> Result<bool, ResumeError> {
        let (key, method, uri) = call.id();
        let mut insert = self.0.prepare_cached(
            "INSERT INTO calls VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        )?;
        let since = call.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        let new = insert.execute(params![
            key,
            method,
            uri,
            lines(&call.headers),
            &call.body[..],
            since
        ])?;
        if new == 0 {
            let select = "SELECT body = ?4 FROM calls WHERE key = ?1 AND method = ?2 AND uri = ?3";
            let mut select = self.0.prepare_cached(select)?;
            let same =
                select.query_row(params![key, method, uri, &call.body[..]], |row| row.get(0));
            if !same? {
                return Err(ResumeError("another request is pending under this key".to_owned()));
            }
        }
        Ok(new == 1)
    }

    pub(super) fn forget(&mut self, (key, method, uri): &CallId) -> Result<(), ResumeError> {
        let delete = "DELETE FROM calls WHERE key = ?1 AND method = ?2 AND uri = ?3";
        self.0.prepare_cached(delete)?.execute(params![key, method, uri])?;
        Ok(())
    }

    pub(super) fn all(&mut self) -> Result<Vec<Pending>, ResumeError> {
        let select =
            "SELECT key, method, uri, headers, body, since_ms FROM calls ORDER BY since_ms, key";
        let mut select = self.0.prepare_cached(select)?;
        let rows = select.query_map([], |row| Ok(read(row)))?;
        rows.map(|row| row?).collect()
    }
}

fn read(row: &Row<'_>) -> Result<Pending, ResumeError> {
    let damaged = |what: &str| ResumeError(format!("a call in it has a damaged {what}"));
    let text = |index| row.get::<_, String>(index);
    let since = u64::try_from(row.get::<_, i64>(5)?).unwrap_or_default();
    Ok(Pending {
        key: Key::new(&text(0)?).map_err(|_| damaged("key"))?,
        method: Method::from_bytes(text(1)?.as_bytes()).map_err(|_| damaged("method"))?,
        uri: text(2)?.parse().map_err(|_| damaged("URI"))?,
        headers: headers(&row.get::<_, Vec<u8>>(3)?).ok_or_else(|| damaged("header"))?,
        body: Bytes::from(row.get::<_, Vec<u8>>(4)?),
        since: UNIX_EPOCH.checked_add(Duration::from_millis(since)).unwrap_or(SystemTime::now()),
    })
}

/// One line for each, as in HTTP/1.1: no value holds a line break.
fn lines(headers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.push(b':');
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    lines
}

fn headers(lines: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        headers.append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    Some(headers)
}

/// Makes the file for its owner alone, if it is not there.
fn private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

impl From<rusqlite::Error> for ResumeError {
    fn from(error: rusqlite::Error) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str) -> Pending {
        let mut headers = HeaderMap::new();
        headers.append("x-many", HeaderValue::from_static("a: b"));
        headers.append("x-many", HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append("x-empty", HeaderValue::from_static(""));
        Pending {
            key: Key::new(key).unwrap(),
            method: Method::POST,
            uri: "http://shop.example/charges?a=b".parse().unwrap(),
            headers,
            body: Bytes::from_static(b"{\"cents\":500}"),
            since: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn a_call_is_as_it_was_when_another_process_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.db");
        let (one, other) = (call("k1"), call("k2"));
        {
            let mut file = File::open(&path).unwrap();
            assert!(file.keep(&one).unwrap() && file.keep(&other).unwrap());
            assert!(!file.keep(&one).unwrap(), "it is there already");
            let changed = Pending { body: Bytes::from_static(b"another"), ..call("k1") };
            let error = file.keep(&changed).unwrap_err();
            assert!(error.to_string().contains("another request is pending"), "{error}");
        }
        let mut file = File::open(&path).unwrap();
        let all = file.all().unwrap();
        assert_eq!(all.len(), 2);
        let (read, kept) = (&all[0], &one);
        assert_eq!((&read.key, &read.method, &read.uri), (&kept.key, &kept.method, &kept.uri));
        assert_eq!(
            (&read.headers, &read.body, read.since),
            (&kept.headers, &kept.body, kept.since)
        );
        file.forget(&one.id()).unwrap();
        assert_eq!(file.all().unwrap().len(), 1);
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(File::open(&path).err().unwrap().to_string().contains("something else"));
        std::fs::write(directory.path().join("text"), "not a database, but long enough to look at")
            .unwrap();
        assert!(File::open(&directory.path().join("text")).is_err());
        assert!(File::open(&directory.path().join("no/such/place")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.db");
        File::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
