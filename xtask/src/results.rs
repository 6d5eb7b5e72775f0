//! Reads what the test harness prints, so that "it passed" is a number and not an absence of errors.

use std::ops::AddAssign;

/// How many tests ran and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let summary = line.trim_start().strip_prefix("test result:")?;
        let count = |word: &str| {
            let part = summary.split(';').map(str::trim_end).find_map(|p| p.strip_suffix(word))?;
            part.split_whitespace().last()?.parse().ok()
        };
        Some(Self {
            passed: count(" passed")?,
            failed: count(" failed")?,
            ignored: count(" ignored")?,
        })
    }

    /// How many tests did something.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Collects the counts and the failed tests of one run, line by line.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) counts: Counts,
    pub(crate) failed_tests: Vec<String>,
    /// How many `test result:` lines there were: none means that the program never got to its end.
    pub(crate) results: usize,
}

impl Transcript {
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(counts) = Counts::of_line(line) {
            self.counts += counts;
            self.results += 1;
        } else if let Some(name) = failed_test(line) {
            self.failed_tests.push(name.to_owned());
        }
    }
}

/// The name in `test some::name ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read() {
        let line = "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 7 filtered out; finished in 0.03s";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 1, ignored: 3 }));
    }

    #[test]
    fn a_coloured_result_line_is_read() {
        let line = "test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 2, failed: 0, ignored: 0 }));
    }

    #[test]
    fn other_lines_are_not_results() {
        for line in ["test result: ok.", "running 3 tests", "", "test a ... ok", "result: 1 passed"]
        {
            assert_eq!(Counts::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_transcript_adds_up_results_and_names_failures() {
        let mut transcript = Transcript::default();
        for line in [
            "running 2 tests",
            "test claim::tests::ends_once ... FAILED",
            "test replays - should panic ... ok",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            transcript.read(line);
        }
        assert_eq!(transcript.counts, Counts { passed: 5, failed: 1, ignored: 2 });
        assert_eq!(transcript.failed_tests, ["claim::tests::ends_once"]);
        assert_eq!(transcript.results, 2);
    }
}
