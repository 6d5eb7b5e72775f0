//! What the front page and the map promise about their own length, and about the program they show.

use std::path::Path;

use super::Findings;
use crate::failure::Failure;
use crate::source;

const README_WORDS: usize = 700;
const PROGRAM: &str = "crates/onceward/examples/first_service.rs";

/// The files that ARCHITECTURE.md asks a newcomer to read, and how long they may be together.
const FIVE_FILES: [&str; 5] = [
    "crates/onceward-core/src/record.rs",
    "crates/onceward-core/src/admission.rs",
    "crates/onceward-core/src/store.rs",
    "crates/onceward/src/engine/mod.rs",
    "crates/onceward/src/server/layer.rs",
];
const FIVE_FILES_LINES: usize = 1000;

pub(super) fn check(root: &Path, findings: &mut Findings) -> Result<(), Failure> {
    let readme = source::read(&root.join("README.md"))?;
    let words = readme.split_whitespace().count();
    if words > README_WORDS {
        findings.fail(format!("README.md has {words} words; {README_WORDS} are enough"));
    }
    let program = source::read(&root.join(PROGRAM))?;
    match shown_program(&readme) {
        Some(shown) if program.contains(shown) => {}
        _ => findings.fail(format!("the program of README.md is not that of {PROGRAM}")),
    }
    let map = source::read(&root.join("ARCHITECTURE.md"))?;
    let mut lines = 0;
    for file in FIVE_FILES {
        lines += source::read(&root.join(file))?.lines().count();
        if !map.contains(file) {
            findings.fail(format!("ARCHITECTURE.md does not ask the reader to read {file}"));
        }
    }
    if lines >= FIVE_FILES_LINES {
        findings.fail(format!(
            "the five files of ARCHITECTURE.md have {lines} lines; a reader is promised less than {FIVE_FILES_LINES}"
        ));
    }
    Ok(())
}

/// The first program in Rust on this page, without its imports, which the page has in fewer lines.
fn shown_program(page: &str) -> Option<&str> {
    let (_, block) = page.split_once("```rust\n")?;
    let (block, _) = block.split_once("```")?;
    let (_, program) = block.split_once("\n\n")?;
    Some(program.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_what_stands_below_the_imports() {
        let page = "# It\n\n```rust\nuse it;\n\nfn main() {}\n```\nmore\n";
        assert_eq!(shown_program(page), Some("fn main() {}"));
        assert_eq!(shown_program("# It\n"), None);
    }
}
