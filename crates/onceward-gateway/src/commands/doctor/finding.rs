//! What the doctor has to say, and how much it matters.

use serde::Serialize;

/// How much it matters; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Nothing can be served, or what is promised is not kept.
    Problem,
    /// Data may suffer under conditions that do occur.
    Warning,
    /// Fine, if it is meant.
    Note,
}

impl Severity {
    pub(super) const ALL: [Self; 3] = [Self::Problem, Self::Warning, Self::Note];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A name that stays the same, for machines.
    pub(super) code: &'static str,
    /// The parts that it concerns: `store`, `listen`, or routes as in `match`.
    pub(super) about: Vec<String>,
    pub(super) what: String,
    pub(super) means: String,
    pub(super) mend: String,
}

/// All there is to say; what several routes have in common is said once.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn problem(&mut self, code: &'static str, about: &str, texts: Texts) {
        self.add(Severity::Problem, code, about, texts);
    }

    pub(super) fn warning(&mut self, code: &'static str, about: &str, texts: Texts) {
        self.add(Severity::Warning, code, about, texts);
    }

    pub(super) fn note(&mut self, code: &'static str, about: &str, texts: Texts) {
        self.add(Severity::Note, code, about, texts);
    }

    fn add(&mut self, severity: Severity, code: &'static str, about: &str, texts: Texts) {
        let Texts { what, means, mend } = texts;
        let same = |one: &&mut Finding| {
            one.code == code && one.what == what && one.means == means && one.mend == mend
        };
        match self.0.iter_mut().find(same) {
            Some(one) => one.about.push(about.to_owned()),
            None => {
                let about = vec![about.to_owned()];
                self.0.push(Finding { severity, code, about, what, means, mend });
            }
        }
    }

    /// All of them, the worst first, and else in the order in which they were found.
    pub(super) fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| finding.severity);
        self.0
    }
}

pub(super) struct Texts {
    what: String,
    means: String,
    mend: String,
}

pub(super) fn texts(
    what: impl Into<String>,
    means: impl Into<String>,
    mend: impl Into<String>,
) -> Texts {
    Texts { what: what.into(), means: means.into(), mend: mend.into() }
}
