//! `cargo xtask package`: what is installed without Rust, and the crates.

mod binary;
mod crates;
mod debian;
mod figures;
mod files;
mod image;
mod licences;
mod npm;
mod started;
mod wheel;

use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;
use binary::Linkage;
use figures::Figures;
use files::{EXECUTABLE, FILE, copy, output, put, remove, text};

/// Builds what is installed without Rust: a static command, a wheel, an npm package, a Debian package.
///
/// Builds the command once, for x86-64 Linux, and checks that it needs no library of the machine. Puts it
/// into each package, and packages the crates, all below target/package. The last lines are a table: sizes,
/// times, and what they may be. Publishes nothing. What is missing on this machine is said by name.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask package                all packages\n  \
                  cargo xtask package --check        also installs each in a clean environment and starts it\n  \
                  cargo xtask package --only wheel   the command and one package")]
pub(crate) struct Arguments {
    /// Also installs each package in a clean environment, starts it in front of a service, sends a write
    /// and its retry; compiles the crates from their packages; and tries `cargo install`
    #[arg(long)]
    check: bool,
    /// Only these: wheel, npm, deb, crates (what registries of Rust take), image (checks deploy/Dockerfile)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = known)]
    only: Vec<String>,
    /// Where packages go [default: target/package]
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
    /// Packages this command instead of building one; it may need libraries, and the packages say so
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// One kind of package.
struct Kind {
    /// How it is called on the command line.
    name: &'static str,
    title: &'static str,
    /// How its files end.
    extension: &'static str,
    /// How large it may be, if that was promised.
    most_bytes: Option<u64>,
    /// Makes it of the contents, and gives its file.
    assemble: fn(&Contents<'_>) -> Result<PathBuf, String>,
    /// Installs this file in an empty directory, and gives the command that serves.
    install: fn(&Path, &Path) -> Result<Command, String>,
}

const MEGABYTE: u64 = 1_000_000;

const KINDS: [Kind; 3] = [
    Kind {
        name: "wheel",
        title: "wheel",
        extension: "whl",
        most_bytes: Some(12 * MEGABYTE),
        assemble: wheel::assemble,
        install: wheel::install,
    },
    Kind {
        name: "npm",
        title: "npm package",
        extension: "tgz",
        most_bytes: Some(12 * MEGABYTE),
        assemble: npm::assemble,
        install: npm::install,
    },
    Kind {
        name: "deb",
        title: "Debian package",
        extension: "deb",
        most_bytes: None,
        assemble: debian::assemble,
        install: debian::install,
    },
];

/// What is no package that is installed, and is asked for by name all the same.
const CRATES: &str = "crates";
const IMAGE: &str = "image";

fn known(name: &str) -> Result<String, String> {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).chain([CRATES, IMAGE]).collect();
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("it is one of {}", names.join(", "))),
    }
}

impl Arguments {
    /// A command that was given is none that is published: it may be large.
    fn most(&self, bytes: Option<u64>) -> Option<u64> {
        bytes.filter(|_| self.binary.is_none())
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|one| one == name)
    }
}

/// What goes into every package.
struct Contents<'a> {
    root: &'a Path,
    workspace: &'a Workspace,
    /// The command.
    binary: PathBuf,
    /// What it needs of the machine.
    linkage: Linkage,
    version: String,
    /// One line about the product.
    description: String,
    /// As an SPDX expression.
    licence: String,
    /// The licences of all that is compiled in.
    third_parties: String,
    /// Where packages go.
    to: PathBuf,
}

/// What the packages of a test are installed with; what is not there is said, and its test is skipped.
pub(crate) fn installers(workspace: &Workspace) -> String {
    let runs = |name: &str| output(Command::new(name).arg("--version")).map(|_| ());
    let found = [
        ("pip", tools::packaging(workspace).map(|_| ())),
        ("npm", runs("npm")),
        ("dpkg", runs("dpkg-deb")),
    ];
    let words = found.map(|(name, missing)| match missing {
        Ok(()) => name.to_owned(),
        Err(reason) => format!("no {name} (skipped: {reason})"),
    });
    format!("packages installed with {}", words.join(", "))
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let started = Instant::now();
    let workspace = Workspace::read(root)?;
    let contents = Contents::prepare(root, &workspace, arguments)?;
    let mut report = Report::default();
    report.figures.size("command", &contents.binary, arguments.most(Some(25 * MEGABYTE)));
    let packages = assemble(&contents, arguments, &mut report)?;
    if arguments.binary.is_none() {
        match started::cold_start(&contents.binary) {
            Ok(median) => report.figures.cold_start(median),
            Err(reason) => report.findings.push(format!("the command does not start: {reason}")),
        }
        report.findings.extend(report.figures.too_large());
    }
    report.figures.whole_command(started.elapsed());
    if arguments.check {
        check(&contents, arguments, &packages, &mut report)?;
    }
    report.figures.print();
    if report.findings.is_empty() {
        println!("\npackages are in {}; nothing was published", contents.to.display());
        return Ok(());
    }
    Err(Failure::of_findings(
        "packaging",
        &report.findings,
        "mend what is named, and repeat with: cargo xtask package --check",
    ))
}

/// What a run has to say at its end.
#[derive(Default)]
struct Report {
    figures: Figures,
    findings: Vec<String>,
}

