//! Writes `docs/comparison.md`: what the probe said, and nothing else.

use std::fmt::Write as _;

use super::report::{Check, Outcome, Report};

/// All that the document says.
pub(crate) struct Comparison {
    pub(crate) date: Option<String>,
    pub(crate) made_with: Vec<String>,
    /// The first has a table; the others are told where they differ from it.
    pub(crate) profiles: Vec<String>,
    /// What the probe sends.
    pub(crate) data: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) absent: Vec<Absent>,
}

/// A peer that was probed.
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) about: String,
    /// Its source, as a link from `docs`.
    pub(crate) service: String,
    pub(crate) versions: Vec<String>,
    /// In the order of the profiles.
    pub(crate) reports: Vec<Report>,
}

/// A peer that could not be probed.
pub(crate) struct Absent {
    pub(crate) title: String,
    pub(crate) reason: String,
}

pub(crate) fn written(comparison: &Comparison) -> String {
    let mut sections = vec![introduction(comparison), scores(comparison), table(comparison)];
    sections.extend(comparison.columns.iter().map(details));
    sections.extend(absent(comparison));
    sections.join("\n")
}

fn introduction(comparison: &Comparison) -> String {
    let date = comparison.date.as_deref().unwrap_or("a day that is not known");
    let (made_with, profiles) = (comparison.made_with.join(", "), comparison.profiles.join("|"));
    let data = &comparison.data;
    format!(
        "\
# Comparison: what `onceward probe` says about others

Written by `cargo xtask compare` on {date}; not edited by hand.
Made with {made_with}.

```console
$ cargo xtask compare
```

The command installs each peer from its registry at the versions named below, starts it on loopback, runs
[`onceward probe`](probe.md) on it and ends it. Every peer is started anew for every profile.

The service is the same everywhere, as far as the peer lets it be: `POST /charges` takes `cents` and `to`, and
after 20 ms answers 201 with JSON, a `Location` and two `Link` lines; 422 without `cents`; 401 without a
credential. `GET /count` says how many charges were made. The probe is told:

```console
$ onceward probe URL/charges --data '{data}' --profile {profiles} --json \\
    --credential 'X-Api-Key: acme' --credential 'X-Api-Key: umbrella' \\
    --count-url URL/count --count-json /total
```

The checks are those of Onceward's own probe, and the profile `onceward` is what Onceward promises; other
projects promise other things. What a check asks and why: `onceward probe --list` and its findings. A race is not
lost every time, so `concurrent` may pass in one run and fail in the next.
"
    )
}

fn scores(comparison: &Comparison) -> String {
    let mut text = String::from(
        "## Scores\n\nOf 100, by weight of what could be asked; skipped checks do not count. The profiles \
         are described\nin [probe.md](probe.md#what-you-tell-it).\n\n",
    );
    row(&mut text, "peer", comparison.profiles.iter().map(|name| format!("`{name}`")));
    rule(&mut text, comparison.profiles.len());
    for column in &comparison.columns {
        let score = |report: &Report| report.score.map_or("none".into(), |score| score.to_string());
        row(&mut text, &column.title, column.reports.iter().map(score));
    }
    text
}

fn table(comparison: &Comparison) -> String {
    let Some(profile) = comparison.profiles.first() else { return String::new() };
    let mut text = format!("## Checks, profile `{profile}`\n\n");
    let [pass, fail, skip] = [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(Outcome::mark);
    let _ = writeln!(
        text,
        "{pass} pass, {fail} fail, {skip} skip: it could not be asked, for a reason that is given below.\n"
    );
    let titles = comparison.columns.iter().map(|column| column.title.clone());
    row(&mut text, "check", ["severity".to_owned()].into_iter().chain(titles));
    rule(&mut text, comparison.columns.len() + 1);
    let first = |column: &Column| column.reports.first().cloned();
    let reports: Vec<Option<Report>> = comparison.columns.iter().map(first).collect();
    for check in reports.iter().flatten().next().map_or(&[][..], |report| &report.checks) {
        let mark = |report: &Option<Report>| {
            let found = report.as_ref().and_then(|report| report.check(&check.id));
            found.map_or(String::new(), |check| check.outcome.mark().to_owned())
        };
        let marks = reports.iter().map(mark);
        let name = format!("{} (`{}`)", check.title, check.id);
        row(&mut text, &name, [check.severity.clone()].into_iter().chain(marks));
    }
    text
}

fn row(text: &mut String, first: &str, others: impl Iterator<Item = String>) {
    let cells: Vec<String> = [first.to_owned()].into_iter().chain(others).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | ").replace('\n', " "));
}

fn rule(text: &mut String, columns: usize) {
    let _ = writeln!(text, "|---{}|", "|:-:".repeat(columns));
}

fn details(column: &Column) -> String {
    let Column { title, about, service, versions, reports } = column;
    let mut text = format!(
        "## {title}\n\n{about}\n[Its source]({service}). Versions: {}.\n",
        versions.join(", ")
    );
    let Some((first, others)) = reports.split_first() else { return text };
    let of = |outcome: Outcome| -> Vec<&Check> {
        first.checks.iter().filter(|check| check.outcome == outcome).collect()
    };
    let (failed, skipped) = (of(Outcome::Fail), of(Outcome::Skip));
    match failed.is_empty() {
        true => text.push_str("\nNo check failed.\n"),
        false => text.push_str("\nFailed:\n\n"),
    }
    for Check { id, severity, detail, .. } in failed {
        let _ = writeln!(text, "- `{id}` ({severity}): {}", verbatim(detail));
    }
    if !skipped.is_empty() {
        text.push_str("\nSkipped:\n\n");
    }
    for (detail, ids) in by_detail(&skipped) {
        let _ = writeln!(text, "- {}: {}", ids.join(", "), verbatim(detail));
    }
    for other in others {
        text.push_str(&differences(first, other));
    }
    text
}

/// Which checks have the same words, in the order in which they were asked.
fn by_detail<'a>(checks: &[&'a Check]) -> Vec<(&'a str, Vec<String>)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for check in checks {
        let id = format!("`{}`", check.id);
        match groups.iter_mut().find(|(detail, _)| *detail == check.detail) {
            Some((_, ids)) => ids.push(id),
            None => groups.push((&check.detail, vec![id])),
        }
    }
    groups
}

