//! The services of `examples/postgres`, as processes.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use testbed::Process;

/// One of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Example {
    /// Its file, below `examples/postgres`.
    pub(crate) file: &'static str,
    /// What the documentation calls it.
    pub(crate) title: &'static str,
}

pub(crate) const EXAMPLES: [Example; 5] = [
    Example { file: "psycopg/service.py", title: "Python: psycopg" },
    Example { file: "fastapi/service.py", title: "Python: FastAPI" },
    Example { file: "django/service.py", title: "Python: Django" },
    Example { file: "pg/service.mjs", title: "Node: pg" },
    Example { file: "express/service.mjs", title: "Node: Express" },
];

impl Example {
    fn path(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/postgres").join(self.file)
    }

    pub(crate) fn text(self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// The command that runs it, and what must outlive it; `None`, loudly, where its packages are not.
    fn command(self) -> Option<(Command, TempDir)> {
        let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools");
        let (needed, program) = match self.file.ends_with(".py") {
            true => (tools.join("python/bin/python"), tools.join("python/bin/python")),
            false => (tools.join("node/node_modules"), PathBuf::from("node")),
        };
        // The stamp is written last, when the packages of the examples are there.
        let stamp = match self.file.ends_with(".py") {
            true => fs::read_to_string(tools.join("python/packages.txt")).unwrap_or_default(),
            false => fs::read_to_string(tools.join("node/installed.json")).unwrap_or_default(),
        };
        if !needed.exists() || !["psycopg", "express"].iter().any(|name| stamp.contains(name)) {
            let Self { file, .. } = self;
            eprintln!(
                "SKIPPED: the packages of {file} are not here; `cargo xtask test` installs them"
            );
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        if self.file.ends_with(".py") {
            command.arg("-B").arg(self.path());
        } else {
            // Node looks for packages beside the file.
            symlink(&needed, directory.path().join("node_modules")).unwrap();
            let copy = directory.path().join("service.mjs");
            fs::copy(self.path(), &copy).unwrap();
            command.arg(copy);
        }
        Some((command, directory))
    }
}

/// A running service; it is killed when this is dropped.
pub(crate) struct Service {
    process: Process,
    _directory: TempDir,
}

impl Service {
    /// `None`, loudly, if this machine cannot run it.
    pub(crate) fn start(example: Example, address: SocketAddr, database: &str) -> Option<Self> {
        let (mut command, directory) = example.command()?;
        command.env("PORT", address.port().to_string()).env("DATABASE_URL", database);
        let process = Process::start(command.current_dir(directory.path())).unwrap();
        process.wait_until_it_accepts(address).unwrap();
        Some(Self { process, _directory: directory })
    }

    /// What kill -9 does.
    pub(crate) fn kill(self) {
        self.process.kill().unwrap();
    }
}
