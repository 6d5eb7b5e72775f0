//! How long the gateway takes to serve on a store that has been there before, and how large it is.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::Failure;

/// How often it is started.
const ROUNDS: usize = 20;

/// What was found out about the program of the gateway.
pub(crate) struct Start {
    /// From the call that starts the process to the line that says it listens, sorted.
    pub(crate) took: Vec<Duration>,
    pub(crate) program_bytes: u64,
}

/// Starts the gateway again and again on this store, and kills it when it listens.
pub(crate) fn measure(program: &Path, store: &Path) -> Result<Start, Failure> {
    let mut took = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        took.push(one(program, store)?);
    }
    took.sort_unstable();
    Ok(Start { took, program_bytes: std::fs::metadata(program)?.len() })
}

fn one(program: &Path, store: &Path) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let mut child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--upstream", "http://127.0.0.1:1", "--scope", "global", "--authorize", "none"])
        .arg("--store")
        .arg(format!("sqlite://{}", store.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = child.stderr.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    let mut lines = Vec::new();
    let mut took = None;
    for line in said.map_while(Result::ok) {
        if line.starts_with("listening on ") {
            took = Some(begun.elapsed());
            break;
        }
        lines.push(line);
    }
    child.kill()?;
    child.wait()?;
    took.ok_or_else(|| format!("the gateway does not start: {}", lines.join("; ")).into())
}
