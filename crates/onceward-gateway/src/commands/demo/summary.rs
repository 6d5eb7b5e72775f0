//! The numbers at the end, and what they prove.

use std::{fmt, io, process::ExitCode};

use serde::Serialize;

use super::{
    kill::Kill,
    reconciled::Reconciled,
    screen::Screen,
    tally::{Numbers, Story},
    verify::Finding,
};

/// What happened: the lines that people and tests read, and the document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    #[serde(flatten)]
    pub(super) numbers: Numbers,
    #[serde(flatten)]
    pub(super) setting: Setting,
    #[serde(flatten)]
    pub(super) kill_report: Option<KillReport>,
    #[serde(serialize_with = "as_texts")]
    pub(super) findings: Vec<Finding>,
    #[serde(skip)]
    pub(super) unluckiest: Option<Story>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Setting {
    pub(super) seed: u64,
    pub(super) protected: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct KillReport {
    pub(super) kill: Kill,
    pub(super) reconciled: Reconciled,
}

impl Summary {
    pub(super) fn is_as_it_should_be(&self) -> bool {
        self.findings.is_empty()
    }

    /// Success only if nothing was found that must not happen.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.is_as_it_should_be() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    pub(super) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        // Exactly a word, spaces and a number, without colour: programs read them.
        for (name, number) in self.numbers.lines() {
            screen.line(format_args!("{name:<10} {number:>7}"))?;
        }
        screen.line("")?;
        match self.is_as_it_should_be() {
            true => self.show_proof(screen),
            false => self.show_findings(screen),
        }
    }

    fn show_proof(&self, screen: &mut Screen) -> io::Result<()> {
        screen.line(screen.strong(&self.to_string()))?;
        screen.line(screen.good("Not one twice, not one lost."))?;
        screen.line("")?;
        let tick = screen.good("✓");
        screen.line(format_args!("{tick} each tap is in the ledger exactly once, by its key"))?;
        screen.line(format_args!(
            "{tick} each answer, first or replayed, has the very bytes that the upstream made"
        ))?;
        let refused = self.numbers.refused;
        if refused > 0 {
            let text = "keys came back with another amount and were refused with 422";
            screen.line(format_args!("{tick} {refused} {text}"))?;
        }
        if let Some(kill_report) = &self.kill_report {
            kill_report.show(screen)?;
        }
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
        let wrong = match self.numbers.charges.checked_sub(self.numbers.taps) {
            Some(more @ 1..) => format!("{self} {more} too many."),
            _ => self.to_string(),
        };
        screen.line(screen.strong(&wrong))?;
        screen.line("")?;
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_unstable();
        let cross = screen.bad("✗");
        for same in findings.chunk_by(|one, next| one.wrong == next.wrong) {
            let (number, wrong) = (same.len(), same[0].wrong);
            let taps = if number == 1 { "tap was" } else { "taps were" };
            screen.line(format_args!("{cross} {number} {taps} {wrong}\n    {}", same[0]))?;
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

impl KillReport {
    fn show(&self, screen: &mut Screen) -> io::Result<()> {
        let Self { kill, reconciled } = self;
        let tick = screen.good("✓");
        let Kill { gateway, process, next_process, .. } = kill;
        let (after, away) = (kill.after_ms as f64 / 1000.0, kill.away_ms as f64 / 1000.0);
        screen.line(format_args!(
            "{tick} gateway {gateway} was killed after {after:.1} s (process {process}) and back \
             {away:.1} s later (process {next_process})"
        ))?;
        let Reconciled { left_by_the_kill, broken_off, otherwise } = reconciled;
        let others = match otherwise {
            0 => String::new(),
            others => format!(", {others} otherwise"),
        };
        screen.line(format_args!(
            "{tick} {} outcomes were open until a gateway asked the upstream: {left_by_the_kill} \
             left by the\n  kill, {broken_off} whose answer had broken off{others}",
            reconciled.total()
        ))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { taps, requests, lost, charges, .. } = self.numbers;
        write!(
            formatter,
            "{taps} taps, {requests} requests, {lost} of them without an answer: {charges} charges."
        )
    }
}

/// How this program was called, so that what is printed can be pasted.
fn myself() -> String {
    std::env::args().next().unwrap_or_else(|| "onceward".to_owned())
}

fn as_texts<S: serde::Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(findings.iter().map(|finding| format!("{}: {finding}", finding.wrong)))
}

#[cfg(test)]
mod tests {
    use super::{super::verify::Wrong, *};

    fn summary(findings: Vec<Finding>) -> Summary {
        let setting = Setting { seed: 7, protected: true };
        let kill = Kill::example(std::time::SystemTime::now());
        let reconciled = Reconciled { left_by_the_kill: 3, broken_off: 4, otherwise: 0 };
        let kill_report = Some(KillReport { kill, reconciled });
        Summary { numbers: Numbers::default(), setting, kill_report, findings, unluckiest: None }
    }

    #[test]
    fn a_finding_is_shown_and_makes_the_command_fail() {
        let wrong = Wrong::ChargedOften;
        let findings = vec![Finding { wrong, key: "8e03978e".into(), times: 2 }];
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
        let killed =
            "gateway B was killed after 2.5 s (process 11) and back 1.3 s later (process 12)";
        assert!(text.contains(killed), "{text}");
        assert!(
            text.contains("7 outcomes were open until") && text.contains("3 left by"),
            "{text}"
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["kill"]["next_process"], 12);
        assert_eq!(json["reconciled"]["left_by_the_kill"], 3);
    }
}
