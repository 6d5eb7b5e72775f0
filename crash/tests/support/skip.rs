//! Tests that need something which not every machine has.

use std::io::Write as _;

use onceward_crash::strace::Strace;

use super::{Bench, Kind, worker::Worker};

/// Says something that is seen although the test passes.
pub(crate) fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether a test can be run here; if not, it says so loudly.
pub(crate) fn can_run(test: &str, needs: Result<(), String>) -> bool {
    match needs {
        Ok(()) => true,
        Err(reason) => {
            announce(&format!("SKIPPED: {test}: {reason}"));
            false
        }
    }
}

/// Whether processes can be traced here.
pub(crate) fn strace() -> Result<(), String> {
    let bench = Bench::empty(Kind::External);
    let worker = Worker::start(&bench);
    Strace::record(worker.id(), &bench.trace()).map(Strace::detach)
}
