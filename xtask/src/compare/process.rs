//! Processes that are started for a peer, and their end.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(30);

/// A process that does not outlive this value.
///
/// It stays in the process group of this tool, so that Ctrl-C reaches it too.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; what it says goes to a file in its directory.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        home: &Path,
    ) -> Result<Self, String> {
        let unstarted = |error| format!("{name} could not be started: {error}");
        let log = home.join(format!("{name}.log"));
        let file = File::create(&log).map_err(unstarted)?;
        let also = file.try_clone().map_err(unstarted)?;
        command.stdin(Stdio::null()).stdout(file).stderr(also);
        let child = command.spawn().map_err(unstarted)?;
        Ok(Self { name, child, log })
    }

    /// Waits until somebody accepts connections there.
    pub(crate) fn accepts(&mut self, address: SocketAddr) -> Result<(), String> {
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > START {
                let what =
                    ended.map_or("does not serve".into(), |status| format!("ended ({status})"));
                return Err(format!("{} {what}: {}", self.name, self.last_words()));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(3).collect();
        last.reverse();
        last.join(" / ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended already; both calls are harmless then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port on which nobody listens at the moment.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("there is no free port: {error}"))
}

/// The answer to a request, from its status line on.
pub(crate) fn post(to: SocketAddr, path: &str, document: &str) -> Result<String, String> {
    let unanswered = |error| format!("{path} did not answer: {error}");
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{document}",
        document.len()
    );
    let mut stream = TcpStream::connect(to).map_err(unanswered)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(unanswered)?;
    stream.write_all(request.as_bytes()).map_err(unanswered)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(unanswered)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_before_serving_is_quoted() {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such module; exit 3"]);
        let mut shell = Process::start("shell", &mut command, home.path()).unwrap();
        let reason = shell.accepts(free_address().unwrap()).unwrap_err();
        assert!(
            reason.contains("exit status: 3") && reason.ends_with("no such module"),
            "{reason}"
        );
    }
}
