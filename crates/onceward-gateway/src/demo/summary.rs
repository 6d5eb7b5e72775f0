//! The numbers at the end, and what they prove.

use std::{fmt, io, process::ExitCode};

use serde::Serialize;

use super::{
    payments::Payments,
    screen::Screen,
    tally::{Story, Tally},
    verify::Finding,
};

/// What happened: the lines that people and tests read, and the document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) taps: u64,
    pub(super) requests: u64,
    /// Requests whose answer never reached the client.
    pub(super) lost: u64,
    /// 409: the first request was still running.
    pub(super) conflicts: u64,
    /// 422: the key was used for another amount.
    pub(super) refused: u64,
    /// Answers that were sent again.
    pub(super) replays: u64,
    /// How often the handler ran.
    pub(super) executions: u64,
    pub(super) charges: u64,
    /// Taps whose client restarted.
    pub(super) restarts: u64,
    #[serde(flatten)]
    pub(super) setting: Setting,
    #[serde(serialize_with = "as_texts")]
    pub(super) findings: Vec<Finding>,
    #[serde(skip)]
    pub(super) unluckiest: Option<Story>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Setting {
    pub(super) seed: u64,
    pub(super) protected: bool,
}

impl Summary {
    pub(super) fn of(
        tally: &Tally,
        payments: &Payments,
        setting: Setting,
        findings: Vec<Finding>,
    ) -> Self {
        Self {
            taps: tally.taps.get(),
            requests: tally.requests.get(),
            lost: tally.lost.get(),
            conflicts: tally.conflicts.get(),
            refused: tally.refused.get(),
            replays: tally.replays.get(),
            executions: payments.executions(),
            charges: payments.charges(),
            restarts: tally.restarts.get(),
            setting,
            findings,
            unluckiest: tally.unluckiest_story(),
        }
    }

    pub(super) fn is_as_it_should_be(&self) -> bool {
        self.findings.is_empty()
    }

    /// Success only if nothing was found that must not happen.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.is_as_it_should_be() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    pub(super) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        // Exactly a word, spaces and a number, without colour: programs read them.
        for (name, number) in self.lines() {
            screen.line(format_args!("{name:<10} {number:>7}"))?;
        }
        screen.line("")?;
        match self.is_as_it_should_be() {
            true => self.show_proof(screen),
            false => self.show_findings(screen),
        }
    }

    fn lines(&self) -> [(&'static str, u64); 8] {
        [
            ("taps", self.taps),
            ("requests", self.requests),
            ("lost", self.lost),
            ("conflicts", self.conflicts),
            ("refused", self.refused),
            ("replays", self.replays),
            ("executions", self.executions),
            ("charges", self.charges),
        ]
    }

    fn show_proof(&self, screen: &mut Screen) -> io::Result<()> {
        screen.line(screen.strong(&self.to_string()))?;
        screen.line(screen.good("Not one twice, not one lost."))?;
        screen.line("")?;
        let tick = screen.good("✓");
        screen.line(format_args!("{tick} each tap is in the ledger exactly once, by its key"))?;
        screen.line(format_args!(
            "{tick} each answer, first or replayed, has the very bytes that the handler sent"
        ))?;
        screen.line(format_args!(
            "{tick} each key that came back with another amount was refused with 422"
        ))?;
        if let Some(Story { requests, steps, .. }) = &self.unluckiest {
            screen.line("")?;
            screen.line(format_args!(
                "The unluckiest tap needed {requests} requests, for one charge:"
            ))?;
            for part in screen.path(steps).chunks(4) {
                screen.line(format_args!("  → {}", part.join(" → ")))?;
            }
        }
        screen.line("")?;
        let myself = myself();
        screen.line(format_args!("Is it rigged? Without Onceward: {myself} demo --unprotected"))
    }

    fn show_findings(&self, screen: &mut Screen) -> io::Result<()> {
        let wrong = match self.charges.checked_sub(self.taps) {
            Some(1..) => format!("{self} {} too many.", self.charges - self.taps),
            _ => self.to_string(),
        };
        screen.line(screen.strong(&wrong))?;
        screen.line("")?;
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_unstable();
        let cross = screen.bad("✗");
        for same in findings.chunk_by(|one, next| one.kind() == next.kind()) {
            let (number, kind) = (same.len(), same[0].kind());
            let taps = if number == 1 { "tap was" } else { "taps were" };
            screen.line(format_args!("{cross} {number} {taps} {kind}\n    {}", same[0]))?;
        }
        screen.line("")?;
        match self.setting.protected {
            true => screen.line(format_args!(
                "This must not happen. Please report it, and that it was `demo --seed {}`.",
                self.setting.seed
            )),
            false => screen.line(format_args!("With Onceward: {} demo", myself())),
        }
    }
}

/// The whole story in one sentence.
impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taps, requests, lost, charges, .. } = self;
        write!(
            formatter,
            "{taps} taps, {requests} requests, {lost} answers lost: {charges} charges."
        )
    }
}

/// How this program was called, so that what is printed can be pasted.
fn myself() -> String {
    std::env::args().next().unwrap_or_else(|| "onceward".to_owned())
}

fn as_texts<S: serde::Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(findings.iter().map(|finding| format!("{}: {finding}", finding.kind())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(findings: Vec<Finding>) -> Summary {
        Summary::of(
            &Tally::default(),
            &Payments::default(),
            Setting { seed: 7, protected: true },
            findings,
        )
    }

    #[test]
    fn a_finding_is_shown_and_makes_the_command_fail() {
        let findings = vec![Finding::ChargedOften { key: "8e03978e".into(), times: 2 }];
        let summary = summary(findings);
        assert_eq!(summary.exit_code(), ExitCode::FAILURE);
        let text = Screen::text_of(|screen| summary.show(screen));
        assert!(
            text.contains("✗ 1 tap was charged more than once\n    8e03978e 2 times"),
            "{text}"
        );
        assert!(!text.contains("Not one twice"), "{text}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["findings"][0], "charged more than once: 8e03978e 2 times");
    }

    #[test]
    fn nothing_found_is_success() {
        let summary = summary(Vec::new());
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
        let text = Screen::text_of(|screen| summary.show(screen));
        assert!(text.contains("0 charges.\nNot one twice, not one lost."), "{text}");
    }
}