fn differences(first: &Report, other: &Report) -> String {
    let differs =
        |check: &&Check| first.check(&check.id).is_none_or(|same| same.outcome != check.outcome);
    let line = |check: &Check| {
        let before = first.check(&check.id).map_or("not asked", |same| same.outcome.word());
        let Check { id, outcome, detail, .. } = check;
        format!("- `{id}`: {} (there {before}): {}\n", outcome.word(), verbatim(detail))
    };
    let lines: String = other.checks.iter().filter(differs).map(line).collect();
    match lines.is_empty() {
        true => String::new(),
        false => {
            format!("\nIn profile `{}`, unlike `{}`:\n\n{lines}", other.profile, first.profile)
        }
    }
}

fn absent(comparison: &Comparison) -> Option<String> {
    let line = |absent: &Absent| format!("- {}: {}\n", absent.title, verbatim(&absent.reason));
    let lines: String = comparison.absent.iter().map(line).collect();
    (!lines.is_empty()).then(|| format!("## Not installed or not started\n\n{lines}"))
}

/// As code, so that nothing in it is taken for Markdown.
fn verbatim(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.contains('`') {
        true => format!("`` {line} ``"),
        false => format!("`{line}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCEWARD: &str = r#"{"profile": "onceward", "score": 66, "checks": [
        {"id": "once", "title": "A retry does not land again", "severity": "critical",
         "result": "pass", "detail": "it landed once"},
        {"id": "mismatch", "title": "Another request is refused", "severity": "critical",
         "result": "fail", "detail": "it got the answer of the first: 201 <b>`x`</b>"},
        {"id": "marker", "title": "A replay says so", "severity": "minor",
         "result": "fail", "detail": "the replay has no Idempotent-Replayed"},
        {"id": "scope", "title": "Two callers", "severity": "critical",
         "result": "skip", "detail": "give --credential"},
        {"id": "gate", "title": "Not let in", "severity": "major",
         "result": "skip", "detail": "give --credential"}]}"#;
    const IETF: &str = r#"{"profile": "ietf", "score": null, "checks": [
        {"id": "once", "title": "A retry does not land again", "severity": "critical",
         "result": "fail", "detail": "it landed 2 times"},
        {"id": "scope", "title": "Two callers", "severity": "critical",
         "result": "skip", "detail": "give --credential"}]}"#;

    fn comparison() -> Comparison {
        let column = Column {
            title: "Some peer".into(),
            about: "With defaults.".into(),
            service: "../xtask/compare/peer/service.mjs".into(),
            versions: vec!["peer 1.2.3".into(), "node 20.1.0".into()],
            reports: [ONCEWARD, IETF].map(|text| Report::read(text).unwrap()).to_vec(),
        };
        Comparison {
            date: Some("2026-11-16".into()),
            made_with: vec!["onceward 0.1.0".into()],
            profiles: vec!["onceward".into(), "ietf".into()],
            data: "{}".into(),
            columns: vec![column],
            absent: vec![Absent { title: "Other".into(), reason: "`npm` failed".into() }],
        }
    }

    fn has(text: &str, wanted: &str) {
        assert!(text.contains(wanted), "{wanted:?} is not in:\n{text}");
    }

    #[test]
    fn scores_and_marks_are_in_tables() {
        let text = written(&comparison());
        has(&text, "on 2026-11-16; not edited by hand.\nMade with onceward 0.1.0.");
        has(&text, "| peer | `onceward` | `ietf` |\n|---|:-:|:-:|\n| Some peer | 66 | none |\n");
        has(&text, "| check | severity | Some peer |\n|---|:-:|:-:|\n");
        has(&text, "| A retry does not land again (`once`) | critical | ✓ |\n");
        has(&text, "| Another request is refused (`mismatch`) | critical | **✗** |\n");
        has(&text, "| Two callers (`scope`) | critical | – |\n");
    }

    #[test]
    fn findings_are_in_the_words_of_the_probe() {
        let text = written(&comparison());
        has(
            &text,
            "- `mismatch` (critical): `` it got the answer of the first: 201 <b>`x`</b> ``\n",
        );
        has(&text, "- `marker` (minor): `the replay has no Idempotent-Replayed`\n");
        has(&text, "\nSkipped:\n\n- `scope`, `gate`: `give --credential`\n");
        has(&text, "Versions: peer 1.2.3, node 20.1.0.\n");
    }

    #[test]
    fn another_profile_is_told_where_it_differs() {
        let text = written(&comparison());
        has(
            &text,
            "\nIn profile `ietf`, unlike `onceward`:\n\n\
             - `once`: fail (there pass): `it landed 2 times`\n\n## Not installed",
        );
    }

    #[test]
    fn who_is_absent_is_named_with_the_reason() {
        has(&written(&comparison()), "- Other: `` `npm` failed ``\n");
        let nobody = Comparison { absent: Vec::new(), ..comparison() };
        assert!(!written(&nobody).contains("Not installed"));
    }

    #[test]
    fn a_comparison_of_nobody_is_a_document() {
        let nobody = Comparison { columns: Vec::new(), absent: Vec::new(), ..comparison() };
        has(&written(&nobody), "## Scores");
    }
}
