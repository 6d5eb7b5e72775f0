//! The command that all packages hold, and what it needs of the machine that it runs on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::output;
use crate::cargo::Cargo;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

/// With this C library the command holds everything that it needs.
pub(super) const TARGET: &str = "x86_64-unknown-linux-musl";

/// The profile in the root manifest.
const PROFILE: &str = "dist";

/// Builds it with optimisation.
pub(super) fn build(root: &Path, workspace: &Workspace) -> Result<PathBuf, Failure> {
    let here = (std::env::consts::OS, std::env::consts::ARCH);
    if here != ("linux", "x86_64") {
        return Err(Failure::new(
            format!("packages are made on x86-64 Linux, and this is {} on {}", here.0, here.1),
            "elsewhere install from the sources: cargo install --path crates/onceward-gateway",
        ));
    }
    tools::ensure_target(TARGET).map_err(|missing| {
        Failure::new(
            format!("the standard library for {TARGET} is missing: {}", missing.0),
            format!(
                "install it with `rustup target add {TARGET}`, and repeat; nothing was packaged"
            ),
        )
    })?;
    tools::musl_compiler().map_err(|reason| {
        Failure::new(
            format!("SQLite is C, and the compiler musl-gcc for it is missing: {reason}"),
            "install the package musl-tools of your distribution, and repeat; nothing was packaged",
        )
    })?;
    let line = format!("build --locked --profile {PROFILE} -p onceward-gateway --target {TARGET}");
    Cargo::new(&line).run(root)?;
    Ok(workspace.target_directory().join(TARGET).join(PROFILE).join("onceward"))
}

/// What it needs of the machine, as its own headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linkage {
    /// Nothing.
    Static,
    /// glibc, at least in this version.
    Glibc(u32, u32),
}

/// The oldest glibc that a published command may ask for: that of Debian 11 and Ubuntu 20.04.
const OLDEST_GLIBC: (u32, u32) = (2, 31);

/// Reads what a command needs; one that was `given` may need more than one that is published.
pub(super) fn linkage(binary: &Path, given: bool) -> Result<Linkage, Failure> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--program-headers", "--dynamic", "--version-info"]).arg(binary);
    let linkage =
        output(&mut readelf).and_then(|words| Linkage::read(&words)).map_err(|reason| {
            Failure::new(
                format!("what {} needs of a machine cannot be read: {reason}", binary.display()),
                "readelf is in the package binutils; without this check nothing is packaged",
            )
        })?;
    match linkage {
        Linkage::Glibc(major, minor) if !given && (major, minor) > OLDEST_GLIBC => {
            Err(Failure::new(
                format!("the command {linkage}, and older systems would not start it"),
                format!("check that it was built for {TARGET}"),
            ))
        }
        _ => Ok(linkage),
    }
}

impl Linkage {
    /// Of what readelf prints.
    fn read(words: &str) -> Result<Self, String> {
        if !words.contains("(NEEDED)") && !words.contains("INTERP") {
            return Ok(Self::Static);
        }
        let versions = words.split("GLIBC_").skip(1).filter_map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
            let mut numbers = rest[..end.unwrap_or(rest.len())].split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        });
        let newest = versions.max().ok_or("it needs libraries, and none of them is glibc")?;
        Ok(Self::Glibc(newest.0, newest.1))
    }
}

impl fmt::Display for Linkage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => formatter.write_str("is static: it needs no library of the machine"),
            Self::Glibc(major, minor) => write!(formatter, "needs glibc {major}.{minor} or newer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_libraries_it_is_static() {
        let words = "  LOAD 0x0\n 0x1e (FLAGS) BIND_NOW\nNo version information found";
        assert_eq!(Linkage::read(words), Ok(Linkage::Static));
    }

    #[test]
    fn the_newest_symbol_says_which_glibc_it_needs() {
        let words = "  INTERP 0x318\n 0x1 (NEEDED) Shared library: [libc.so.6]\n\
                     0x10: Name: GLIBC_2.9 Flags: none\n0x20: Name: GLIBC_2.28\n0x30: GLIBC_2.3.4";
        assert_eq!(Linkage::read(words), Ok(Linkage::Glibc(2, 28)));
        assert!(Linkage::read("(NEEDED) [libc.musl-x86_64.so.1]").is_err());
    }

    #[test]
    fn the_glibc_of_this_machine_is_found_in_a_program_of_it() {
        let own = std::env::current_exe().unwrap();
        let Linkage::Glibc(major, minor) = linkage(&own, true).unwrap() else {
            panic!("the tests are linked dynamically")
        };
        assert!((major, minor) >= (2, 17));
        // Whether it may be published depends on how new this machine is.
        assert_eq!(linkage(&own, false).is_err(), (major, minor) > OLDEST_GLIBC);
    }
}
