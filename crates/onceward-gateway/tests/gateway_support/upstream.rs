//! Upstreams: small scripts that do what a request tells them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;
use testbed::Process;

use super::{Call, Link, Version};

/// What an upstream is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Python,
    Node,
}

/// A running upstream; it ends when this is dropped.
pub(crate) struct Upstream {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    process: Process,
}

/// One of each kind that this machine has.
pub(crate) fn upstreams() -> Vec<Upstream> {
    let all: Vec<Upstream> =
        [Kind::Python, Kind::Node].into_iter().filter_map(Upstream::start).collect();
    assert!(!all.is_empty(), "neither python3 nor node is here: nothing can be tested");
    all
}

impl Upstream {
    /// Any upstream, where it does not matter.
    pub(crate) fn any() -> Self {
        Self::start(Kind::Node)
            .or_else(|| Self::start(Kind::Python))
            .expect("neither node nor python3 is here: nothing can be tested")
    }

    /// `None`, loudly, if this machine cannot run it.
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        Self::start_with(kind, 0, None)
    }

    /// On this port (0: any), closing connections that were idle for so many seconds.
    pub(crate) fn start_with(kind: Kind, port: u16, idle: Option<&str>) -> Option<Self> {
        let program = kind.program()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway_support/upstream");
        let extension = if kind == Kind::Python { "py" } else { "js" };
        let mut command = Command::new(program);
        command.arg(format!("{script}.{extension}")).args(idle).env("PORT", port.to_string());
        let process = Process::start(&mut command).unwrap();
        let port = process.stdout.next_line().unwrap().expect("the upstream does not start");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
        Some(Self { kind, address, process })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests it has executed.
    pub(crate) async fn count(&self) -> u64 {
        self.ask("/count").await["total"].as_u64().unwrap()
    }

    /// How many with this key.
    pub(crate) async fn count_of(&self, key: &str) -> u64 {
        self.ask("/count").await["by_key"][key].as_u64().unwrap_or(0)
    }

    /// How many at this path, with its query.
    pub(crate) async fn count_at(&self, path: &str) -> u64 {
        self.ask("/count").await["by_path"][path].as_u64().unwrap_or(0)
    }

    /// The requests that it has executed, in order.
    pub(crate) async fn seen(&self) -> Vec<Value> {
        self.ask("/seen").await.as_array().unwrap().clone()
    }

    /// Lets those go on that wait at this gate, now and later.
    pub(crate) async fn open(&self, gate: &str) {
        self.ask(&format!("/open/{gate}")).await;
    }

    /// The lines of this name in the last request that it has executed.
    pub(crate) async fn last_lines(&self, name: &str) -> Vec<String> {
        let seen = self.seen().await;
        let lines = seen.last().expect("nothing has come")["headers"].as_array().unwrap();
        let lines = lines.iter().filter(|line| line[0] == name);
        lines.map(|line| line[1].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until so many requests have arrived.
    pub(crate) async fn arrival(&self, count: u64) {
        super::eventually("requests arrive", || async { self.count().await >= count }).await;
    }

    /// Takes it away, as a crash would.
    pub(crate) fn kill(self) {
        self.process.kill().unwrap();
    }

    async fn ask(&self, path: &str) -> Value {
        let mut link = Link::open(self.address, Version::Http1).await;
        link.send(&Call::new("GET", path)).await.json()
    }
}

impl Kind {
    /// The real program, so that no wrapper has to be started each time.
    fn program(self) -> Option<&'static str> {
        static PYTHON: OnceLock<Option<String>> = OnceLock::new();
        static NODE: OnceLock<Option<String>> = OnceLock::new();
        let (found, name, arguments) = match self {
            Self::Python => (&PYTHON, "python3", ["-c", "import sys; print(sys.executable)"]),
            Self::Node => (&NODE, "node", ["-p", "process.execPath"]),
        };
        let found = found.get_or_init(|| {
            let output = Command::new(name).args(arguments).output().ok();
            let output = output.filter(|output| output.status.success());
            Some(String::from_utf8(output?.stdout).ok()?.trim().to_owned())
        });
        if found.is_none() {
            eprintln!("SKIPPED: {name} is not on this machine, its upstream is not tested");
        }
        found.as_deref()
    }
}
