//! What a run can be told.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum};

/// Measures the SQLite store against an append log, the least that a durable store can do.
///
/// Both get the same work in turns. A pair is a claim plus a completion with an answer of 500 bytes,
/// each answered only after it is synced to disk. Figures of different runs must not be compared:
/// the disk of a shared machine differs by factors from minute to minute. Ratios within one run can.
/// The result is Markdown on standard output; a missed figure is not an error.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask bench store --quick                                does it work? about 20 seconds\n  \
    cargo xtask bench store                                        everything, about 15 minutes\n  \
    cargo xtask bench store --parts pairs --records 1M --in-flight 128\n                                                                 \
    the one ratio that counts most\n  \
    cargo xtask bench store --parts sweep,reopen                   without the side-by-side part\n  \
    cargo xtask bench store --date 2026-11-15 > result.md          ready to paste")]
pub(crate) struct Arguments {
    /// Small sizes and short times: proves that it works and little else
    #[arg(long)]
    quick: bool,

    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    parts: Option<Vec<Part>>,

    /// How many ended records the stores hold at first [default: 0,1M,5M]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS")]
    records: Option<Vec<Count>>,

    /// How many pairs are under way at the same time [default: 1,16,128,1024]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS")]
    in_flight: Option<Vec<Count>>,

    /// How often each store gets its turn; the median counts [default: 5]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// How long each turn takes [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// How many expired records are swept [default: 200k]
    #[arg(long, value_name = "COUNT")]
    sweep_records: Option<Count>,

    /// How many records the file holds whose writer is killed [default: 1M]
    #[arg(long, value_name = "COUNT")]
    reopen_records: Option<Count>,

    /// Where the stores' files go, in a directory that is removed afterwards
    ///
    /// It must be on a disk. Five million records need about 15 GB. If not said, the files go beside
    /// the benchmark's own program, under `target/`.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,

    /// The date to print with the result
    #[arg(long, value_name = "DATE")]
    pub(crate) date: Option<String>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Claims and completions, side by side.
    Pairs,
    /// Look-ups on one core, side by side.
    Lookups,
    /// Deleting expired records while claims are made.
    Sweep,
    /// Opening the file of a process that was killed.
    Reopen,
}

/// What is run: the arguments with everything that they leave open filled in.
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) records: Vec<u64>,
    pub(crate) in_flight: Vec<usize>,
    pub(crate) rounds: u32,
    pub(crate) turn: Duration,
    pub(crate) sweep_records: u64,
    pub(crate) reopen_records: u64,
}

impl Arguments {
    /// Fills in what was not said.
    pub(crate) fn plan(&self) -> Plan {
        let usual = if self.quick { &QUICK } else { &FULL };
        let counts = |given: &Option<Vec<Count>>, usual: &[u64]| {
            let given = given.as_ref().map(|given| given.iter().map(|count| count.0).collect());
            let mut counts: Vec<u64> = given.unwrap_or_else(|| usual.to_vec());
            counts.sort_unstable();
            counts.dedup();
            counts
        };
        let count = |given: Option<Count>, usual: u64| given.map_or(usual, |count| count.0);
        let in_flight = counts(&self.in_flight, usual.in_flight);
        Plan {
            parts: self.parts.clone().unwrap_or_else(|| Part::value_variants().to_vec()),
            records: counts(&self.records, usual.records),
            in_flight: in_flight.into_iter().map(|count| count.max(1) as usize).collect(),
            rounds: self.rounds.unwrap_or(usual.rounds),
            turn: self.seconds.unwrap_or(usual.turn),
            sweep_records: count(self.sweep_records, usual.sweep_records),
            reopen_records: count(self.reopen_records, usual.reopen_records),
        }
    }
}

/// What is run if nothing is said.
struct Usual {
    records: &'static [u64],
    in_flight: &'static [u64],
    rounds: u32,
    turn: Duration,
    sweep_records: u64,
    reopen_records: u64,
}

const FULL: Usual = Usual {
    records: &[0, 1_000_000, 5_000_000],
    in_flight: &[1, 16, 128, 1024],
    rounds: 5,
    turn: Duration::from_secs(1),
    sweep_records: 200_000,
    reopen_records: 1_000_000,
};

const QUICK: Usual = Usual {
    records: &[0, 20_000],
    in_flight: &[1, 128],
    rounds: 1,
    turn: Duration::from_millis(500),
    sweep_records: 20_000,
    reopen_records: 20_000,
};

impl Plan {
    /// Whether a part is to be run.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// A count, like `5M`, `200k` or `1024`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = match text.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1_000),
            None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
        };
        let count =
            digits.replace('_', "").parse().ok().and_then(|count: u64| count.checked_mul(unit));
        count.map(Self).ok_or_else(|| "expected a count like 1024, 200k or 5M".into())
    }
}

/// A length above zero, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a number of seconds above 0, like 2 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units() {
        for (text, count) in
            [("0", 0), ("1024", 1024), ("2_000", 2000), ("200k", 200_000), ("5M", 5_000_000)]
        {
            assert_eq!(text.parse(), Ok(Count(count)));
        }
        for text in ["", "M", "-1", "1.5M", "99999999999999999999", "18446744073709551615k"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_above_zero() {
        assert_eq!(seconds("0.2"), Ok(Duration::from_millis(200)));
        for text in ["0", "-1", "x", "inf", "NaN"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
