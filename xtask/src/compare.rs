//! `cargo xtask compare`: what `onceward probe` finds in others, written to `docs/comparison.md`.

mod document;
mod install;
mod peers;
mod report;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo::Cargo;
use crate::failure::Failure;
use document::{Absent, Column, Comparison};
use peers::{Directories, PEERS, Peer, Running};
use report::Report;

/// Where the result goes, from the root of the repository.
const DOCUMENT: &str = "docs/comparison.md";

/// What the peers are measured by; the first has a table of its own.
const PROFILES: [&str; 3] = ["onceward", "ietf", "stripe"];

/// What is sent; in the document it stands as a command, so both read this.
const DATA: &str = r#"{"cents": 500, "to": "ada"}"#;

/// Probes other implementations of idempotency keys, and writes docs/comparison.md.
///
/// Installs them from npm, `PyPI`, Cargo's registry, the Go modules and the distribution, below
/// target/compare; starts each with the same small service on loopback; runs `onceward probe` on it;
/// and ends it. A peer that cannot be installed or started is listed with the reason. Not part of
/// the continuous integration. What the probe printed is kept in target/compare/results.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask compare                             all peers; writes docs/comparison.md
  cargo xtask compare --only fiber,plain          only these, on standard output")]
pub(crate) struct Arguments {
    /// Only these peers; the document goes to standard output and no file is changed
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = known)]
    only: Vec<String>,
    /// The date to print with the result [default: today, as `date -u` has it]
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
}

fn known(name: &str) -> Result<String, String> {
    let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("it is one of {}", names.join(", "))),
    }
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Failure> {
    Cargo::new("build -p onceward-gateway").run(root)?;
    let target = install::target(root)?;
    let onceward = target.join("debug/onceward");
    let kept = target.join("compare");
    let mut comparison = Comparison {
        date: arguments.date.clone().or_else(|| said("date", &["-u", "+%F"])),
        made_with: made_with(root, &onceward),
        profiles: PROFILES.map(String::from).to_vec(),
        data: DATA.to_owned(),
        columns: Vec::new(),
        absent: Vec::new(),
    };
    let is_asked =
        |peer: &&Peer| arguments.only.is_empty() || arguments.only.iter().any(|n| n == peer.name);
    for peer in PEERS.iter().filter(is_asked) {
        let directories = Directories { root, kept: &kept, onceward: &onceward };
        match measure(peer, &directories) {
            Ok(column) => comparison.columns.push(column),
            Err(reason) => {
                eprintln!("{}: {reason}", peer.title);
                comparison.absent.push(Absent { title: peer.title.to_owned(), reason });
            }
        }
    }
    let text = document::written(&comparison);
    if !arguments.only.is_empty() {
        print!("{text}");
        return Ok(());
    }
    fs::write(root.join(DOCUMENT), text).map_err(|error| {
        Failure::new(
            format!("{DOCUMENT} cannot be written: {error}"),
            "check that it may be written by you; what the probe printed is in target/compare/results",
        )
    })?;
    eprintln!("written: {DOCUMENT}");
    Ok(())
}

/// Starts a peer anew for each profile, so that no key of one is met by the next.
fn measure(peer: &Peer, directories: &Directories<'_>) -> Result<Column, String> {
    eprintln!("{}: installing", peer.title);
    let installed = (peer.install)(directories)?;
    let mut column = Column {
        title: peer.title.to_owned(),
        about: peer.about.to_owned(),
        service: format!("../xtask/compare/{}", peer.service),
        versions: installed.versions.clone(),
        reports: Vec::new(),
    };
    for profile in PROFILES {
        let home = tempfile::tempdir().map_err(|error| format!("no directory for it: {error}"))?;
        let running = (peer.start)(directories, &installed, home.path())?;
        eprintln!("{}: asking, profile {profile}", peer.title);
        let text = probe(directories, &running, profile)?;
        keep(&directories.kept.join("results"), &format!("{}-{profile}.json", peer.name), &text)?;
        let report = Report::read(&text)?;
        let score = report.score.map_or("no score".to_owned(), |score| format!("{score} of 100"));
        eprintln!("{}: {score}", peer.title);
        column.reports.push(report);
    }
    Ok(column)
}

fn keep(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(directory.join(name), text))
        .map_err(|error| format!("{name} cannot be written: {error}"))
}

/// What `onceward probe --json` prints about it.
fn probe(
    directories: &Directories<'_>,
    running: &Running,
    profile: &str,
) -> Result<String, String> {
    let mut command = Command::new(directories.onceward);
    command.args(["probe", &running.url, "--data", DATA, "--profile", profile, "--json"]);
    command.args(["--count-url", &running.count_url, "--count-json", "/total"]);
    for credential in &running.credentials {
        command.args(["--credential", credential]);
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("the probe could not be started: {error}"))?;
    // Findings have an exit code of their own; only this one says that there is no report.
    if output.stdout.is_empty() {
        let words = String::from_utf8_lossy(&output.stderr);
        let reason = words.lines().rfind(|line| line.starts_with("error")).unwrap_or("error: none");
        return Err(format!("it could not be probed: {reason}"));
    }
    String::from_utf8(output.stdout)
        .map_err(|error| format!("the probe did not print text: {error}"))
}

/// Programs that more than one peer needs, and the commit.
fn made_with(root: &Path, onceward: &Path) -> Vec<String> {
    let commit =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = said(&onceward.to_string_lossy(), &["--version"]);
    let onceward = match (version, commit) {
        (Some(version), Some(commit)) => Some(format!("{version} (commit {commit})")),
        (version, _) => version,
    };
    let compiler = said("rustc", &["--version"]).map(|words| first_words(&words, 2));
    onceward.into_iter().chain(compiler).chain(said("uname", &["-sm"])).collect()
}

fn first_words(text: &str, count: usize) -> String {
    text.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}

/// What a program prints, if there is one.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn only_peers_that_exist_can_be_asked_for() {
        let line = Line::try_parse_from(["compare", "--only", "plain,fiber"]).unwrap();
        assert_eq!(line.arguments.only, ["plain", "fiber"]);
        assert!(Line::try_parse_from(["compare", "--only", "nobody"]).is_err());
    }

    #[test]
    fn every_peer_has_its_service_in_the_repository() {
        for peer in &PEERS {
            let service = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare").join(peer.service);
            assert!(service.is_file(), "{}", service.display());
        }
    }
}
