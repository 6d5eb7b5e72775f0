//! Stripe's SDKs, and its mock, as processes.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Process;
use tokio::{process::Command, time::timeout};

use super::{Gateway, PATIENCE};

const GO_SDK: &str = "stripe-client";
const MOCK: &str = "github.com/stripe/stripe-mock@v0.203.0";

/// One call of it is one process: address, key, parameters and retries go in, and what it saw comes out.
pub(crate) struct Sdk {
    pub(crate) name: &'static str,
    /// The program and what stands before these.
    words: Vec<PathBuf>,
}

impl Sdk {
    /// Those that `cargo xtask test` has installed; the others are skipped, loudly.
    pub(crate) fn usual(directory: &TempDir) -> Vec<Self> {
        [python(), node(directory.path())].into_iter().flatten().collect()
    }

    pub(crate) async fn call(
        &self,
        gateway: &Gateway,
        key: &str,
        parameters: &Value,
        retries: u32,
    ) -> Value {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args([gateway.address.to_string(), key.to_owned()]);
        command.args([parameters.to_string(), retries.to_string()]);
        command.env_remove("HTTP_PROXY").env_remove("http_proxy").kill_on_drop(true);
        let output = timeout(PATIENCE, command.output()).await.expect("the SDK hangs").unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", self.name, String::from_utf8_lossy(&output.stderr))
        })
    }

    /// Whether it has a kind of its own for mistakes about keys, and this is one.
    pub(crate) fn is_idempotency_error(&self, seen: &Value) -> bool {
        let error = seen["error"].as_str().unwrap_or_default();
        seen["type"] == json!("idempotency_error")
            && (self.name == "Go" || error.ends_with("IdempotencyError"))
    }
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/stripe").join(name)
}

fn python() -> Option<Sdk> {
    let stamp = fs::read_to_string(tools().join("python/packages.txt")).unwrap_or_default();
    if !stamp.contains("stripe==") {
        return skipped("Python");
    }
    let words = vec![tools().join("python/bin/python"), "-B".into(), script("client.py")];
    Some(Sdk { name: "Python", words })
}

fn node(directory: &Path) -> Option<Sdk> {
    if !tools().join("stripe/installed.json").exists() {
        return skipped("Node");
    }
    // Node looks for packages beside the file.
    symlink(tools().join("stripe/node_modules"), directory.join("node_modules")).ok()?;
    let copy = directory.join("client.js");
    fs::copy(script("client.js"), &copy).unwrap();
    Some(Sdk { name: "Node", words: vec!["node".into(), copy] })
}

fn skipped<T>(name: &str) -> Option<T> {
    eprintln!("SKIPPED: Stripe's SDK for {name} is not here; `cargo xtask test` installs it");
    None
}

/// Stripe's mock of its API.
pub(crate) struct Mock(PathBuf);

impl Mock {
    pub(crate) fn start(&self, address: SocketAddr) -> Process {
        let mut command = std::process::Command::new(&self.0);
        command.args(["-http-addr", &address.to_string(), "-https-addr", "127.0.0.1:0"]);
        let process = Process::start(&mut command).unwrap();
        process.wait_until_it_accepts(address).unwrap();
        process
    }
}

/// Compiles both below `target/tools`; `None`, loudly, where there is no Go.
pub(crate) fn with_go() -> Option<(Sdk, Mock)> {
    let place = tools().join("go");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("go");
        command.args(arguments).current_dir(script("go")).env("GOFLAGS", "-mod=mod");
        command.env("GOPATH", place.join("path")).env("GOBIN", place.join("bin"));
        command.output().ok().filter(|output| {
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "go {arguments:?}: {words}");
            true
        })
    };
    let client = place.join("bin").join(GO_SDK);
    let output = client.to_str()?;
    if run(&["build", "-o", output, "."]).and_then(|_| run(&["install", MOCK])).is_none() {
        eprintln!("SKIPPED: Stripe's SDK for Go and stripe-mock: there is no go on this machine");
        return None;
    }
    let go = Sdk { name: "Go", words: vec![client] };
    Some((go, Mock(place.join("bin/stripe-mock"))))
}
