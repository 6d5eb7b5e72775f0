//! What the process used, and figures about many samples.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What this process has used since it started.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    cpu: Duration,
    written_bytes: Option<u64>,
}

impl Usage {
    /// Reads it now.
    pub(crate) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = Duration::from_secs(cpu.tv_sec.try_into().unwrap_or(0));
        let nanos = Duration::from_nanos(cpu.tv_nsec.try_into().unwrap_or(0));
        Self { cpu: seconds + nanos, written_bytes: written_bytes() }
    }

    /// User and system time since then, of all threads.
    pub(crate) fn cpu_since(self, earlier: Self) -> Duration {
        self.cpu.saturating_sub(earlier.cpu)
    }

    /// Bytes sent towards the disk since then; `None` where the system does not tell.
    pub(crate) fn written_since(self, earlier: Self) -> Option<u64> {
        Some(self.written_bytes?.saturating_sub(earlier.written_bytes?))
    }
}

/// Linux counts a page each time it becomes dirty: what the disk gets, but for its journal.
fn written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
}

/// Waits until the process has nothing left to do, like a checkpoint that a store does later.
///
/// So the next cell does not pay for this one, and this one is charged with what it put off.
pub(crate) fn wait_until_idle() {
    const QUIET: Duration = Duration::from_millis(300);
    const AT_MOST: Duration = Duration::from_secs(5);
    const IDLE_CPU: Duration = Duration::from_millis(10);

    let started = Instant::now();
    let mut before = Usage::now();
    while started.elapsed() < AT_MOST {
        std::thread::sleep(QUIET);
        let now = Usage::now();
        if now.cpu_since(before) < IDLE_CPU && now.written_since(before).unwrap_or(0) == 0 {
            return;
        }
        before = now;
    }
}

/// Watches how much of the machine others use while something is measured.
pub(crate) struct Others {
    started: Instant,
    usage: Usage,
    machine: Option<Ticks>,
}

impl Others {
    /// Starts to watch.
    pub(crate) fn watch() -> Self {
        Self { started: Instant::now(), usage: Usage::now(), machine: Ticks::now() }
    }

    /// The share of all cores that others, the kernel's own threads included, have used since then.
    pub(crate) fn share(&self) -> Option<f64> {
        let (before, now) = (self.machine?, Ticks::now()?);
        let busy = 1.0 - (now.idle - before.idle) / (now.all - before.all);
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let own = Usage::now().cpu_since(self.usage).as_secs_f64();
        Some((busy - own / self.started.elapsed().as_secs_f64() / cores).max(0.0))
    }
}

/// How long the cores of the machine have run, and how much of it they had nothing to do.
#[derive(Clone, Copy)]
struct Ticks {
    all: f64,
    idle: f64,
}

impl Ticks {
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        // The fourth is idle time, the fifth is idle time with a disk at work.
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }
}

/// Keeps all threads of this process, and those they start, on one core until it is dropped.
pub(crate) struct OneCore {
    #[cfg(target_os = "linux")]
    before: rustix::thread::CpuSet,
}

#[cfg(target_os = "linux")]
impl OneCore {
    /// Confines the process; `None` where that is not possible.
    pub(crate) fn confine() -> Option<Self> {
        let before = rustix::thread::sched_getaffinity(None).ok()?;
        let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| before.is_set(core))?;
        let mut one = rustix::thread::CpuSet::new();
        one.set(core);
        confine_threads(&one)?;
        Some(Self { before })
    }
}

#[cfg(target_os = "linux")]
impl Drop for OneCore {
    fn drop(&mut self) {
        // It worked a moment ago; if not now, the rest of the run is slow but not wrong.
        let _ = confine_threads(&self.before);
    }
}

#[cfg(target_os = "linux")]
fn confine_threads(to: &rustix::thread::CpuSet) -> Option<()> {
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let id = task.ok()?.file_name().to_str()?.parse().ok()?;
        // A thread may have ended since it was listed.
        let _ = rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(id), to);
    }
    Some(())
}

#[cfg(not(target_os = "linux"))]
impl OneCore {
    /// Confines the process; `None` where that is not possible.
    pub(crate) fn confine() -> Option<Self> {
        None
    }
}

/// The middle one of some figures, or the mean of the middle two; `None` if there are none.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    match figures.len() % 2 {
        0 => Some(f64::midpoint(figures[figures.len() / 2 - 1], upper)),
        _ => Some(upper),
    }
}

/// The figure that this share of the figures does not exceed.
pub(crate) fn share_below(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The duration that this share of the sorted durations does not exceed; zero if there are none.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn shares() {
        assert_eq!(share_below(&[], 0.5), None);
        let figures: Vec<_> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(share_below(&figures, 0.0), Some(1.0));
        assert_eq!(share_below(&figures, 0.9), Some(9.0));
    }

    #[test]
    fn quantiles() {
        let durations: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&durations, 0.5), Duration::from_millis(100));
        assert_eq!(quantile(&durations, 0.99), Duration::from_millis(198));
        assert_eq!(quantile(&durations, 1.0), Duration::from_millis(200));
        assert_eq!(quantile(&durations[..1], 0.5), Duration::from_millis(1));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn work_is_seen_as_usage() {
        let before = Usage::now();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(20) {}
        assert!(Usage::now().cpu_since(before) > Duration::ZERO);
    }
}
