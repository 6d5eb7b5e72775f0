//! A shop that answers with secrets, on a file that a test may look into and change.

use std::{fs, path::PathBuf, sync::Arc};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post as on_post};
use http::{HeaderName, HeaderValue, StatusCode};
use onceward::{
    Digest, Effect,
    seal::Keyring,
    server::{Claim, IdempotencyBuilder},
    store::sqlite::SqliteStore,
    telemetry,
};
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::server_support::{Ledger, Reply, charge, layer, post, send};

/// Longer than what is kept in the record itself, and than one chunk.
pub(crate) const LARGE: usize = 300 << 10;

/// Everything that the shop answers with begins like this.
pub(crate) const PLANTED: &str = "PLANTED";

/// One file; stores on it are opened with these keys or those, or none.
pub(crate) struct Shop {
    pub(crate) ledger: Ledger,
    directory: TempDir,
}

/// How the shop ends its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Till {
    /// The layer does.
    Layer,
    /// With a transaction of rusqlite, or of sqlx.
    Rusqlite,
    Sqlx,
}

pub(crate) fn keys(first: u8, others: &[u8]) -> Option<Arc<Keyring>> {
    let ring =
        others.iter().try_fold(Keyring::new([first; 32]), |ring, key| ring.reads([*key; 32]));
    Some(Arc::new(ring.unwrap()))
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self { ledger: Ledger::default(), directory: testbed::directory() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(crate) fn store(&self, keys: Option<&Arc<Keyring>>) -> SqliteStore {
        let builder = SqliteStore::builder(self.path());
        let sealed = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys.clone()));
        sealed.open().unwrap()
    }

    /// A service in a process of its own, as it were.
    pub(crate) fn open(&self, keys: Option<Arc<Keyring>>) -> Router {
        self.open_with(keys, Till::Layer)
    }

    pub(crate) fn open_with(&self, keys: Option<Arc<Keyring>>, till: Till) -> Router {
        let store = self.store(keys.as_ref());
        let effect = match till {
            Till::Layer => Effect::External,
            Till::Rusqlite | Till::Sqlx => Effect::Transactional,
        };
        let builder = layer(store.clone()).spool(store).effect(effect);
        let builder = keys.into_iter().fold(builder, IdempotencyBuilder::fingerprint_keys);
        let (ledger, path) = (self.ledger.clone(), self.path());
        let handler = async move |claim: Claim, headers: HeaderMap, body: Bytes| {
            let number = ledger.add(String::from_utf8_lossy(&body));
            let answer = answer(number, headers.contains_key("x-large"));
            match till {
                Till::Layer => answer,
                Till::Rusqlite => {
                    let mut connection = Connection::open(&path).unwrap();
                    let transaction = claim.begin_blocking(&mut connection).unwrap();
                    let completed = claim.commit_blocking(transaction, answer).unwrap();
                    axum::response::IntoResponse::into_response(completed)
                }
                Till::Sqlx => {
                    let pool = sqlx::SqlitePool::connect(path.to_str().unwrap()).await.unwrap();
                    let transaction = claim.begin(&pool).await.unwrap();
                    let completed = claim.commit(transaction, answer).await.unwrap();
                    axum::response::IntoResponse::into_response(completed)
                }
            }
        };
        let layer = builder.build().unwrap();
        Router::new().route("/charges", on_post(handler)).layer(layer)
    }

    /// All bytes of the file, its log and its index.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let files = fs::read_dir(self.directory.path()).unwrap();
        files.flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
    }

    pub(crate) fn shows(&self, what: impl AsRef<[u8]>) -> bool {
        let what = what.as_ref();
        self.bytes().windows(what.len()).any(|part| part == what)
    }

    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        connection
    }

    /// The bytes of a record, with their checksum.
    pub(crate) fn record(&self, key: &str) -> Vec<u8> {
        let id = charge(key).digest();
        let sql = "SELECT body FROM onceward_record WHERE digest = ?1";
        self.connect().query_row(sql, [id.0], |row| row.get(0)).unwrap()
    }

    /// Writes other bytes as a record, with a checksum that is right for them.
    pub(crate) fn forge(&self, key: &str, mut body: Vec<u8>) {
        let id = charge(key).digest();
        let content = body.len() - 8;
        let sum = Sha256::new().chain_update(id.0).chain_update(&body[..content]).finalize();
        body[content..].copy_from_slice(&sum[..8]);
        let sql = "UPDATE onceward_record SET body = ?2 WHERE digest = ?1";
        assert_eq!(self.connect().execute(sql, (id.0, body)).unwrap(), 1);
    }

    pub(crate) fn chunks(&self, id: &Digest) -> u32 {
        let sql = "SELECT count(*) FROM onceward_spool WHERE digest = ?1";
        self.connect().query_row(sql, [id.0], |row| row.get(0)).unwrap()
    }
}

fn answer(number: usize, is_large: bool) -> axum::response::Response {
    let mut body = format!("{PLANTED} receipt {number} ");
    if is_large {
        body = body.repeat(LARGE / body.len() + 1);
    }
    let mut response = axum::response::Response::new(body.into());
    *response.status_mut() = StatusCode::CREATED;
    let value = HeaderValue::from_str(&format!("{PLANTED} header {number}")).unwrap();
    response.headers_mut().insert(HeaderName::from_static("x-planted"), value);
    response
}

pub(crate) async fn ask(app: &Router, key: &str) -> Reply {
    send(app, post("/charges", key, r#"{"cents":5}"#)).await
}

pub(crate) async fn ask_large(app: &Router, key: &str) -> Reply {
    let mut request = post("/charges", key, r#"{"cents":5}"#);
    request.headers_mut().insert("x-large", HeaderValue::from_static("1"));
    send(app, request).await
}

/// The same answer once more, marked as a replay.
pub(crate) fn assert_replays(reply: &Reply, first: &Reply) {
    assert!(reply.is_replay(), "{} {}", reply.status, reply.text());
    assert_eq!((reply.status, &reply.body), (first.status, &first.body));
    assert_eq!(reply.headers["x-planted"], first.headers["x-planted"]);
}

pub(crate) fn told(reply: &Reply) -> (u16, String) {
    (reply.status.as_u16(), reply.code())
}

pub(crate) fn unknown() -> (u16, String) {
    (409, "outcome-unknown".into())
}

/// How often a record could not be read: other tests may add to it.
pub(crate) fn alarms() -> u64 {
    telemetry::RECORD_UNREADABLE.count()
}
