//! The directory in which a server lives, and the end of everything in it.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::account;
use crate::directory;
use crate::tool::Trouble;

/// A temporary directory whose inhabitants, the programs that work in it, die with the program that made it.
///
/// A shell waits for the end of a pipe that only this program holds. The pipe ends when the home is dropped,
/// and also when the program exits, panics or is killed: then the shell kills whatever works in the
/// directory, and removes it. A signal at the death of the parent would not do: Linux sends it when the
/// *thread* ends that started the child, and every test has a thread of its own.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    watcher: Child,
}

/// New programs may appear while others are killed, so it looks until there are none.
const WATCH: &str = r#"
trap '' HUP INT TERM
read -r _
tries=0
while [ "$tries" -lt 100 ]; do
  found=$(find /proc -maxdepth 2 -name cwd \( -lname "$1" -o -lname "$1/*" \) 2>/dev/null)
  [ -n "$found" ] || break
  for link in $found; do
    number=${link#/proc/}
    kill -9 "${number%/cwd}" 2>/dev/null
  done
  tries=$((tries + 1))
  sleep 0.02
done
rm -rf "$1"
"#;

impl Home {
    /// Makes it, for servers to live in.
    ///
    /// ```
    /// let home = testbed::Home::new()?;
    /// assert!(home.path().is_dir());
    /// # Ok::<(), testbed::Trouble>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When no directory can be made, or no shell be started.
    pub fn new() -> Result<Self, Trouble> {
        Self::within(&directory::place())
    }

    /// Makes it on a disk, for what is measured: [`new`](Self::new) prefers memory, as
    /// [`directory`](crate::directory()) does.
    ///
    /// # Errors
    ///
    /// When no directory can be made, or no shell be started.
    pub fn on_disk() -> Result<Self, Trouble> {
        Self::within(&env::temp_dir())
    }

    fn within(place: &Path) -> Result<Self, Trouble> {
        let failed = |error| Trouble::new(format!("no temporary directory for a server: {error}"));
        let made = tempfile::Builder::new().prefix("onceward-").tempdir_in(place);
        let directory = made.map_err(failed)?;
        account::give(directory.path()).map_err(failed)?;
        // Links are resolved, because that is how the system tells where a program works.
        let path = directory.path().canonicalize().map_err(failed)?;
        let watcher = Command::new("/bin/sh")
            .args(["-c", WATCH, "watcher"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the keyboard is for us; the shell has to outlive it.
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::new(format!("/bin/sh could not be started: {error}")))?;
        // From here on the shell removes it.
        let _ = directory.keep();
        Ok(Self { path, watcher })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// The programs that work in a directory or below; one that has ended works nowhere.
pub(crate) fn inhabitants(directory: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let inside = |path: &Path| {
        fs::read_link(path.join("cwd")).is_ok_and(|place| place.starts_with(directory))
    };
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            inside(&entry.path()).then(|| Pid::from_raw(number))?
        })
        .collect()
}

/// Sends a signal to all of them; one that has just ended does not need it.
pub(crate) fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::wait_for;

    fn sleeper(directory: &Path) -> Child {
        Command::new("sleep").arg("600").current_dir(directory).spawn().unwrap()
    }

    #[test]
    fn whatever_works_in_a_home_dies_with_it() {
        let home = Home::new().unwrap();
        let place = home.path().to_owned();
        fs::create_dir(place.join("inner")).unwrap();
        let mut children = [sleeper(&place), sleeper(&place.join("inner"))];
        assert_eq!(inhabitants(&place).len(), 2);
        assert_eq!(inhabitants(&place.join("inner")).len(), 1);
        drop(home);
        for child in &mut children {
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
                Some(9)
            );
        }
        assert!(!place.exists());
    }

    #[test]
    fn a_home_ends_when_its_program_is_killed() {
        // The test program itself cannot be killed, so the pipe is ended the way the system would end it.
        let mut home = Home::new().unwrap();
        let (place, mut child) = (home.path().to_owned(), sleeper(home.path()));
        drop(home.watcher.stdin.take());
        assert!(!child.wait().unwrap().success());
        let gone = || Ok((!place.exists()).then_some(()));
        wait_for("the home is still there", gone).unwrap();
    }
}
