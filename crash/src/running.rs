//! The service as a process of its own, which a test kills.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    process::{Command, ExitStatus},
    time::Duration,
};

use testbed::{Process, Signal};

use crate::service::{Driver, Stake};

/// How a service is started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program: `env!("CARGO_BIN_EXE_service")` in a test.
    pub program: &'a str,
    /// The database file.
    pub database: &'a Path,
    /// Where the provider listens.
    pub provider: SocketAddr,
    /// What is at stake.
    pub stake: Stake,
    /// Which driver commits.
    pub driver: Driver,
    /// How long a claim lives without being renewed.
    pub lease: Duration,
    /// Whether one thread does everything.
    pub single_thread: bool,
    /// What `ONCEWARD_CRASHPOINT` says, if anything.
    pub crashpoint: Option<String>,
    /// More arguments of the service.
    pub more: Vec<String>,
}

/// A process that serves; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Launch<'_> {
    /// Starts it and waits until it listens. `Err` also if it died before it did.
    pub fn start(&self) -> io::Result<Running> {
        let mut running = self.spawn()?;
        running.wait_until_it_listens()?;
        Ok(running)
    }

    /// Starts it and does not wait: its address is not known yet.
    pub fn spawn(&self) -> io::Result<Running> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let mut command = Command::new(self.program);
        command.arg("--database").arg(self.database);
        command.arg("--provider").arg(self.provider.to_string());
        command.arg("--effect").arg(name(clap::ValueEnum::to_possible_value(&self.stake)));
        command.arg("--driver").arg(name(clap::ValueEnum::to_possible_value(&self.driver)));
        command.arg("--lease").arg(self.lease.as_millis().to_string());
        if self.single_thread {
            command.arg("--single-thread");
        }
        command.args(&self.more);
        match &self.crashpoint {
            Some(plan) => command.env("ONCEWARD_CRASHPOINT", plan),
            None => command.env_remove("ONCEWARD_CRASHPOINT"),
        };
        let process = Process::start(&mut command).map_err(io::Error::other)?;
        Ok(Running { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) })
    }
}

impl Running {
    /// Waits until it listens, and learns its address. `Err` if it died before it did.
    pub fn wait_until_it_listens(&mut self) -> io::Result<()> {
        self.address = self.process.stdout.wait_for_address().map_err(io::Error::other)?;
        Ok(())
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Waits for its end, for so long.
    #[must_use]
    pub fn wait_for_end(&self, patience: Duration) -> Option<ExitStatus> {
        self.process.wait_for_end_within(patience)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(self) -> io::Result<ExitStatus> {
        self.process.kill().map_err(io::Error::other)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::env::var_os("ONCEWARD_SHOW").is_some() {
            eprint!("{}", self.process.stderr.text());
        }
    }
}
