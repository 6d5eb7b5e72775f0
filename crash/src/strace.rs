//! Runs strace beside a process: records its system calls, kills it at one, or lets one fail.
//!
//! strace counts the calls of each thread and of each name by themselves. So a place in a run is a
//! thread, a name and a number, and a fault is injected by attaching to that one thread.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use testbed::{Process, Signal};

/// Every call that can change what a file system holds, or when it becomes durable.
///
/// `openat` counts only where it may create a file: see [`Call::mutates`]. Memory that is mapped
/// changes without a call; SQLite maps nothing but its shared memory, which a crash empties.
/// A question mark lets strace overlook a call that the processor's Linux does not have.
pub const MUTATING: &str = "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,\
    msync,ftruncate,truncate,fallocate,copy_file_range,openat,?open,?creat,?mkdir,mkdirat,?rmdir,\
    ?unlink,unlinkat,?rename,?renameat,renameat2,?link,linkat,?symlink,symlinkat,fchmod,fchown";

/// By then every thread has its name.
const NAMED: Duration = Duration::from_secs(10);

/// What is done to a thread when it makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The whole process is killed before the call does anything.
    Kill,
    /// The call does nothing and fails once, with this error.
    Once(&'static str),
    /// This call and all later ones of the same name do nothing and fail with this error.
    FromThenOn(&'static str),
}

/// A place in the run of a thread: the `number`-th call of that name, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSite {
    /// The name of the thread.
    pub thread: String,
    /// The name of the call.
    pub call: String,
    /// Counted from the moment at which strace attaches.
    pub number: u32,
}

impl CallSite {
    /// The expression for strace that injects a fault here.
    #[must_use]
    pub fn inject(&self, fault: Fault) -> String {
        let Self { call, number, .. } = self;
        match fault {
            Fault::Kill => format!("inject={call}:signal=KILL:when={number}"),
            Fault::Once(error) => format!("inject={call}:error={error}:when={number}"),
            Fault::FromThenOn(error) => format!("inject={call}:error={error}:when={number}+"),
        }
    }
}

/// A running strace; dropping it detaches it.
pub struct Strace {
    process: Process,
}

impl Strace {
    /// Records the mutating calls of all threads of a process.
    pub fn record(process: u32, into: &Path) -> Result<Self, String> {
        Self::trace(process, &["-f", "-y", "-e", &format!("trace={MUTATING}")], into)
    }

    /// Injects a fault at a place of a running process.
    pub fn inject(
        process: u32,
        site: &CallSite,
        fault: Fault,
        into: &Path,
    ) -> Result<Self, String> {
        let thread = thread(process, &site.thread)?;
        let (trace, inject) = (format!("trace={}", site.call), site.inject(fault));
        Self::trace(thread, &["-y", "-e", &trace, "-e", &inject], into)
    }

    /// Traces a process or a thread; when this returns, nothing that it does is missed any more.
    pub fn trace(process: u32, options: &[&str], into: &Path) -> Result<Self, String> {
        let mut command = Command::new("strace");
        command.arg("-o").arg(into).args(options).args(["-p", &process.to_string()]);
        let strace = Self { process: Process::start(&mut command)? };
        match strace.process.stderr.next_line()? {
            Some(line) if line.contains(" attached") => Ok(strace),
            line => Err(format!("strace did not attach: {}", line.unwrap_or_default())),
        }
    }

    /// Lets the process go on untraced.
    pub fn detach(self) {
        self.process.signal(Signal::TERM);
        self.wait();
    }

    /// Waits until the traced process has ended.
    pub fn wait(self) {
        // Dropping the process kills what does not end.
        let _ = self.process.wait_for_end();
    }
}

/// A thread takes its name when it first runs, which may be after the process says that it is ready.
fn thread(process: u32, name: &str) -> Result<u32, String> {
    let start = Instant::now();
    loop {
        let found = threads(process)?.into_iter().find(|(_, found)| found == name);
        match found {
            Some((thread, _)) => return Ok(thread),
            None if start.elapsed() > NAMED => return Err(format!("there is no thread {name}")),
            None => sleep(Duration::from_millis(1)),
        }
    }
}

/// The threads of a process with their names, of which Linux keeps 15 bytes.
pub fn threads(process: u32) -> Result<Vec<(u32, String)>, String> {
    let directory = PathBuf::from(format!("/proc/{process}/task"));
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let name = |thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/comm")).ok();
    let named = numbers.filter_map(|number| Some((number, name(number)?.trim().to_owned())));
    Ok(named.collect())
}

/// A system call in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the thread.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its arguments, as strace writes them.
    pub arguments: String,
}

