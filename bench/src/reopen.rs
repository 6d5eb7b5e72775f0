//! Opening a file whose writer was killed.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use clap::Args;
use onceward::protocol::Found;
use testbed::Process;
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
    let mut command = Command::new(std::env::current_exe()?);
    let victim = Process::start(command.arg("store-victim").arg(path))?;
    victim.stdout.wait_for(WRITING)?;
    std::thread::sleep(after);
    if let Some(status) = victim.ended() {
        return Err(format!("the process to be killed ended by itself: {status}").into());
    }
    victim.kill()?;
    Ok(())
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
