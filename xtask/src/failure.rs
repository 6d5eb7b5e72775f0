//! The one error of this tool: what happened, and what to do next.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    next: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into() }
    }

    /// The same failure, as the one that stopped a row of steps.
    pub(crate) fn at_step(self, step: &str, elapsed: &str, alone: &str) -> Self {
        let what = format!(
            "the step \"{step}\" failed after {elapsed}; the steps after it did not run.\n{}",
            self.what
        );
        // A step that is one call of cargo has said this already.
        if self.next.contains(alone) {
            return Self { what, next: self.next };
        }
        Self { what, next: format!("{}.\nrepeat this step alone with: {alone}", self.next) }
    }

    /// Several findings of one check, in one message.
    pub(crate) fn of_findings(check: &str, findings: &[String], next: &str) -> Self {
        let list: String = findings.iter().map(|finding| format!("\n  - {finding}")).collect();
        let problems = if findings.len() == 1 { "problem" } else { "problems" };
        Self::new(format!("{check} found {} {problems}:{list}", findings.len()), next)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error: {}\nwhat to do: {}", self.what, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_step_says_once_how_to_repeat_it() {
        let failure = || Failure::new("it broke", "mend it with: cargo fmt");
        assert_eq!(
            failure().at_step("formatting", "1.0 s", "cargo fmt").to_string(),
            "error: the step \"formatting\" failed after 1.0 s; the steps after it did not run.\n\
             it broke\nwhat to do: mend it with: cargo fmt"
        );
        let other = failure().at_step("purity", "1.0 s", "cargo xtask purity").to_string();
        assert!(other.ends_with("cargo fmt.\nrepeat this step alone with: cargo xtask purity"));
    }

    #[test]
    fn tells_what_happened_and_what_to_do() {
        let failure = Failure::of_findings("tidy", &["a".into(), "b".into()], "fix them");
        assert_eq!(
            failure.to_string(),
            "error: tidy found 2 problems:\n  - a\n  - b\nwhat to do: fix them"
        );
    }
}
