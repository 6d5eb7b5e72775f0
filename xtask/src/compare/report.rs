//! What `onceward probe --json` prints, read.

use serde_json::Value;

/// One run of the probe.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) profile: String,
    pub(crate) score: Option<u64>,
    pub(crate) checks: Vec<Check>,
}

#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) severity: String,
    pub(crate) outcome: Outcome,
    /// In the words of the probe.
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Fail,
    Skip,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }

    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Pass => "✓",
            Self::Fail => "**✗**",
            Self::Skip => "–",
        }
    }
}

impl Report {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(text)
            .map_err(|error| format!("the probe printed something that is not JSON: {error}"))?;
        let checks =
            document["checks"].as_array().ok_or("the report of the probe has no checks")?;
        let checks = checks.iter().map(Check::read).collect::<Result<_, _>>()?;
        let profile = text_of(&document, "profile")?;
        Ok(Self { profile, score: document["score"].as_u64(), checks })
    }

    pub(crate) fn check(&self, id: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }
}

impl Check {
    fn read(value: &Value) -> Result<Self, String> {
        let outcome = match text_of(value, "result")?.as_str() {
            "pass" => Outcome::Pass,
            "fail" => Outcome::Fail,
            "skip" => Outcome::Skip,
            other => {
                return Err(format!("the probe knows a result that this tool does not: {other}"));
            }
        };
        Ok(Self {
            id: text_of(value, "id")?,
            title: text_of(value, "title")?,
            severity: text_of(value, "severity")?,
            outcome,
            detail: text_of(value, "detail")?,
        })
    }
}

fn text_of(value: &Value, member: &str) -> Result<String, String> {
    let text = value[member].as_str();
    text.map(str::to_owned).ok_or_else(|| format!("the report of the probe has no `{member}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_checks_is_refused() {
        assert!(Report::read(r#"{"profile": "ietf", "score": null}"#).is_err());
        assert!(Report::read("no JSON").is_err());
    }

    #[test]
    fn a_report_may_have_no_score() {
        let report = Report::read(r#"{"profile": "ietf", "score": null, "checks": []}"#).unwrap();
        assert_eq!((report.score, report.profile.as_str()), (None, "ietf"));
    }
}
