//! Stripe's SDKs, and its mock, as processes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Process;
use tokio::{process::Command, time::timeout};

use super::{Gateway, TEST_TIMEOUT};
use crate::installed;

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
        let output = timeout(TEST_TIMEOUT, command.output()).await.expect("the SDK hangs").unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", self.name, String::from_utf8_lossy(&output.stderr))
        })
    }

    /// Whether it keeps to `Stripe-Should-Retry: true` of an error. The one for Go repeats no error that it
    /// can read, but `lock_timeout`.
    pub(crate) fn repeats_what_is_refused(&self) -> bool {
        self.name != "Go"
    }

    /// Whether it has a kind of its own for mistakes about keys, and this is one.
    pub(crate) fn is_idempotency_error(&self, seen: &Value) -> bool {
        let error = seen["error"].as_str().unwrap_or_default();
        seen["type"] == json!("idempotency_error")
            && (self.name == "Go" || error.ends_with("IdempotencyError"))
    }
}

fn python() -> Option<Sdk> {
    let words = installed::python("stripe", "stripe/client.py");
    words.map_or_else(|| skipped("Python"), |words| Some(Sdk { name: "Python", words }))
}

fn node(directory: &Path) -> Option<Sdk> {
    let words = installed::node("stripe", "stripe/client.js", directory);
    words.map_or_else(|| skipped("Node"), |words| Some(Sdk { name: "Node", words }))
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
    let programs = installed::go("stripe/go", ".", GO_SDK).zip(installed::go(
        "stripe/go",
        MOCK,
        "stripe-mock",
    ));
    if programs.is_none() {
        eprintln!("SKIPPED: Stripe's SDK for Go and stripe-mock: there is no go on this machine");
    }
    let (client, mock) = programs?;
    Some((Sdk { name: "Go", words: vec![client] }, Mock(mock)))
}
