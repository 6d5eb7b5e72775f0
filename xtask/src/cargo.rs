//! Calls of cargo, written the way a person would type them.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;

/// One call of cargo; its `Display` is the line to repeat it by hand.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Cargo {
    /// `line` is what follows `cargo `, split at spaces.
    pub(crate) fn new(line: &str) -> Self {
        Self {
            arguments: line.split_whitespace().map(String::from).collect(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn arguments(mut self, more: &[String]) -> Self {
        self.arguments.extend_from_slice(more);
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The process to start, in the root of the workspace.
    pub(crate) fn command(&self, root: &Path) -> Command {
        let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(root);
        forget_own_package(&mut command);
        command
    }

    /// Runs it with its output on this terminal.
    pub(crate) fn run(&self, root: &Path) -> Result<(), Failure> {
        let status = self.command(root).status().map_err(|error| self.not_started(&error))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(
            format!("`{self}` failed ({status})"),
            format!("read its messages above, then repeat it with: {self}"),
        ))
    }

    /// Runs it and returns what it printed; its messages stay on this terminal.
    pub(crate) fn capture(&self, root: &Path) -> Result<String, Failure> {
        let output = self
            .command(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| self.not_started(&error))?;
        if !output.status.success() {
            return Err(Failure::new(
                format!("`{self}` failed ({})", output.status),
                format!("read its messages above, then repeat it with: {self}"),
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether it can be run at all; its output is thrown away.
    pub(crate) fn succeeds(&self, root: &Path) -> bool {
        self.command(root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    pub(crate) fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::new(
            format!("`{self}` could not be started: {error}"),
            "check that cargo is installed and on the PATH",
        )
    }
}

impl fmt::Display for Cargo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={} ", quoted(value))?;
        }
        formatter.write_str("cargo")?;
        self.arguments.iter().try_for_each(|argument| write!(formatter, " {}", quoted(argument)))
    }
}

/// `cargo run` describes this package in the environment; no other program should believe it is it.
pub(crate) fn forget_own_package(command: &mut Command) {
    const OWN: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME"];
    for (name, _) in env::vars_os() {
        if OWN.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

/// A length of time for people: `0.4 s`, `12.0 s`, `3 min 05 s`.
pub(crate) fn readable(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    if seconds < 60 {
        format!("{:.1} s", elapsed.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_as_a_line_that_a_shell_understands() {
        let call = Cargo::new("doc --no-deps")
            .environment("RUSTDOCFLAGS", "-D warnings")
            .arguments(&["it's".into(), String::new()]);
        assert_eq!(
            call.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s' ''"
        );
    }

    #[test]
    fn lengths_of_time_are_readable() {
        assert_eq!(readable(Duration::from_millis(449)), "0.4 s");
        assert_eq!(readable(Duration::from_secs(185)), "3 min 05 s");
    }
}
