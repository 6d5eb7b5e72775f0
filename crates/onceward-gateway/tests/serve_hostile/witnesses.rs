//! Upstreams that tell what they saw: hyper in this process, Node, Python and nginx.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use testbed::Process;

use crate::{
    counting_upstream::{self, Ledger},
    gateway_support::{Kind, Upstream, free_address},
};

/// Method and target of a request that arrived.
pub(crate) type Line = (String, String);

pub(crate) enum Witness {
    Hyper(SocketAddr, Ledger),
    Script(Upstream),
    Nginx(Nginx),
}

impl Witness {
    pub(crate) async fn hyper() -> Self {
        let (address, ledger) = counting_upstream::start(Duration::ZERO).await;
        Self::Hyper(address, ledger)
    }

    pub(crate) fn script(kind: Kind) -> Option<Self> {
        Upstream::start(kind).map(Self::Script)
    }

    pub(crate) fn nginx() -> Option<Self> {
        Nginx::start().map(Self::Nginx)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Hyper(address, _) => *address,
            Self::Script(upstream) => upstream.address,
            Self::Nginx(nginx) => nginx.address,
        }
    }

    pub(crate) async fn seen(&self) -> Vec<Line> {
        match self {
            Self::Hyper(_, ledger) => {
                ledger.all().into_iter().map(|seen| (seen.method, seen.target)).collect()
            }
            Self::Script(upstream) => {
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                let line = |seen: &serde_json::Value| (text(&seen["method"]), text(&seen["path"]));
                upstream.seen().await.iter().map(line).collect()
            }
            Self::Nginx(nginx) => nginx.seen(),
        }
    }
}

/// Its log of requests is what it saw.
pub(crate) struct Nginx {
    _process: Process,
    address: SocketAddr,
    directory: TempDir,
}

impl Nginx {
    /// `None`, loudly, if it is not installed.
    fn start() -> Option<Self> {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: nginx is not on this machine, it is not tested as an upstream");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let address = free_address().unwrap();
        let path = directory.path().display();
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/errors;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
               log_format line '$request_method $request_uri';\n\
               access_log {path}/seen line;\n\
               client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
               fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi;\n\
               scgi_temp_path {path}/scgi;\n\
               server {{ listen {address}; location / {{ return 200 '{{}}'; }} }}\n\
             }}\n"
        );
        let file = directory.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let process = Process::start(Command::new("nginx").arg("-c").arg(&file)).unwrap();
        if let Err(trouble) = process.wait_until_it_accepts(address) {
            panic!("{trouble}: {:?}", fs::read_to_string(directory.path().join("errors")));
        }
        Some(Self { _process: process, address, directory })
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("seen")
    }

    fn seen(&self) -> Vec<Line> {
        let text = String::from_utf8_lossy(&fs::read(self.log()).unwrap()).into_owned();
        let line = |line: &str| {
            let (method, target) = line.split_once(' ').unwrap();
            (method.to_owned(), target.to_owned())
        };
        // What it could not read it has refused: that is logged with a dash.
        text.lines().map(line).filter(|(_, target)| target != "-").collect()
    }
}