/// Makes what was asked for; what cannot be made is said, and the rest is made.
fn assemble(
    contents: &Contents<'_>,
    arguments: &Arguments,
    report: &mut Report,
) -> Result<Vec<(&'static Kind, PathBuf)>, Failure> {
    let mut packages = Vec::new();
    for kind in KINDS.iter().filter(|kind| arguments.wants(kind.name)) {
        let made = remove(&contents.to, kind.extension).and_then(|()| (kind.assemble)(contents));
        match made {
            Ok(file) => {
                println!("{}: {}", kind.title, file.display());
                report.figures.size(kind.title, &file, arguments.most(kind.most_bytes));
                packages.push((kind, file));
            }
            Err(reason) => report.findings.push(format!("NOT MADE: the {}: {reason}", kind.title)),
        }
    }
    if arguments.wants(CRATES) {
        crates::package(contents)?;
    }
    if arguments.wants(IMAGE) {
        report.findings.extend(image::findings(contents));
    }
    Ok(packages)
}

/// Tries what was made, each where nothing else is.
fn check(
    contents: &Contents<'_>,
    arguments: &Arguments,
    packages: &[(&'static Kind, PathBuf)],
    report: &mut Report,
) -> Result<(), Failure> {
    for (kind, file) in packages {
        match replayed(contents, kind, file) {
            Ok(elapsed) => report.figures.first_replay(kind.title, elapsed),
            Err(reason) => report.findings.push(format!("the {}: {reason}", kind.title)),
        }
    }
    if arguments.wants(CRATES) {
        crates::verify(contents)?;
        match crates::installed(contents) {
            Ok(()) => println!("cargo install: the command was installed, and replays"),
            Err(reason) => report.findings.push(format!("cargo install: {reason}")),
        }
    }
    Ok(())
}

/// Installs it where nothing is, starts it, and sends a write and its retry; gives how long that took.
fn replayed(contents: &Contents<'_>, kind: &Kind, file: &Path) -> Result<Duration, String> {
    let home = tempfile::tempdir().map_err(|error| format!("no directory for it: {error}"))?;
    let started = Instant::now();
    let mut serve = (kind.install)(file, home.path())?;
    started::first_replay(contents.root, &mut serve)?;
    let elapsed = started.elapsed();
    println!(
        "{}: installed in an empty place and started; {:.1} s from the first command to the first replay",
        kind.title,
        elapsed.as_secs_f64()
    );
    Ok(elapsed)
}

impl<'a> Contents<'a> {
    fn prepare(
        root: &'a Path,
        workspace: &'a Workspace,
        arguments: &Arguments,
    ) -> Result<Self, Failure> {
        let usual = workspace.target_directory().join("package");
        let to = path::absolute(arguments.to.as_ref().unwrap_or(&usual)).unwrap_or(usual);
        let not_written = |error: std::io::Error| {
            let what = format!("{} cannot be written: {error}", to.display());
            Failure::new(what, "say another directory with --to")
        };
        fs::create_dir_all(&to).map_err(not_written)?;
        let built = match &arguments.binary {
            Some(given) => given.clone(),
            None => binary::build(root, workspace)?,
        };
        let linkage = binary::linkage(&built, arguments.binary.is_some())?;
        println!("the command {linkage}");
        // The image is made of it, and people may take it as it is.
        let binary = to.join("onceward");
        copy(&built, &binary, EXECUTABLE).map_err(|reason| {
            Failure::new(reason, "check that the command is there and may be read by you")
        })?;
        let third_parties = licences::of_third_parties(root, workspace)?;
        put(&to.join(THIRD_PARTIES), &third_parties, FILE)
            .map_err(|reason| Failure::new(reason, "say another directory with --to"))?;
        let about = |package: &str, field: &str| text_of(workspace, package, field);
        Ok(Self {
            root,
            workspace,
            binary,
            linkage,
            version: about("onceward-gateway", "version"),
            description: about("onceward", "description"),
            licence: about("onceward-gateway", "license"),
            third_parties,
            to,
        })
    }

    /// What people read beside the package: for those who have no Rust.
    fn readme(&self) -> Result<String, String> {
        text(&self.root.join("crates/onceward-gateway/README.md"))
    }

    /// Puts the licences there, each into a file.
    fn put_licences(&self, directory: &Path) -> Result<(), String> {
        for name in LICENCES {
            copy(&self.root.join(name), &directory.join(name), FILE)?;
        }
        put(&directory.join(THIRD_PARTIES), &self.third_parties, FILE)
    }

    /// A directory to put a package together in; it is gone with what this gives.
    fn staging(&self) -> Result<tempfile::TempDir, String> {
        tempfile::Builder::new()
            .prefix("staging-")
            .tempdir_in(&self.to)
            .map_err(|error| format!("no directory in {}: {error}", self.to.display()))
    }
}

/// Our own, in the root of the repository.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Those of all that is compiled in.
const THIRD_PARTIES: &str = "LICENSE-THIRD-PARTIES";

fn text_of(workspace: &Workspace, package: &str, field: &str) -> String {
    let found = workspace.packages().find(|one| one["name"] == package && one["source"].is_null());
    found.and_then(|one: &Value| one[field].as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: super::Arguments,
    }

    #[test]
    fn only_kinds_that_exist_can_be_asked_for() {
        let line = Line::try_parse_from(["package", "--only", "wheel,deb", "--check"]).unwrap();
        assert_eq!(
            (line.arguments.only, line.arguments.check),
            (vec!["wheel".into(), "deb".into()], true)
        );
        assert!(Line::try_parse_from(["package", "--only", "rpm"]).is_err());
    }
}
