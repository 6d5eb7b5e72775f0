//! Programs that are run to their end, and what went wrong with them.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Why a server could not be started, or did not do what it was asked; in words for the person at the terminal.
#[derive(Clone, PartialEq, Eq)]
pub struct Trouble(String);

impl Trouble {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The plain words, because a test that unwraps shows this and nothing else.
impl fmt::Debug for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Trouble {}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        trouble.0
    }
}

/// How long anything may take that ends by itself: more than it does on the busiest machine.
///
/// Only a test that hangs takes so long.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A program that is ended after [`TEST_TIMEOUT`], so that a server which hangs does not hang the tests.
pub(crate) fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(TEST_TIMEOUT.as_secs().to_string()).arg(program);
    // Messages are read, so they are in one language.
    command.env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", "10");
    command
}

/// Runs it to its end with `input`, and gives what it printed, without the last line break.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String, Trouble> {
    let started = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            // A program that ended early does not want the rest: its own words say why.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        });
    let name = || program_of(command);
    let output =
        started.map_err(|error| Trouble(format!("{} could not be started: {error}", name())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned());
    }
    let words = [output.stderr, output.stdout].concat();
    let words = String::from_utf8_lossy(&words);
    Err(Trouble(format!("{} failed ({}): {}", name(), output.status, words.trim())))
}

/// The file name of the program itself, without what bounds it; its arguments may hold a password.
fn program_of(command: &Command) -> String {
    let bounded = command.get_program() == "timeout";
    let program = if bounded { command.get_args().nth(2) } else { None };
    let program = Path::new(program.unwrap_or(command.get_program()));
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// Asks again until there is an answer, for at most [`TEST_TIMEOUT`].
pub(crate) fn wait_for<T>(
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>, Trouble>,
) -> Result<T, Trouble> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if started.elapsed() > TEST_TIMEOUT {
            return Err(Trouble(format!("waited {} s in vain: {what}", TEST_TIMEOUT.as_secs())));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_program_failed_and_what_it_said() {
        let mut command = bounded(Path::new("/bin/sh"));
        let trouble = run(command.args(["-c", "echo no disk >&2; exit 3"]), "").unwrap_err();
        assert_eq!(trouble.to_string(), "sh failed (exit status: 3): no disk");
    }

    #[test]
    fn passes_the_input_and_gives_the_output() {
        assert_eq!(run(&mut bounded(Path::new("/bin/cat")), "a\nb\n").unwrap(), "a\nb");
    }

    #[test]
    fn an_absent_program_is_named() {
        let trouble = run(&mut Command::new("onceward-absent"), "").unwrap_err();
        assert!(
            trouble.to_string().starts_with("onceward-absent could not be started"),
            "{trouble}"
        );
    }
}
