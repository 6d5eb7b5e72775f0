//! Processes that are started for a run, what they use, and their end.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(30);

/// How long one may take to vanish after it was killed.
const END: Duration = Duration::from_secs(5);

/// A process and all that it starts; none of them outlives this value.
///
/// They stay in the process group of the benchmark, so that Ctrl-C reaches them too.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; what it says goes to a file in this directory.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{name} could not be started: {error}"))?;
        Ok(Self { name, child, log })
    }

    /// Waits until it has said something that begins like this; gives the next word.
    pub(crate) async fn says(&mut self, beginning: &str) -> Result<String, Failure> {
        let started = Instant::now();
        loop {
            let text = std::fs::read_to_string(&self.log)?;
            let whole_lines = &text[..text.rfind('\n').unwrap_or(0)];
            let said = whole_lines.lines().find_map(|line| line.strip_prefix(beginning));
            if let Some(word) = said.and_then(|rest| rest.split_whitespace().next()) {
                return Ok(word.trim_end_matches(',').to_owned());
            }
            self.must_live(started)?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it says where it listens.
    pub(crate) async fn listens(&mut self) -> Result<SocketAddr, Failure> {
        Ok(self.says("listening on http://").await?.parse()?)
    }

    /// Waits until somebody accepts connections there.
    pub(crate) async fn accepts(&mut self, address: SocketAddr) -> Result<(), Failure> {
        let started = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            self.must_live(started)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn must_live(&mut self, started: Instant) -> Result<(), Failure> {
        let ended = self.child.try_wait()?;
        if ended.is_none() && started.elapsed() < START {
            return Ok(());
        }
        let what = ended.map_or("does not serve".to_owned(), |status| format!("ended ({status})"));
        Err(format!("{} {what}: {}", self.name, self.last_words()).into())
    }

    /// Whether it lives, and what it said last: for a message that says what went wrong.
    pub(crate) fn state(&self) -> String {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let state = if id.is_some_and(lives) { "lives" } else { "has ended" };
        format!("{} {state} and said last: {}", self.name, self.last_words())
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(3).collect();
        last.reverse();
        last.join(" / ")
    }

    /// User and system time of it and all that it started; `None` where the system does not tell.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let ticks: u64 = family(self.child.id())?.iter().map(|member| member.ticks).sum();
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Duration::from_secs_f64(seconds))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let parent = self.child.id();
        let children = family(parent).unwrap_or_default();
        let children = children.iter().filter(|member| member.id != parent);
        let children: Vec<Pid> =
            children.filter_map(|member| Pid::from_raw(i32::try_from(member.id).ok()?)).collect();
        for &child in &children {
            // It may have ended already.
            let _ = kill_process(child, Signal::KILL);
        }
        // Fails only if it has ended already; both calls are harmless then.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Until the last has gone, it may write into a directory that is about to be removed.
        let started = Instant::now();
        while children.iter().any(|&child| lives(child)) && started.elapsed() < END {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether a process can still do something; one that nobody waited for cannot.
fn lives(id: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

/// A process as Linux lists it.
struct Member {
    id: u32,
    parent: u32,
    ticks: u64,
    /// Those of its children that have ended.
    of_ended: u64,
}

/// User and system time of a process, of those that descend from it, and of its children that have ended;
/// `None` where the system does not tell.
pub(crate) fn cpu_with_ended(ancestor: u32) -> Option<Duration> {
    let family = family(ancestor)?;
    let ticks: u64 = family.iter().map(|member| member.ticks + member.of_ended).sum();
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// A process and those that descend from it; `None` where there is no list.
fn family(ancestor: u32) -> Option<Vec<Member>> {
    let ids = std::fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let id = entry.ok()?.file_name().to_str()?.parse().ok()?;
        member(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    });
    let (mut family, mut others): (Vec<_>, Vec<_>) = ids.partition(|one| one.id == ancestor);
    let mut grown = true;
    while grown {
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| family.iter().any(|member| member.id == one.parent));
        grown = !children.is_empty();
        family.extend(children);
        others = rest;
    }
    Some(family)
}

fn member(id: u32, stat: &str) -> Option<Member> {
    // The name, in parentheses, may contain anything; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = u32::try_from(number(1)?).ok()?;
    // The two behind them are of children that have ended.
    let (ticks, of_ended) = (number(11)? + number(12)?, number(13)? + number(14)?);
    Some(Member { id, parent, ticks, of_ended })
}

/// A port on which nobody listens at the moment.
pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "77 (a) b) S 12 77 77 0 -1 4194560 1 0 0 0 30 4 5 1 20 0 1 0 5 6 7";
        let member = member(77, stat).unwrap();
        assert_eq!((member.id, member.parent), (77, 12));
        assert_eq!((member.ticks, member.of_ended), (34, 6));
    }

    #[test]
    fn nobody_outlives_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo child $!; wait"]);
        let mut shell = Process::start("shell", &mut command, directory.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let child: u32 = runtime.block_on(shell.says("child ")).unwrap().parse().unwrap();
        assert_eq!(family(child).unwrap().len(), 1);
        drop(shell);
        assert!(!lives(Pid::from_raw(child.cast_signed()).unwrap()), "the child lives on");
    }
}
