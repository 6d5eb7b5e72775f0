//! Programs that run beside a test: what they say, the signals that they get, and their end.

mod family;
mod output;

use std::fmt;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub use self::family::cpu_time_with_ended;
pub use self::output::Output;

use self::family::{family, lives};
use crate::tool::{TEST_TIMEOUT, Trouble};

/// A program that a test has started; dropping it kills it, and all that it has started.
///
/// Whatever it says goes into files that nobody else sees. So it never waits for a reader, and everything is
/// still there when it has ended. A test that panics shows it.
///
/// ```
/// use std::process::Command;
///
/// let cat = testbed::Process::start(&mut Command::new("cat"))?;
/// cat.tell("hello");
/// assert_eq!(cat.stdout.next_line()?.as_deref(), Some("hello"));
/// cat.close_stdin();
/// assert!(cat.wait_for_end()?.success());
/// # Ok::<(), testbed::Trouble>(())
/// ```
pub struct Process {
    /// What it says on standard output.
    pub stdout: Output,
    /// What it says on standard error.
    pub stderr: Output,
    stdin: Mutex<Option<ChildStdin>>,
    life: Arc<Life>,
}

impl Process {
    /// Starts a command; its three streams are set here, everything else is as the command says.
    ///
    /// It stays in the process group of this program, so that Ctrl-C reaches it too.
    ///
    /// # Errors
    ///
    /// When the program is not there, or may not be run.
    pub fn start(command: &mut Command) -> Result<Self, Trouble> {
        let program = Path::new(command.get_program());
        let name =
            program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        let started = (|| {
            let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
            command.stdin(Stdio::piped()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
            Ok((command.spawn()?, stdout, stderr))
        })();
        let (mut child, stdout, stderr) = started.map_err(|error: io::Error| {
            Trouble::new(format!("{name} could not be started: {error}"))
        })?;
        let stdin = Mutex::new(child.stdin.take());
        let life = Arc::new(Life { name, child: Mutex::new(child) });
        let stdout = Output::new(stdout, life.clone());
        let stderr = Output::new(stderr, life.clone());
        Ok(Self { stdout, stderr, stdin, life })
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.life.child().id()
    }

    /// Writes a line to its standard input; when it has ended, there is nobody to tell.
    pub fn tell(&self, line: &str) {
        if let Some(stdin) = &mut *locked(&self.stdin) {
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Ends its standard input.
    pub fn close_stdin(&self) {
        *locked(&self.stdin) = None;
    }

    /// Sends a signal; when it has ended, nobody gets it.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.life.child();
        // The system gives the number of a process that was waited for to another one.
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }

    /// `kill -9`, of this process alone; gives how it ended, which it may have done before.
    ///
    /// # Errors
    ///
    /// When the system does not tell how it ended.
    pub fn kill(&self) -> Result<ExitStatus, Trouble> {
        let mut child = self.life.child();
        let _ = child.kill();
        child.wait().map_err(|error| Trouble::new(format!("{}: {error}", self.life.name)))
    }

    /// How it ended; `None` while it lives.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.life.ended()
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it does not end within [`TEST_TIMEOUT`], with what it said last.
    pub fn wait_for_end(&self) -> Result<ExitStatus, Trouble> {
        self.wait_for_end_within(TEST_TIMEOUT)
            .ok_or_else(|| Trouble::new(format!("it does not end: {}", self.state())))
    }

    /// Waits for its end, but not longer than this; `None`: it still lives.
    pub fn wait_for_end_within(&self, longest: Duration) -> Option<ExitStatus> {
        poll(longest, || self.life.ended())
    }

    /// Waits until somebody accepts connections there.
    ///
    /// # Errors
    ///
    /// When it ends before that or takes longer than [`TEST_TIMEOUT`], with what it said last.
    pub fn wait_until_it_accepts(&self, address: SocketAddr) -> Result<(), Trouble> {
        let accepted = poll(TEST_TIMEOUT, || {
            let ended = self.life.ended().is_some();
            let accepts = TcpStream::connect(address).is_ok();
            (accepts || ended).then_some(accepts)
        });
        match accepted {
            Some(true) => Ok(()),
            _ => Err(Trouble::new(format!("nobody serves on {address}: {}", self.state()))),
        }
    }

    /// Whether it lives, and what it said last: for a message that says what went wrong.
    pub fn state(&self) -> String {
        let state = match self.life.ended() {
            Some(status) => format!("has ended ({status})"),
            None => "lives".to_owned(),
        };
        let said: Vec<_> = [&self.stdout, &self.stderr].map(Output::last_words).into();
        let said = said.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>();
        format!("{} {state} and said last: {}", self.life.name, said.join(" / "))
    }

    /// User and system time of it and of all that it has started; `None` where the system does not tell.
    pub fn cpu_time(&self) -> Option<Duration> {
        family::cpu_time(self.id())
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.state())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.life.ended().is_none() {
            let own = self.id();
            let others = family(own).unwrap_or_default().into_iter().map(|member| member.id);
            let others = others.filter(|id| *id != own);
            let others: Vec<Pid> =
                others.filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?)).collect();
            for &other in &others {
                // It may have ended already.
                let _ = kill_process(other, Signal::KILL);
            }
            let _ = self.kill();
            // Until the last has gone, it may write into a directory that is about to be removed.
            poll(TEST_TIMEOUT, || (!others.iter().any(|&other| lives(other))).then_some(()));
        }
        if thread::panicking() {
            let (name, out, error) = (&self.life.name, self.stdout.text(), self.stderr.text());
            eprintln!("{name} said:\n{out}{error}");
        }
    }
}

