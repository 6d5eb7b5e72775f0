//! Instructions and allocations of a request, counted from outside by a tool, if there is one.

use std::process::{Command, Stdio};

use clap::Args;

use crate::{
    Failure,
    requests::{Bench, Kind},
};

/// What does the counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `perf stat`: what the processor counts.
    Perf,
    /// `valgrind --tool=callgrind`: what a simulated processor counts.
    Callgrind,
}

impl Tool {
    /// The first that works on this machine; otherwise why none does.
    pub(crate) fn find() -> Result<Self, String> {
        let mut reasons = Vec::new();
        for (name, tool) in [("perf stat", Self::Perf), ("valgrind", Self::Callgrind)] {
            match tool.count(Kind::BareUnkeyed, 1) {
                Ok(_) => return Ok(tool),
                Err(reason) => reasons.push(format!("{name}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// The instructions of one request: what twice as many more cost, so that the start cancels out.
    pub(crate) fn instructions(self, kind: Kind, requests: u64) -> Result<f64, Failure> {
        let [few, many] = [requests, 3 * requests].map(|requests| self.count(kind, requests));
        Ok((many? as f64 - few? as f64) / (2 * requests) as f64)
    }

    /// The instructions of a process that makes so many requests.
    fn count(self, kind: Kind, requests: u64) -> Result<u64, String> {
        let mut command = match self {
            Self::Perf => {
                let mut command = Command::new("perf");
                command.args(["stat", "-x,", "-e", "instructions:u", "--"]);
                command
            }
            Self::Callgrind => {
                let mut command = Command::new("valgrind");
                command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
                command
            }
        };
        let told = told(&mut command, kind, requests)?;
        self.found_in(&told).ok_or_else(|| "it does not count instructions here".to_owned())
    }

    fn found_in(self, told: &str) -> Option<u64> {
        match self {
            Self::Perf => {
                let line = told.lines().find(|line| line.contains("instructions"))?;
                line.split(',').next()?.parse().ok()
            }
            Self::Callgrind => number_after(told, "Collected : "),
        }
    }
}

/// How often one request allocates, as valgrind counts it; `None` without valgrind.
pub(crate) fn allocations(kind: Kind, requests: u64) -> Option<f64> {
    let count = |requests| {
        let mut command = Command::new("valgrind");
        // The fastest that still counts: nothing is checked.
        command.args(["--tool=memcheck", "--undef-value-errors=no", "--leak-check=no"]);
        number_after(&told(&mut command, kind, requests).ok()?, "total heap usage: ")
    };
    let (few, many) = (count(requests)?, count(3 * requests)?);
    Some((many as f64 - few as f64) / (2 * requests) as f64)
}

/// What a tool says about this program when it makes so many requests.
fn told(command: &mut Command, kind: Kind, requests: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let kind = clap::ValueEnum::to_possible_value(&kind).expect("no kind is hidden");
    command.arg(program).args(["layer-requests", kind.get_name(), &requests.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stderr).into_owned()),
        false => Err(format!("it ended with {}", output.status)),
    }
}

/// A number with commas between thousands, after these words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    rest.split_whitespace().next()?.replace(',', "").parse().ok()
}

/// Makes requests and says nothing.
#[derive(Args)]
pub(crate) struct RequestsArguments {
    /// What is asked of which service
    kind: Kind,
    /// How often
    requests: usize,
}

/// What the child process does.
pub(crate) fn make_requests(arguments: &RequestsArguments) -> Result<(), Failure> {
    /// How many are made before they are sent: all at once would measure the making of memory.
    const AT_ONCE: usize = 100;

    let bench = Bench::new()?;
    let mut left = arguments.requests;
    while left > 0 {
        bench.turn(arguments.kind, left.min(AT_ONCE))?;
        left -= left.min(AT_ONCE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_what_tools_say() {
        let perf = "123456,,instructions:u,812345,100.00,,\n";
        assert_eq!(Tool::Perf.found_in(perf), Some(123_456));
        assert_eq!(Tool::Perf.found_in("<not supported>,,instructions:u,0,100.00,,\n"), None);
        let callgrind = "==7== Events    : Ir\n==7== Collected : 8754321\n==7==\n";
        assert_eq!(Tool::Callgrind.found_in(callgrind), Some(8_754_321));
        let memcheck = "==7==   total heap usage: 1,234 allocs, 1,200 frees, 5 bytes allocated\n";
        assert_eq!(number_after(memcheck, "total heap usage: "), Some(1234));
    }
}
