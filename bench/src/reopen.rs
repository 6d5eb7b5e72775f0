//! Opening a file whose writer was killed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use clap::Args;
use onceward::Found;
use tokio::runtime::Runtime;

use crate::{
    Failure,
    load::{Deed, Load, Work},
    options::Plan,
    store,
    subject::open_sqlite,
};

/// How many pairs the killed process has under way.
pub(crate) const IN_FLIGHT: usize = 128;

/// What the killed process says when it writes.
const WRITING: &str = "writing";

/// How long it took to open the file, each time after another process was killed.
pub(crate) struct Reopen {
    /// How many records the file held at first.
    pub(crate) records: u64,
    /// From the call until a record was read.
    pub(crate) took: Vec<Duration>,
}

/// Kills a writing process so many times, and opens its file after each.
pub(crate) fn run(
    runtime: &Runtime,
    path: &Path,
    records: u64,
    plan: &Plan,
) -> Result<Reopen, Failure> {
    let first = Work::default().id(0);
    let mut took = Vec::new();
    for _ in 0..plan.rounds {
        kill_a_writer(path, plan.turn)?;
        let begin = Instant::now();
        let opened = open_sqlite(path)?;
        let found = runtime.block_on(opened.get(&first))?;
        took.push(begin.elapsed());
        if records > 0 && !matches!(found, Found::Record(_)) {
            return Err(format!("a record is gone after a kill: {found:?}").into());
        }
    }
    eprintln!("reopen: done");
    Ok(Reopen { records, took })
}

fn kill_a_writer(path: &Path, after: Duration) -> Result<(), Failure> {
    let mut child = Killed(
        Command::new(std::env::current_exe()?)
            .arg("store-victim")
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let output = child.0.stdout.take().ok_or("the process to be killed has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != WRITING {
        return Err("the process to be killed did not start to write".into());
    }
    std::thread::sleep(after);
    if let Some(status) = child.0.try_wait()? {
        return Err(format!("the process to be killed ended by itself: {status}").into());
    }
    Ok(())
}

/// A process that does not outlive this value, whatever happens.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails only if it has ended already; both calls are harmless then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes to a file until it is killed.
#[derive(Args)]
pub(crate) struct VictimArguments {
    /// The store's file
    path: PathBuf,
}

/// What the child process does.
#[expect(clippy::print_stdout, reason = "the parent waits for this line")]
pub(crate) fn be_the_victim(arguments: &VictimArguments) -> Result<(), Failure> {
    /// Nobody may be there to kill it; then it ends by itself.
    const AT_MOST: Duration = Duration::from_secs(60);

    let runtime = store::runtime()?;
    let opened = open_sqlite(&arguments.path)?;
    // Numbers that no other process of this run takes.
    let numbers = Arc::new(AtomicU64::new(fastrand::u64(1 << 40..1 << 60)));
    let load = Load::start(&runtime, &opened, &numbers, IN_FLIGHT, Deed::Pair);
    while load.done() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{WRITING}");
    std::io::stdout().flush()?;
    std::thread::sleep(AT_MOST);
    load.stop(&runtime)?;
    Ok(())
}
