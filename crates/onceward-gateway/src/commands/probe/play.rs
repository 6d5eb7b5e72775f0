//! Plays the scenes that the user wants, and judges what their verdicts are worth.

use super::{
    Options,
    catalogue::{self, Severity},
    chain,
    report::Finding,
    scenes::{Scene, Stage, Verdict},
    wire::Unasked,
};
use crate::commands::terminal::tell;

/// How a failure without an answer begins.
const NO_ANSWER: &str = "no answer: ";

/// What fails with another check, for the same reason.
const IMPLIED: [(&str, &[&str], &str); 2] = [
    (
        "once",
        &[
            "mismatch-query",
            "mismatch-tail",
            "json-order",
            "chunked",
            "key-quoted",
            "key-lines",
            "problem-json",
        ],
        "keys change nothing here, so it says nothing",
    ),
    ("mismatch", &["mismatch-query", "mismatch-tail"], "no other request is refused"),
];

/// They pass only if the API refuses something.
const REFUSALS: [&str; 6] =
    ["mismatch", "mismatch-status", "mismatch-query", "mismatch-tail", "key-lines", "problem-json"];

/// Plays a scene, if the profile and the user ask for one of its checks.
pub(super) async fn play(stage: &Stage<'_>, scene: &Scene, options: &Options) -> Vec<Finding> {
    let wanted = wanted(scene, options);
    if wanted.is_empty() {
        return Vec::new();
    }
    let asked = wanted.iter().map(|(id, _)| *id).filter(|id| options.asks(id));
    let asked: Vec<&str> = asked.collect();
    if !options.dry_run && !asked.is_empty() {
        tell(format_args!("asking: {}", asked.join(", ")));
    }
    let _ = (stage.wire.take_seen(), stage.wire.take_unsteady());
    let first = asked.first();
    let verdicts = (scene.play)(stage).await.unwrap_or_else(|trouble| {
        let text = chain(&*trouble);
        let verdict = |id: &'static str| match trouble.is::<Unasked>() {
            true => Verdict::Skip(text.clone()),
            // One trouble is one finding.
            false if first == Some(&id) => Verdict::Fail(format!("{NO_ANSWER}{text}")),
            false => Verdict::Skip(format!("{NO_ANSWER}{text}")),
        };
        wanted.iter().map(|(id, _)| (*id, verdict(id))).collect()
    });
    let requests = stage.wire.take_seen();
    let unsteady = stage.wire.take_unsteady();
    // What was sent again for another reason may have landed again for it.
    let steady = |verdict| match (verdict, &unsteady) {
        (Verdict::Fail(_), Some(reason)) => Verdict::Skip(reason.clone()),
        (verdict, _) => verdict,
    };
    let finding = |(id, verdict): (&'static str, Verdict)| {
        let (_, severity) = *wanted.iter().find(|(wanted, _)| *wanted == id)?;
        Some(Finding {
            check: catalogue::check(id)?,
            severity,
            verdict: steady(verdict),
            requests: requests.clone(),
        })
    };
    verdicts.into_iter().filter_map(finding).collect()
}

/// The checks of a scene that the profile and the user ask for, and the one that all others need: where
/// keys change nothing, they say nothing.
fn wanted(scene: &Scene, options: &Options) -> Vec<(&'static str, Severity)> {
    let severity = |id: &'static str| {
        let severity = catalogue::check(id)?.severity(options.profile)?;
        Some((id, severity))
    };
    let is_wanted = |id: &&&'static str| **id == "once" || options.asks(id);
    scene.ids.iter().filter(is_wanted).filter_map(|id| severity(id)).collect()
}

/// Where keys have no effect, some checks pass or fail by themselves.
pub(super) fn leave_out_what_says_nothing(findings: &mut [Finding]) {
    for (cause, implied, reason) in IMPLIED {
        let is_cause = |finding: &Finding| {
            let is_seen = |text: &str| !text.starts_with(NO_ANSWER);
            finding.check.id == cause
                && matches!(&finding.verdict, Verdict::Fail(text) if is_seen(text))
        };
        if !findings.iter().any(is_cause) {
            continue;
        }
        for finding in &mut *findings {
            let is_empty = match &finding.verdict {
                Verdict::Pass(_) => cause == "once" && !REFUSALS.contains(&finding.check.id),
                Verdict::Fail(_) => implied.contains(&finding.check.id),
                Verdict::Skip(_) => false,
            };
            if is_empty {
                finding.verdict = Verdict::Skip(reason.to_owned());
            }
        }
    }
}
