//! Style as a test: what a reviewer would otherwise have to say again.

mod code;
mod links;
mod msrv;
mod pages;
mod requirements;

use std::path::Path;

use crate::failure::Failure;

/// Checks the style of the repository.
///
/// Fails on: admission.rs of 250 lines or more; `todo!`, `unimplemented!` and `dbg!`; types and
/// functions named manager, helper or util; a README that states another Rust version than the
/// manifests; a row in docs/requirements.md that claims a test which does not exist; a relative link
/// in a Markdown file that leads nowhere; a README of more than 700 words, or whose program is not the
/// example; five files to understand the product from that have 1,000 lines. Warns about Rust files of more than 600 lines.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  cargo xtask tidy")]
pub(crate) struct Arguments {}

pub(crate) fn run(root: &Path, _: &Arguments) -> Result<(), Failure> {
    check(root)
}

/// What the checks found. A notice is printed and changes nothing.
#[derive(Debug, Default)]
struct Findings {
    failures: Vec<String>,
    notices: Vec<String>,
}

impl Findings {
    fn fail(&mut self, text: impl Into<String>) {
        self.failures.push(text.into());
    }

    fn notice(&mut self, text: impl Into<String>) {
        self.notices.push(text.into());
    }
}

pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let mut findings = Findings::default();
    code::check(root, &mut findings)?;
    msrv::check(root, &mut findings)?;
    requirements::check(root, &mut findings)?;
    links::check(root, &mut findings)?;
    pages::check(root, &mut findings)?;
    for notice in &findings.notices {
        println!("{notice}");
    }
    if findings.failures.is_empty() {
        println!("the repository is tidy");
        return Ok(());
    }
    Err(Failure::of_findings(
        "tidy",
        &findings.failures,
        "mend what is named and repeat with: cargo xtask tidy",
    ))
}
