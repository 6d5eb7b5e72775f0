//! docs/requirements.md maps every promise of the product to the tests that prove it.
//!
//! The file holds any prose and one or more tables of this form:
//!
//! ```text
//! | row | promise | tests |
//! |---|---|---|
//! | A1 | One key names one operation. | `onceward-core/src/operation.rs::a_key_is_visible_characters` |
//! | A2 | Scopes are apart. | `crates/onceward/tests/scopes.rs::a`, `crates/onceward/tests/scopes.rs::b` |
//! | A3 | Unsigned bodies are refused. | not yet |
//! ```
//!
//! A test is a path from the root of the repository, or from `crates/`, then `::` and the name of the
//! test function (module names may stand between them). Every row needs at least one test or the
//! words `not yet`; it may have both while a promise is kept in part. A row has one place: its id
//! stands in the file once.

use std::collections::BTreeSet;
use std::path::Path;

use super::Findings;
use crate::failure::Failure;
use crate::source;

const FILE: &str = "docs/requirements.md";

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<(), Failure> {
    let path = root.join(FILE);
    if !path.is_file() {
        findings.notice(format!("skipped: there is no {FILE} to check against the tests"));
        return Ok(());
    }
    let rows = rows(&source::read(&path)?);
    if rows.is_empty() {
        findings.fail(format!("{FILE} has no row in a table `| row | promise | tests |`"));
    }
    let mut seen = BTreeSet::new();
    for row in &rows {
        if !seen.insert(&row.id) {
            findings.fail(format!("{FILE}:{} has the row {} a second time", row.line, row.id));
        }
        for problem in problems_of(root, row) {
            findings.fail(format!("{FILE}:{} row {}: {problem}", row.line, row.id));
        }
    }
    let proven = rows.iter().filter(|row| !row.tests.is_empty()).count();
    findings.notice(format!("{FILE}: {} rows, {proven} of them claim a test", rows.len()));
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    id: String,
    tests: Vec<String>,
    not_yet: bool,
}

fn rows(markdown: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for (number, line) in markdown.lines().enumerate() {
        let cells = cells(line);
        match cells.as_slice() {
            [row, promise, tests] if is_header(row, promise, tests) => in_table = true,
            [rule, ..] if in_table && rule.starts_with(['-', ':']) => {}
            [id, .., tests] if in_table => rows.push(Row {
                line: number + 1,
                id: id.trim_matches(['`', '*']).to_owned(),
                tests: code_spans(tests),
                not_yet: tests.to_lowercase().contains("not yet"),
            }),
            _ => in_table = false,
        }
    }
    rows
}

fn is_header(row: &str, promise: &str, tests: &str) -> bool {
    row.eq_ignore_ascii_case("row")
        && promise.eq_ignore_ascii_case("promise")
        && tests.eq_ignore_ascii_case("tests")
}

/// The cells of a table row; empty when the line is none. `\|` does not end a cell.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{0}";
    let line = line.trim().replace(r"\|", BAR);
    let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(|cell| cell.trim().replace(BAR, "|")).collect()
}

fn code_spans(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(|span| span.trim().to_owned()).collect()
}

fn problems_of(root: &Path, row: &Row) -> Vec<String> {
    if row.tests.is_empty() && !row.not_yet {
        return vec![
            "names no test; write `crate/path.rs::test_name` in backticks, or: not yet".into(),
        ];
    }
    row.tests.iter().filter_map(|test| problem_of(root, test)).collect()
}

fn problem_of(root: &Path, test: &str) -> Option<String> {
    let Some((file, names)) = test.split_once("::") else {
        return Some(format!("`{test}` is not of the form `crate/path.rs::test_name`"));
    };
    let name = names.rsplit("::").next().unwrap_or(names);
    let places = [root.join(file), root.join("crates").join(file)];
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        return Some(format!("`{test}`: there is no file {file}, nor crates/{file}"));
    };
    let Ok(text) = source::read(path) else {
        return Some(format!("`{test}`: {file} cannot be read"));
    };
    let code = source::code_only(&text);
    let words = source::words(&code);
    let defined = words.windows(2).any(|pair| pair[0].text == "fn" && pair[1].text == name);
    (!defined).then(|| format!("`{test}`: {file} has no function `{name}`"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TABLE: &str = "# Promises\n\n| row | promise | tests |\n|---|:--|---|\n\
        | A1 | one \\| two | `onceward/tests/a.rs::kept`, `crates/onceward/tests/a.rs::tests::kept` |\n\
        | A2 | later | not yet |\n\nText | with | bars\n\n| other | table |\n|---|---|\n| x | `y` |\n";

    #[test]
    fn rows_are_read_from_the_right_tables_only() {
        let rows = rows(TABLE);
        assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["A1", "A2"]);
        assert_eq!(rows[0].tests.len(), 2);
        assert_eq!(rows[0].line, 5);
        assert!(rows[1].tests.is_empty() && rows[1].not_yet);
    }

    fn failures(table_rows: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for directory in ["docs", "crates/onceward/tests"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let test = "#[test]\nfn kept() {}\n// fn only_in_a_comment() {}\n";
        fs::write(root.path().join("crates/onceward/tests/a.rs"), test).unwrap();
        let text = format!("| row | promise | tests |\n|---|---|---|\n{table_rows}");
        fs::write(root.path().join(FILE), text).unwrap();
        let mut findings = Findings::default();
        check(root.path(), &mut findings).unwrap();
        findings.failures
    }

    #[test]
    fn tests_that_exist_pass() {
        let rows = "| A1 | p | `onceward/tests/a.rs::kept` |\n| A2 | p | not yet |\n\
                    | A3 | p | `crates/onceward/tests/a.rs::tests::kept`; the rest not yet |\n";
        assert_eq!(failures(rows), [""; 0]);
    }

    #[test]
    fn claims_without_a_test_are_named() {
        for (row, expected) in [
            ("| A1 | p | `onceward/tests/b.rs::kept` |", "there is no file"),
            ("| A1 | p | `onceward/tests/a.rs::broken` |", "has no function `broken`"),
            ("| A1 | p | `onceward/tests/a.rs::only_in_a_comment` |", "has no function"),
            ("| A1 | p | `onceward/tests/a.rs` |", "is not of the form"),
            ("| A1 | p | |", "names no test"),
            ("| A1 | p | yes |", "names no test"),
            ("| A1 | p | not yet |\n| A1 | p | not yet |", "a second time"),
            ("", "has no row"),
        ] {
            let found = failures(row);
            assert_eq!(found.len(), 1, "{row}: {found:?}");
            assert!(found[0].contains(expected), "{row}: {found:?}");
        }
    }

    #[test]
    fn a_repository_without_the_file_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let mut findings = Findings::default();
        check(root.path(), &mut findings).unwrap();
        assert!(findings.failures.is_empty());
        assert!(findings.notices[0].starts_with("skipped"), "{findings:?}");
    }
}
