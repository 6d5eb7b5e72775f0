//! Runs the command on a file in a directory of its own.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::command::{Finished, command};

/// A file that is right, up to its first route.
pub(crate) const TOP: &str = "upstream = \"http://127.0.0.1:3000\"\n";

/// A directory with the files that a configuration may name.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in ["cert.pem", "key.pem", "clients.pem", "keys.json"] {
        fs::write(directory.path().join(file), "").unwrap();
    }
    directory
}

/// Runs `onceward` there, with no environment but these.
pub(crate) fn onceward(
    directory: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Finished {
    let mut command = command(arguments);
    command.current_dir(directory).env_clear().envs(environment.iter().copied());
    Finished::of(&mut command)
}

pub(crate) fn check_with(text: &str, environment: &[(&str, &str)]) -> Finished {
    let directory = directory();
    fs::write(directory.path().join("o.toml"), text).unwrap();
    onceward(directory.path(), &["check", "o.toml"], environment)
}

/// What is said about a file that is right.
pub(crate) fn accepted(file: &str) -> String {
    let output = check_with(file, &[]);
    assert!(output.is_success(), "{file}\n{}", output.stderr);
    assert!(output.stderr.is_empty());
    output.stdout
}

/// What is said about a file that is wrong.
pub(crate) fn refused(file: &str) -> String {
    let output = check_with(file, &[]);
    assert_eq!(output.code, 1, "{file}\n{}", output.stdout);
    assert!(output.stdout.is_empty());
    output.stderr
}

/// A file with one route that says this in addition; its lines start with the sixth.
pub(crate) fn route(lines: &str) -> String {
    format!(
        "{TOP}[[route]]\nmatch = \"POST /v1/{{tenant}}\"\nscope = [\"secret:x-api-key\"]\n\
         authorize = \"none\"\n{lines}\n"
    )
}

/// The one mistake that such a route has: its place and message, and its help.
pub(crate) fn mistake_of_route(lines: &str) -> (String, String) {
    only_mistake(&route(lines))
}

/// The one mistake of a file: `line:column: message`, and its help.
pub(crate) fn only_mistake(file: &str) -> (String, String) {
    let said = refused(file);
    assert!(said.contains("o.toml: 1 mistake;"), "{file}\n{said}");
    let mut lines = said.lines().skip_while(|line| !line.contains(": error: "));
    let message = lines.next().unwrap().replacen("o.toml:", "", 1).replacen(" error:", "", 1);
    (message, lines.next().unwrap().trim_start_matches("  help: ").to_owned())
}

/// Each of these lines, in a route, is the only mistake, and is explained with these words.
pub(crate) fn each_is_explained(cases: &[(&str, &str, &str)]) {
    for (lines, message, help) in cases {
        let (said, advice) = mistake_of_route(lines);
        assert!(said.contains(message), "{lines}\n{said}\n{advice}");
        assert!(advice.contains(help), "{lines}\n{said}\n{advice}");
    }
}