impl Call {
    /// Whether it may change a file below this directory, or what the process says on stdout.
    #[must_use]
    pub fn mutates(&self, directory: &Path) -> bool {
        let creates = !self.name.starts_with("open") || self.arguments.contains("O_CREAT");
        creates && (self.says() || self.is_below(directory))
    }

    /// Whether the process says something on stdout.
    #[must_use]
    pub fn says(&self) -> bool {
        self.name == "write" && self.arguments.starts_with("1<")
    }

    /// Whether its arguments name a file below this directory.
    #[must_use]
    pub fn is_below(&self, directory: &Path) -> bool {
        directory.to_str().is_some_and(|directory| self.arguments.contains(directory))
    }

    /// Whether it makes something durable.
    #[must_use]
    pub fn syncs(&self) -> bool {
        self.name == "fsync" || self.name == "fdatasync"
    }
}

/// One moment of a trace: calls of several threads overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The call was made; what it does may have happened from now on.
    Begun(Call),
    /// The call returned this; what it does has happened.
    Ended(Call, i64),
}

/// Reads a record in the order in which it was written.
#[must_use]
pub fn parse(record: &str) -> Vec<Moment> {
    let mut open = HashMap::new();
    let mut moments = Vec::new();
    for line in record.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let (Ok(thread), text) = (thread.parse::<u32>(), text.trim_start()) else { continue };
        if text.starts_with("<... ") {
            let call = open.remove(&thread);
            if let (Some(call), Some(result)) = (call, result(text)) {
                moments.push(Moment::Ended(call, result));
            }
        } else if let Some((name, rest)) = text.split_once('(') {
            let call = |arguments: &str| Call {
                thread,
                name: name.to_owned(),
                arguments: arguments.trim_end().to_owned(),
            };
            if let Some(arguments) = rest.strip_suffix("<unfinished ...>") {
                open.insert(thread, call(arguments));
                moments.push(Moment::Begun(call(arguments)));
            } else if let (Some((arguments, _)), Some(result)) =
                (rest.rsplit_once(") "), result(rest))
            {
                moments.push(Moment::Begun(call(arguments)));
                moments.push(Moment::Ended(call(arguments), result));
            }
        }
    }
    moments
}

/// The number behind the last equals sign; `None`: the process was killed in the call.
fn result(text: &str) -> Option<i64> {
    let (_, result) = text.rsplit_once("= ")?;
    let end = result.find(|letter: char| !letter.is_ascii_digit() && letter != '-');
    result[..end.unwrap_or(result.len())].parse().ok()
}

/// The places of those calls in a record that are chosen, each thread by its name.
#[must_use]
pub fn call_sites(
    record: &[Moment],
    names: &[(u32, String)],
    chosen: impl Fn(&Call) -> bool,
) -> Vec<CallSite> {
    let mut numbers: HashMap<(u32, &str), u32> = HashMap::new();
    let mut call_sites = Vec::new();
    for moment in record {
        let Moment::Begun(call) = moment else { continue };
        let number = numbers.entry((call.thread, &call.name)).or_default();
        *number += 1;
        if chosen(call) {
            let named = names.iter().find(|(thread, _)| *thread == call.thread);
            // A thread that came later has a place too, so that it is not overlooked.
            let thread = named.map_or_else(|| call.thread.to_string(), |(_, name)| name.clone());
            call_sites.push(CallSite { thread, call: call.name.clone(), number: *number });
        }
    }
    call_sites
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_calls_are_put_together_again() {
        let record = "7 fsync(3</d/a> <unfinished ...>\n\
                      8 write(1<pipe:[5]>, \"ack = k) \\n\", 4) = 4\n\
                      7 <... fsync resumed>)              = -1 EIO (Input/output error) (INJECTED)\n\
                      8 openat(AT_FDCWD</>, \"/d/b\", O_RDWR|O_CREAT, 0644) = 9</d/b>\n\
                      8 +++ exited with 0 +++\n";
        let moments = parse(record);
        let [Moment::Begun(sync), Moment::Begun(write), Moment::Ended(_, 4), rest @ ..] =
            &moments[..]
        else {
            panic!("{moments:?}");
        };
        assert!(sync.syncs() && sync.mutates(Path::new("/d")) && write.mutates(Path::new("/d")));
        let [Moment::Ended(_, -1), Moment::Begun(open), Moment::Ended(_, 9)] = rest else {
            panic!("{rest:?}");
        };
        assert!(open.mutates(Path::new("/d")) && !open.mutates(Path::new("/e")));

        let names = [(7, "writer".to_owned()), (8, "main".to_owned())];
        let call_sites = call_sites(&moments, &names, Call::syncs);
        let expected = CallSite { thread: "writer".into(), call: "fsync".into(), number: 1 };
        assert_eq!(call_sites, [expected]);
    }
}