/// What the process and its outputs share: whether it lives.
struct Life {
    name: String,
    child: Mutex<Child>,
}

impl Life {
    fn child(&self) -> MutexGuard<'_, Child> {
        locked(&self.child)
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }
}

/// A test that has panicked still has to end its processes.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks again until there is an answer, for so long: soon at first, then more rarely.
fn poll<T>(longest: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let (started, mut pause) = (Instant::now(), Duration::from_micros(200));
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        let left = longest.checked_sub(started.elapsed())?;
        thread::sleep(pause.min(left));
        pause = (pause * 3 / 2).min(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::port::free_address;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn its_words_can_be_waited_for_and_are_kept() {
        let shell = shell("echo on 127.0.0.1:80, now; echo oh >&2; echo two; printf three; exit 3");
        assert_eq!(shell.stdout.wait_for_word("on ").unwrap(), "127.0.0.1:80");
        assert_eq!(shell.stdout.wait_for("w").unwrap(), "two");
        assert_eq!(shell.stdout.next_line().unwrap().as_deref(), Some("three"));
        assert_eq!(shell.stdout.next_line().unwrap(), None);
        assert_eq!(shell.wait_for_end().unwrap().code(), Some(3));
        assert_eq!(shell.stdout.text(), "on 127.0.0.1:80, now\ntwo\nthree");
        assert_eq!(shell.stderr.text(), "oh\n");
        let trouble = shell.stderr.wait_for("ah").unwrap_err().to_string();
        assert!(trouble.contains("\"ah\"") && trouble.contains("oh"), "{trouble}");
    }

    #[test]
    fn who_ends_before_serving_is_quoted() {
        let shell = shell("echo no such module; exit 3");
        let trouble = shell.wait_until_it_accepts(free_address().unwrap()).unwrap_err();
        let trouble = trouble.to_string();
        assert!(
            trouble.contains("exit status: 3") && trouble.ends_with("no such module"),
            "{trouble}"
        );
    }

    #[test]
    fn a_signal_reaches_it_and_nobody_after_its_end() {
        let shell = shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
        shell.stdout.wait_for("ready").unwrap();
        assert_eq!(shell.wait_for_end_within(Duration::ZERO), None);
        shell.signal(Signal::TERM);
        assert_eq!(shell.wait_for_end().unwrap().code(), Some(7));
        shell.signal(Signal::TERM);
        assert_eq!(shell.kill().unwrap().code(), Some(7), "it had ended before");
    }

    #[test]
    fn kill_9_is_told_as_such() {
        let status = shell("sleep 60").kill().unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn nobody_outlives_the_process() {
        let shell = shell("sleep 60 & echo child $!; wait");
        let child: i32 = shell.stdout.wait_for_word("child ").unwrap().parse().unwrap();
        let child = Pid::from_raw(child).unwrap();
        assert!(lives(child));
        drop(shell);
        assert!(!lives(child), "the child lives on");
    }

    #[test]
    fn an_absent_program_is_named() {
        let trouble = Process::start(&mut Command::new("/onceward-absent")).unwrap_err();
        assert!(trouble.to_string().starts_with("onceward-absent could not be started"));
    }
}
