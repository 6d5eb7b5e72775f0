//! What was found, for people and for programs.

use std::{
    io::{self, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::{
    catalogue::{Check, Profile, Severity, name},
    scenes::Verdict,
};

const STRONG: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const ODD: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();

#[derive(Serialize)]
pub(super) struct Finding {
    #[serde(flatten)]
    pub(super) check: &'static Check,
    pub(super) severity: Severity,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    pub(super) requests: Vec<String>,
}

pub(super) struct Report {
    pub(super) url: String,
    pub(super) profile: Profile,
    pub(super) findings: Vec<Finding>,
    pub(super) sent: u32,
    pub(super) took: Duration,
    pub(super) counted: String,
}

#[derive(Serialize)]
struct Document<'a> {
    url: &'a str,
    profile: Profile,
    score: Option<u32>,
    requests: u32,
    counted: &'a str,
    checks: &'a [Finding],
}

impl Finding {
    fn result(&self) -> (&'static str, &str) {
        match &self.verdict {
            Verdict::Pass(detail) => ("pass", detail),
            Verdict::Fail(detail) => ("fail", detail),
            Verdict::Skip(detail) => ("skip", detail),
        }
    }
}

impl Report {
    /// How much of what could be asked is as it should be, in percent, by weight.
    pub(super) fn score(&self) -> Option<u32> {
        let weight = |wanted: &str| -> u32 {
            self.of(wanted).iter().map(|finding| finding.severity.weight()).sum()
        };
        let (passed, failed) = (weight("pass"), weight("fail"));
        // Rounded down: only what has no fault has 100.
        (passed * 100).checked_div(passed + failed)
    }

    pub(super) fn worst(&self) -> Option<Severity> {
        self.of("fail").iter().map(|finding| finding.severity).max()
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&Document {
            url: &self.url,
            profile: self.profile,
            score: self.score(),
            requests: self.sent,
            counted: &self.counted,
            checks: &self.findings,
        })
    }

    pub(super) fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { url, profile, sent, took, counted, .. } = self;
        writeln!(out, "{STRONG}{url}, profile {}{STRONG:#}", name(profile))?;
        writeln!(out, "{sent} requests in {:.1} s; {counted}\n", took.as_secs_f64())?;
        let mut failures = self.of("fail");
        failures.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for finding in failures {
            show_failure(out, finding)?;
        }
        for finding in self.of("pass") {
            let (Check { id, title, .. }, detail) = (finding.check, finding.result().1);
            writeln!(out, "{GOOD}pass{GOOD:#}  {id:<17} {title}: {detail}")?;
        }
        for (reason, ids) in by_reason(&self.of("skip")) {
            writeln!(out, "{ODD}skip{ODD:#}  {}: {reason}", ids.join(", "))?;
        }
        writeln!(out, "\n{STRONG}{}{STRONG:#}", self.conclusion())
    }

    fn of(&self, wanted: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.result().0 == wanted).collect()
    }

    fn conclusion(&self) -> String {
        let failures = self.of("fail");
        let all = [Severity::Critical, Severity::Major, Severity::Minor, Severity::Info];
        let found = all.map(|severity| {
            let count = failures.iter().filter(|finding| finding.severity == severity).count();
            (count > 0).then(|| format!("{count} {severity}"))
        });
        let found = match failures[..] {
            [] => "nothing found".to_owned(),
            _ => found.into_iter().flatten().collect::<Vec<_>>().join(", "),
        };
        let skipped = self.of("skip").len();
        let asked = format!("of {} checks", self.findings.len() - skipped);
        let asked = match skipped {
            0 => asked,
            _ => format!("{asked}; {skipped} could not be asked"),
        };
        match self.score() {
            Some(score) => format!("{score} of 100: {found} ({asked})"),
            None => {
                format!("no score, because nothing of weight could be asked: {found} ({asked})")
            }
        }
    }
}

fn by_reason<'a>(skipped: &[&'a Finding]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in skipped {
        let (reason, id) = (finding.result().1, finding.check.id);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, ids)) => ids.push(id),
            None => reasons.push((reason, vec![id])),
        }
    }
    reasons
}

fn show_failure(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    let (check, detail) = (finding.check, finding.result().1);
    let (title, severity) = (check.title, finding.severity);
    writeln!(out, "{BAD}FAIL  {title} ({severity}){BAD:#}  [{}]", check.id)?;
    writeln!(out, "      {detail}")?;
    writeln!(out, "      Harm: {}", check.harm)?;
    writeln!(out, "      Mend: {}", check.fix)?;
    let mut last = "";
    for request in &finding.requests {
        match request == last {
            true => writeln!(out, "      $ # the same again")?,
            false => writeln!(out, "      $ {request}")?,
        }
        last = request;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::super::{
        catalogue::CHECKS,
        scenes::{fail, pass, skip},
    };
    use super::*;

    fn report(verdicts: Vec<Verdict>) -> Report {
        let severities = [Severity::Critical, Severity::Major, Severity::Info];
        let findings = verdicts.into_iter().zip(severities).zip(&CHECKS);
        let findings = findings.map(|((verdict, severity), check)| Finding {
            check,
            severity,
            verdict,
            requests: Vec::new(),
        });
        Report {
            url: "http://h/".into(),
            profile: Profile::Onceward,
            findings: findings.collect(),
            sent: 3,
            took: Duration::from_secs(1),
            counted: String::new(),
        }
    }

    #[test]
    fn the_score_goes_by_weight_and_leaves_out_what_was_not_asked() {
        assert_eq!(report(vec![pass(""), fail(""), fail("")]).score(), Some(66));
        assert_eq!(report(vec![skip(""), pass(""), skip("")]).score(), Some(100));
        assert_eq!(report(vec![skip(""), skip(""), pass("")]).score(), None);
    }

    #[test]
    fn the_end_says_how_much_was_not_asked() {
        let end = |verdicts| report(verdicts).conclusion();
        assert_eq!(end(vec![pass("")]), "100 of 100: nothing found (of 1 checks)");
        assert_eq!(
            end(vec![pass(""), fail(""), skip("")]),
            "66 of 100: 1 major (of 2 checks; 1 could not be asked)"
        );
    }

    #[test]
    fn the_worst_counts() {
        assert_eq!(report(vec![pass(""), fail(""), fail("")]).worst(), Some(Severity::Major));
        assert_eq!(report(vec![pass(""), pass(""), skip("")]).worst(), None);
    }
}
