//! Signs of life on standard error while something takes long.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Says how far a long task is and how long it may still take.
pub(crate) struct Progress {
    what: String,
    total: u64,
    started: Instant,
    said: Instant,
    same_line: bool,
}

impl Progress {
    /// Starts a task of so many equal steps.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        let now = Instant::now();
        let same_line = std::io::stderr().is_terminal();
        Self { what: what.into(), total, started: now, said: now, same_line }
    }

    /// Tells that so many steps are done; says it now and then.
    pub(crate) fn at(&mut self, done: u64) {
        let every =
            if self.same_line { Duration::from_millis(500) } else { Duration::from_secs(10) };
        if self.said.elapsed() < every {
            return;
        }
        self.said = Instant::now();
        let left = match done {
            0 => String::new(),
            done => {
                let of_all = self.started.elapsed().as_secs_f64() / done as f64;
                format!(", about {:.0} s left", of_all * self.total.saturating_sub(done) as f64)
            }
        };
        self.say(&format!("{}: {done} of {}{left}", self.what, self.total));
    }

    /// Tells that the task is done.
    pub(crate) fn end(self) {
        self.say(&format!("{}: done in {:.1} s", self.what, self.started.elapsed().as_secs_f64()));
        if self.same_line {
            eprintln!();
        }
    }

    fn say(&self, text: &str) {
        if self.same_line {
            eprint!("\r\u{1b}[K{text}");
            // Nothing depends on whether anybody sees it.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{text}");
        }
    }
}
