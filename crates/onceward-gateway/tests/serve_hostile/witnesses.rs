//! Upstreams that tell what they saw: hyper in this process, Node, Python and nginx.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    gateway_support::{Kind, Upstream, free_port},
    upstream::{self, Ledger},
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
        let (address, ledger) = upstream::start(Duration::ZERO).await;
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
    address: SocketAddr,
    child: Child,
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
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
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
        let child =
            Command::new("nginx").arg("-c").arg(&file).stderr(Stdio::null()).spawn().unwrap();
        let nginx = Self { address, child, directory };
        let started = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            let errors = fs::read_to_string(nginx.directory.path().join("errors"));
            assert!(started.elapsed() < Duration::from_secs(20), "no nginx: {errors:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(nginx)
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

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
