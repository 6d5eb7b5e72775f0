//! The service as a process of its own, which a test kills.

use std::{
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

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
    child: Child,
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
        let output = match std::env::var_os("ONCEWARD_SHOW") {
            Some(_) => Stdio::inherit(),
            None => Stdio::null(),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(output).spawn()?;
        Ok(Running { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) })
    }
}

impl Running {
    /// Waits until it listens, and learns its address. `Err` if it died before it did.
    pub fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let output = self.child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim_end().strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());
        self.address = address.ok_or_else(|| io::Error::other("the service did not start"))?;
        Ok(())
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs; how it ended, if not.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end, for so long.
    pub fn wait_for_end(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                None if start.elapsed() < patience => thread::sleep(Duration::from_millis(2)),
                ended => return Ok(ended),
            }
        }
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have died by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
