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
    fn tells_what_happened_and_what_to_do() {
        let failure = Failure::of_findings("tidy", &["a".into(), "b".into()], "fix them");
        assert_eq!(
            failure.to_string(),
            "error: tidy found 2 problems:\n  - a\n  - b\nwhat to do: fix them"
        );
    }
}
