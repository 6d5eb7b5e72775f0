//! What is wrong with a configuration, where, and what to write instead.

use std::{collections::BTreeSet, fmt, sync::Arc};

/// Something to tell about a configuration. It never quotes a value that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mistake {
    /// First, so that mistakes sort by line.
    pub(crate) place: SourceLocation,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
}

impl Mistake {
    /// One that is all there is to say.
    pub(crate) fn error(place: SourceLocation, message: String, help: &str) -> Self {
        Self { place, severity: Severity::Error, message, help: Some(help.to_owned()) }
    }
}

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceLocation {
    /// In no line of the file: something that is not there.
    File(Arc<str>),
    /// Counted from 1, the column in characters.
    Line { file: Arc<str>, line: usize, column: usize },
    /// The variable of this name.
    Environment(String),
    /// The argument of this name, as `--listen`.
    Argument(&'static str),
    /// Nowhere: there is no file.
    CommandLine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Nothing is served with it.
    Error,
    /// Probably not what was meant.
    Warning,
    /// Fine, if it is meant.
    Note,
}

impl Severity {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => formatter.write_str(file),
            Self::Line { file, line, column } => write!(formatter, "{file}:{line}:{column}"),
            Self::Environment(name) => write!(formatter, "environment {name}"),
            Self::Argument(name) => write!(formatter, "argument {name}"),
            Self::CommandLine => formatter.write_str("command line"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, severity, message, help } = self;
        write!(formatter, "{place}: {}: {message}", severity.as_str())?;
        match help {
            Some(help) => write!(formatter, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Collects all there is to say; what several routes take from one line is said once.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    found: BTreeSet<Mistake>,
    errors: usize,
}

impl Mistakes {
    pub(crate) fn error(
        &mut self,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.errors += 1;
        self.add(place, Severity::Error, message.into(), Some(help.into()));
    }

    pub(crate) fn warning(
        &mut self,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(place, Severity::Warning, message.into(), Some(help.into()));
    }

    pub(crate) fn note(&mut self, place: &SourceLocation, message: impl Into<String>) {
        self.add(place, Severity::Note, message.into(), None);
    }

    fn add(
        &mut self,
        place: &SourceLocation,
        severity: Severity,
        message: String,
        help: Option<String>,
    ) {
        self.found.insert(Mistake { place: place.clone(), severity, message, help });
    }

    /// How often something was refused, also in the same words.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// All of them, by line.
    pub(crate) fn into_sorted(self) -> Vec<Mistake> {
        self.found.into_iter().collect()
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let distance = |known: &str| strsim::osa_distance(&lower, &known.to_lowercase());
    let (distance, known) =
        known.into_iter().map(|known| (distance(known), known)).min_by_key(|(far, _)| *far)?;
    // A third of the letters may be wrong: more is another word.
    (distance <= known.chars().count().div_ceil(3)).then_some(known)
}

/// Words as a sentence lists them.
pub(crate) fn listed(words: &[&str]) -> String {
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Mistakes, SourceLocation, nearest};

    #[test]
    fn slips_of_the_finger_are_recognised_and_other_words_are_not() {
        let known = ["retain", "retry_window", "unknown_retain", "lease"];
        for (word, meant) in [
            ("retian", Some("retain")),
            ("RETAIN", Some("retain")),
            ("retry-window", Some("retry_window")),
            ("leas", Some("lease")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn they_are_sorted_by_line_and_said_once() {
        let at = |line| SourceLocation::Line { file: "f".into(), line, column: 1 };
        let mut mistakes = Mistakes::default();
        mistakes.note(&SourceLocation::CommandLine, "z");
        for line in [10, 9, 10] {
            mistakes.error(&at(line), "m", "h");
        }
        mistakes.error(&SourceLocation::File("f".into()), "a", "h");
        let places =
            mistakes.into_sorted().iter().map(|one| one.place.to_string()).collect::<Vec<_>>();
        assert_eq!(places, ["f", "f:9:1", "f:10:1", "command line"]);
    }
}
