//! The gateway as a process that can be killed.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tempfile::TempDir;

/// What a gateway is started with; several may share one.
pub(crate) struct Setup {
    directory: TempDir,
    upstream: SocketAddr,
    /// The options of the only route, as lines of the file.
    options: &'static str,
    started: AtomicUsize,
}

impl Setup {
    pub(crate) fn new(upstream: SocketAddr, options: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, upstream, options, started: AtomicUsize::new(0) }
    }

    /// A gateway on a free port.
    pub(crate) fn start(&self) -> Gateway {
        self.start_at("127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn start_at(&self, listen: SocketAddr) -> Gateway {
        Gateway::start(&self.write(listen))
    }

    fn write(&self, listen: SocketAddr) -> PathBuf {
        let count = self.started.fetch_add(1, Ordering::Relaxed);
        let file = self.directory.path().join(format!("gateway-{count}.toml"));
        let text = format!(
            "listen = \"{listen}\"\n\
             upstream = \"http://{}\"\n\
             store = \"sqlite://records.db\"\n\
             [[route]]\n\
             match = \"POST,PATCH /{{*rest}}\"\n\
             scope = [\"global\"]\n\
             authorize = \"none\"\n\
             {}\n",
            self.upstream, self.options
        );
        fs::write(&file, text).unwrap();
        file
    }
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
    told: Arc<Mutex<String>>,
}

impl Gateway {
    fn start(config: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .arg("serve")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let address = ready(&mut lines);
        let told = Arc::new(Mutex::new(String::new()));
        let listener = told.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            while matches!(lines.read_line(&mut line), Ok(1..)) {
                listener.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { address, child, told }
    }

    /// It runs, and no part of it has panicked.
    pub(crate) fn assert_well(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "the gateway has ended: {}", self.told.lock().unwrap());
        let told = self.told.lock().unwrap();
        assert!(!told.contains("panicked"), "{told}");
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

fn ready(lines: &mut BufReader<ChildStderr>) -> SocketAddr {
    let mut told = String::new();
    loop {
        let from = told.len();
        let read = lines.read_line(&mut told).unwrap();
        assert!(read > 0, "the gateway does not start: {told}");
        if let Some(rest) = told[from..].strip_prefix("listening on http://") {
            return rest.split(',').next().unwrap().parse().unwrap();
        }
    }
}
