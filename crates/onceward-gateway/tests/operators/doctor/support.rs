//! Configurations and stores in directories of their own, and what the doctor says about them.

use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc,
    time::Duration,
};

use onceward::{
    Effect, Execution, Fingerprint, Key, OperationId, OperationName, Request, Scope, Store as _,
    Terms, Timestamp,
    clock::{Clock as _, ManualClock},
    protocol::{Admission, Fence},
    store::sqlite::SqliteStore,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::gateway_support::{Finished, command};

/// A gateway as one should run it: nothing is found but notes.
pub(crate) const SOUND: &str = "\
admin = \"127.0.0.1:8081\"
upstream = \"http://127.0.0.1:3000\"
unmatched = \"refuse\"
[admin_tokens]
ops = { token_env = \"TOKEN\", role = \"resolve\" }
[encryption]
key_file = \"onceward.key\"
[jwt]
secret_env = \"JWT_SECRET\"
[[route]]
match = \"POST /v1/charges\"
key = \"required\"
scope = [\"jwt:sub\"]
authorize = \"jwt\"
reconcile = \"http://127.0.0.1:3000/did-it-happen\"
retry_window = \"24h\"
profile = \"strict\"
";

pub(crate) const ENVIRONMENT: [(&str, &str); 2] =
    [("TOKEN", "0123456789abcdef"), ("JWT_SECRET", "a secret of thirty-two characters")];

/// A directory with this configuration, a key and an empty store that only its owner may use.
pub(crate) fn place(configuration: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("onceward.toml"), configuration).unwrap();
    fs::write(at("onceward.key"), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    drop(SqliteStore::open(at("onceward.db")).unwrap());
    for name in ["onceward.key", "onceward.db"] {
        allow(&at(name), 0o600);
    }
    directory
}

pub(crate) fn allow(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs the doctor there, with no environment but this.
pub(crate) fn doctor(directory: &TempDir, more: &[&str], environment: &[(&str, &str)]) -> Finished {
    let mut command = command(&["doctor"]);
    command.args(more).current_dir(directory.path()).env_clear();
    Finished::of(command.envs(environment.iter().copied()))
}

/// What it says to machines about a place, without connecting to anything.
pub(crate) fn examined(directory: &TempDir) -> Value {
    examined_with(directory, &ENVIRONMENT)
}

pub(crate) fn examined_with(directory: &TempDir, environment: &[(&str, &str)]) -> Value {
    let output = doctor(directory, &["--offline", "--json"], environment);
    let document = output.json();
    assert_eq!(document["healthy"] == true, output.is_success(), "{document:#}");
    assert_eq!(output.stderr, "");
    document
}

/// What was found, by code, with its severity.
pub(crate) fn codes(document: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap();
    findings.iter().map(|one| (text(&one["code"]), text(&one["severity"]))).collect()
}

/// The finding of this code.
pub(crate) fn finding<'a>(document: &'a Value, code: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["code"] == code);
    found.unwrap_or_else(|| panic!("{code} was not found: {document:#}"))
}

/// `SOUND` with one more route, below which these lines stand.
pub(crate) fn with_route(lines: &str) -> TempDir {
    place(&format!("{SOUND}[[route]]\nmatch = \"POST /v1/other\"\n{lines}\n"))
}

/// Claims an operation there, so long ago.
pub(crate) fn claim(directory: &TempDir, key: &str, effect: Effect, at: Timestamp) {
    let path = directory.path().join("onceward.db");
    let clock = ManualClock::default();
    clock.jump_micros(at.unix_micros() - clock.now().unix_micros());
    let store = SqliteStore::builder(path).clock(Arc::new(clock)).open().unwrap();
    let name = OperationName::new("POST /v1/charges").unwrap();
    let scope = Scope::of("jwt:sub", "alice").unwrap();
    let operation = OperationId::new(scope, name, Key::new(key).unwrap());
    let terms = Terms::of(effect).build().unwrap();
    let fingerprints = Fingerprint::from_parts(1, [7; 32]).into();
    let request = Request { operation, fingerprints, terms };
    let (fence, execution) = (Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
    let admission = Admission::new(request, fence, execution);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.swap(admission.change())).unwrap();
}

/// Now, and a time before or after it.
pub(crate) fn before_now(age: Duration) -> Timestamp {
    Timestamp::from_unix_micros(now() - i64::try_from(age.as_micros()).unwrap())
}

pub(crate) fn after_now(ahead: Duration) -> Timestamp {
    Timestamp::from_unix_micros(now() + i64::try_from(ahead.as_micros()).unwrap())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// Every file of a directory with its bytes.
pub(crate) fn contents(directory: &TempDir) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}
