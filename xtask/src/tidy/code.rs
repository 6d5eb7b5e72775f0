//! Rules about Rust files: length, unfinished code, names.

use std::path::Path;

use super::Findings;
use crate::failure::Failure;
use crate::source::{self, Word};

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<(), Failure> {
    check_state_machine(root, findings);
    for path in source::files(root, "rs")? {
        let text = source::read(&path)?;
        let shown = source::shown(root, &path);
        let length = text.lines().count();
        if length > LONG_FILE {
            findings.notice(format!(
                "warning: {shown} has {length} lines; more than {LONG_FILE} is a sign of two ideas in one file"
            ));
        }
        let code = source::code_only(&text);
        let words = source::words(&code);
        for problem in unfinished(&words).chain(unwanted_names(&words)) {
            findings.fail(format!("{shown}:{problem}"));
        }
    }
    Ok(())
}

const LONG_FILE: usize = 600;

const STATE_MACHINE: &str = "crates/onceward-core/src/admission.rs";
const STATE_MACHINE_LINES: usize = 250;

/// The state machine is the page that everyone reads; it has to stay a page.
fn check_state_machine(root: &Path, findings: &mut Findings) {
    let Ok(text) = source::read(&root.join(STATE_MACHINE)) else {
        findings.fail(format!(
            "{STATE_MACHINE} cannot be read; if the state machine moved, tell xtask/src/tidy/code.rs"
        ));
        return;
    };
    let length = text.lines().count();
    if length >= STATE_MACHINE_LINES {
        findings.fail(format!(
            "{STATE_MACHINE} has {length} lines and must stay under {STATE_MACHINE_LINES}; move what is not a decision elsewhere"
        ));
    }
}

/// Macros that stand for code still to be written, or were left over from looking for a mistake.
fn unfinished(words: &[Word<'_>]) -> impl Iterator<Item = String> {
    const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
    words
        .iter()
        .filter(|word| word.calls_macro && MACROS.contains(&word.text))
        .map(|word| format!("{} calls `{}!`; finish it or take it out", word.line, word.text))
}

/// Names of types and functions that hold a word which says nothing.
fn unwanted_names(words: &[Word<'_>]) -> impl Iterator<Item = String> {
    const DEFINERS: [&str; 7] = ["fn", "struct", "enum", "union", "trait", "type", "mod"];
    words
        .windows(2)
        .filter(|pair| DEFINERS.contains(&pair[0].text))
        .filter(|pair| parts(pair[1].text).iter().any(|part| says_nothing(part)))
        .map(|pair| {
            format!(
                "{} defines `{}`; say what it does instead of manager, helper or util",
                pair[1].line, pair[1].text
            )
        })
}

fn says_nothing(part: &str) -> bool {
    const UNWANTED: [&str; 3] = ["manager", "helper", "util"];
    UNWANTED.contains(&part.trim_end_matches('s'))
}

/// `LeaseManager` and `lease_manager` are both `lease`, `manager`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if let (Some(last), true) = (parts.last_mut(), c != '_') {
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{code_only, words};

    #[test]
    fn unfinished_code_is_found_but_not_talk_about_it() {
        let code = code_only(
            "// todo!()\nfn a() { todo!(\"x\") }\nlet b = \"dbg!\";\ndbg ! (1);\nif todo != 1 {}",
        );
        let found: Vec<_> = unfinished(&words(&code)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("2 calls `todo!`"), "{found:?}");
        assert!(found[1].starts_with("4 calls `dbg!`"), "{found:?}");
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        let code = "struct LeaseManager; fn helper_of() {} mod utils; enum Utilisation {} fn f(util: u8) {}";
        let found: Vec<_> = unwanted_names(&words(code)).collect();
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn the_state_machine_has_a_limit() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(STATE_MACHINE);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (lines, failures) in [(249, 0), (250, 1)] {
            std::fs::write(&path, "//\n".repeat(lines)).unwrap();
            let mut findings = Findings::default();
            check_state_machine(root.path(), &mut findings);
            assert_eq!(findings.failures.len(), failures, "{lines} lines");
        }
    }
}
