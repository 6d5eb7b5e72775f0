//! What a person reads after the runs.

use std::fmt::Write as _;

use onceward_crash::history::Verdict;

use super::{
    configuration::{Before, Configuration},
    record::POINTS,
    run::Outcome,
    step::Step,
};

/// The points of each configuration.
pub(crate) fn points() -> String {
    let line = |(configuration, points): &(&Configuration, Vec<String>)| {
        format!("{}: {} points: {}", configuration.name, points.len(), points.join(" "))
    };
    POINTS.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How the runs of each configuration ended.
pub(crate) fn outcomes(steps: &[Step], outcomes: &[Outcome]) -> String {
    let mut text = format!("{:22} points  runs    ok  unknown  violations\n", "configuration");
    for (configuration, points) in POINTS.iter() {
        let of_it = steps.iter().zip(outcomes);
        let of_it = of_it.filter(|(step, _)| step.configuration.name == configuration.name);
        let of_it: Vec<&Outcome> = of_it.map(|(_, outcome)| outcome).collect();
        let count = |is: fn(&Verdict) -> bool| of_it.iter().filter(|it| is(&it.verdict)).count();
        let ok = count(|verdict| matches!(verdict, Verdict::Ok(_)));
        let unknown = count(|verdict| *verdict == Verdict::Unknown);
        let violations: usize = of_it.iter().map(|outcome| outcome.complaints.len()).sum();
        let (name, points, runs) = (configuration.name, points.len(), of_it.len());
        let _ = writeln!(text, "{name:22} {points:6} {runs:5} {ok:5} {unknown:8} {violations:11}");
    }
    // What was abandoned by an external effect is unknown whatever happens later.
    let first = |step: &Step| step.configuration.before == Before::Nothing;
    let unknown = steps.iter().zip(outcomes).filter(|(_, it)| it.verdict == Verdict::Unknown);
    let unknown = unknown.filter(|(step, _)| first(step)).map(|(step, _)| step.to_string());
    let _ = writeln!(text, "unknown: {}", unknown.collect::<Vec<_>>().join(" "));
    text
}
