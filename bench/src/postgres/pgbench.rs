//! `pgbench`, run for one turn.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    Failure,
    postgres::{
        script::{Sample, Script},
        turns::WARM_UP,
    },
};

/// The program of the server's own installation, and how it finds the database.
pub(crate) struct Pgbench {
    pub(crate) program: PathBuf,
    pub(crate) url: String,
    pub(crate) sample: Sample,
}

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Transactions in a second, without the warm-up.
    pub(crate) rate: f64,
    /// All transactions, those of the warm-up included.
    pub(crate) all: u64,
}

impl Pgbench {
    /// Runs it to warm up and then for so many seconds.
    pub(crate) fn run(&self, script: Script, clients: usize, seconds: u32) -> Result<Ran, Failure> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(script.text().as_bytes())?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(clients);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &(seconds + 60).to_string()]).arg(&self.program);
        command.args(["-n", "-M", "prepared", "-P", &WARM_UP.to_string(), "-f"]).arg(file.path());
        command.args(["-c", &clients.to_string(), "-j", &threads.to_string()]);
        command.args(["-T", &(seconds + WARM_UP).to_string()]);
        for variable in self.sample.variables() {
            command.args(["-D", &variable]);
        }
        // Without the store's time-out for locks: it would end a client, where the store asks again.
        command.env("LC_ALL", "C").arg(&self.url);
        let output = command.stdin(Stdio::null()).output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if !output.status.success() {
            let first = said.lines().find(|line| line.contains("error")).unwrap_or(said.trim());
            return Err(format!("pgbench failed ({}): {first}", output.status).into());
        }
        Ran::read(&said).ok_or_else(|| format!("pgbench said something else:\n{said}").into())
    }
}

impl Ran {
    /// Reads it from all that `pgbench` says.
    fn read(text: &str) -> Option<Self> {
        let after = |beginning: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(beginning));
            line?.split_whitespace().next()?.trim_end_matches(',').parse::<f64>().ok()
        };
        let failed = after("number of failed transactions: ").unwrap_or(0.0);
        if failed > 0.0 {
            return None;
        }
        let (all, mean) = (after("number of transactions actually processed: ")?, after("tps = ")?);
        let first = text.lines().find(|line| line.starts_with("progress: "))?;
        let mut words = first.split_whitespace().skip(1);
        let until: f64 = words.next()?.parse().ok()?;
        let early: f64 = words.nth(1)?.parse::<f64>().ok()? * until;
        let left = all / mean - until;
        let rate = if left > 0.1 { (all - early) / left } else { mean };
        Some(Self { rate, all: all as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "progress: 1.0 s, 1000.0 tps, lat 3.9 ms stddev 1.1, 0 failed\n\
        progress: 2.0 s, 3000.0 tps, lat 3.9 ms stddev 1.1, 0 failed\n\
        transaction type: pair.sql\n\
        number of transactions actually processed: 4000\n\
        number of failed transactions: 0 (0.000%)\n\
        initial connection time = 20.123 ms\n\
        tps = 2000.000000 (without initial connection time)\n";

    #[test]
    fn what_comes_before_the_first_progress_does_not_count() {
        assert_eq!(Ran::read(SAID), Some(Ran { rate: 3000.0, all: 4000 }));
    }

    #[test]
    fn what_failed_is_no_result() {
        assert_eq!(Ran::read(&SAID.replace("transactions: 0", "transactions: 7")), None);
        assert_eq!(Ran::read("pgbench: error: connection refused"), None);
    }
}
