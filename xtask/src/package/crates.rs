//! The crates, as `cargo package` makes them, and `cargo install` from a checkout.

use std::fs;
use std::process::Command;

use super::files::remove;
use super::{Contents, started};
use crate::cargo::Cargo;
use crate::failure::Failure;

/// All three at once, so that the newest version of each is found by the others.
const PACKAGE: &str =
    "package --locked --allow-dirty -p onceward-core -p onceward -p onceward-gateway";

/// What a person types who has Rust.
const INSTALL: &str = "install --locked --path crates/onceward-gateway";

/// Makes the files that a registry would take; nothing is compiled, and no registry is asked.
pub(super) fn package(contents: &Contents<'_>) -> Result<(), Failure> {
    let own = contents.to.join("crates");
    let directory = [String::from("--target-dir"), own.display().to_string()];
    let alone = ["--no-verify".to_owned(), "--offline".to_owned()];
    Cargo::new(PACKAGE).arguments(&directory).arguments(&alone).run(contents.root)?;
    let made = own.join("package");
    remove(&contents.to, "crate").map_err(|reason| not_moved(&reason))?;
    let moved = || -> std::io::Result<()> {
        for entry in fs::read_dir(&made)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "crate") {
                let name = path.file_name().unwrap_or_default();
                println!("crate: {}", contents.to.join(name).display());
                fs::rename(&path, contents.to.join(name))?;
            }
        }
        fs::remove_dir_all(&own)
    };
    moved().map_err(|error| not_moved(&format!("{}: {error}", made.display())))
}

fn not_moved(reason: &str) -> Failure {
    let what = format!("the crates cannot be moved: {reason}");
    Failure::new(what, "check that the directory may be written by you")
}

/// Compiles each crate from its package, where nothing else of this repository is.
pub(super) fn verify(contents: &Contents<'_>) -> Result<(), Failure> {
    Cargo::new(PACKAGE).run(contents.root)
}

/// Into an empty root.
pub(super) fn installed(contents: &Contents<'_>) -> Result<(), String> {
    let home = tempfile::tempdir().map_err(|error| format!("no directory for it: {error}"))?;
    let into = ["--root".to_owned(), home.path().display().to_string()];
    let call = Cargo::new(INSTALL).arguments(&into);
    call.run(contents.root).map_err(|failure| failure.to_string())?;
    let mut serve = Command::new(home.path().join("bin/onceward"));
    serve.args(["serve", "--scope", "secret:x-api-key", "--authorize", "none"]);
    started::first_replay(contents.root, serve.current_dir(home.path()))
}
