//! A brown-out that outlasts its cause (Bronson 2021; Huang and others, OSDI 2022).
//!
//! A hundred client processes send 850 requests a second, as chance will have it, to a server that can
//! take 1,000. For ten seconds it takes a fifth of that. An attempt times out after 200 ms, a call after
//! 1 s. In front of the server is a queue, first in first out and without end; a request leaves it when
//! it is its turn and is answered then, so that all latency is waiting. A server that does not know
//! the time-outs works off requests for which no client waits any more, and with retries there are
//! always more of them: the metastable state. A server that knows each attempt's deadline drops what has
//! expired when its turn comes, which costs it nothing.
//!
//! By choice the work itself takes the server's time, without memory and with the same mean, and only then
//! comes the answer: that is harder, because such a queue serves what is about to expire.

mod fleet;

use super::{
    Setting,
    agenda::{MILLISECOND, Nanos, SECOND, seconds},
    chart::{Axis, Chart, Line},
    ours::{self, Ours},
    peers::{self, Limits},
    policy::Contender,
    random::Random,
    row::{Findings, Row},
};
use fleet::{Course, Expired, Service};

pub(super) const CLIENTS: u32 = 100;
pub(super) const GAP: Nanos = SECOND / 850;
pub(super) const LASTS: Nanos = 120 * SECOND;
const TRIGGER: (Nanos, Nanos) = (10 * SECOND, 20 * SECOND);
const GOOD: f64 = 0.985;
/// In the steps of the bins of a course.
const A_SECOND: usize = (SECOND / Course::BIN) as usize;

pub(super) fn turn(now: Nanos) -> Nanos {
    if (TRIGGER.0..TRIGGER.1).contains(&now) { 5 * MILLISECOND } else { MILLISECOND }
}

pub(super) fn run(setting: &mut Setting<'_>) -> Findings {
    let attempts = setting.attempts.unwrap_or(4);
    let mut rows = Vec::new();
    let service = if setting.service_time { Service::TakesTime } else { Service::AtItsTurn };
    let mut courses = Vec::new();
    for (number, (contender, expired)) in contenders(attempts).into_iter().enumerate() {
        setting.progress(contender.name);
        let mut random = Random::new(setting.seed, number as u64);
        let course = fleet::run(&contender, expired, service, &mut random);
        rows.push(row(&contender, &course));
        courses.push((contender, course));
    }
    Findings { rows, charts: charts(&courses) }
}

fn contenders(attempts: u32) -> Vec<(Contender, Expired)> {
    let (attempt_timeout, deadline) = (200 * MILLISECOND, SECOND);
    let limits = Limits { attempts, attempt_timeout, deadline };
    let rules = ours::timed(attempts, attempt_timeout, deadline);
    let client_alone = {
        let rules = rules.clone();
        Contender::new("onceward, no drop", move |_| Ours::new(&rules))
    };
    let mut all = vec![(peers::none(limits), Expired::Kept)];
    all.extend(peers::all(limits).into_iter().map(|peer| (peer, Expired::Kept)));
    let dropped = |name, contender: Contender| (Contender { name, ..contender }, Expired::Dropped);
    all.push(dropped("no retries + drop", peers::none(limits)));
    let retries = peers::all(limits).swap_remove(0);
    all.push(dropped("plain retries + drop", retries));
    all.push((client_alone, Expired::Kept));
    let unbroken = ours::unbroken(&rules);
    let without = Contender::new("onceward, no breaker", move |_| Ours::new(&unbroken));
    all.push((without, Expired::Dropped));
    let whole = Contender::new("onceward", move |_| Ours::new(&rules)).ours();
    all.push((whole, Expired::Dropped));
    all
}

fn row(contender: &Contender, course: &Course) -> Row {
    let calls: u32 = course.arrived.iter().sum();
    let successes: u32 = course.succeeded.iter().sum();
    let recovery = recovery(course);
    Row {
        clients: Some(CLIENTS),
        calls: Some(f64::from(course.attempts.iter().sum::<u32>())),
        load: Some(f64::from(course.attempts.iter().sum::<u32>()) / f64::from(calls)),
        success: Some(f64::from(successes) / f64::from(calls)),
        recovery_s: recovery.map(seconds),
        recovered: Some(recovery.is_some()),
        goodput: Some(goodput(course)),
        ..Row::new(contender.name, contender.ours)
    }
}

/// The share of the requests of the second from this bin on that succeed in the end.
fn share(course: &Course, bin: usize) -> f64 {
    let second = bin..bin + A_SECOND;
    let arrived: u32 = course.arrived[second.clone()].iter().sum();
    let succeeded: u32 = course.succeeded[second].iter().sum();
    f64::from(succeeded) / f64::from(arrived.max(1))
}

/// After which time every second is a good one, to the end of the run; none if there is no such time.
fn recovery(course: &Course) -> Option<Nanos> {
    let (end, last) = ((TRIGGER.1 / Course::BIN) as usize, course.arrived.len() - A_SECOND);
    match (end..=last).rfind(|bin| share(course, *bin) < GOOD) {
        None => Some(0),
        Some(bin) if bin == last => None,
        Some(bin) => Some((bin + 1 - end) as Nanos * Course::BIN),
    }
}

fn goodput(course: &Course) -> f64 {
    let first = (TRIGGER.1 / Course::BIN) as usize + A_SECOND;
    let shares = (first..=course.arrived.len() - A_SECOND).map(|bin| share(course, bin));
    shares.fold(1.0, f64::min)
}

fn charts(courses: &[(Contender, Course)]) -> Vec<Chart> {
    let lines = |value: fn(&Course, usize) -> f64| -> Vec<Line> {
        let line = |(contender, course): &(Contender, Course)| {
            // Without the last second, into which the retries after the end are counted.
            let seconds = 0..course.arrived.len() / A_SECOND - 1;
            let points = seconds.map(|second| (second as f64 + 0.5, value(course, second)));
            Line::new(contender.name, contender.ours, points.collect())
        };
        courses.iter().map(line).collect()
    };
    let shade = Some((seconds(TRIGGER.0), seconds(TRIGGER.1), "1/5 capacity"));
    let chart = |file: &str, title: &str, y, lines| {
        let (file, title) = (format!("metastable-{file}"), format!("Brown-out of 10 s: {title}"));
        let (x, y) = (Axis::linear("seconds"), Axis::linear(y));
        Chart { shade, ..Chart::new(&file, &title, x, y, lines) }
    };
    let attempts = lines(|course, second| per_second(&course.attempts, second));
    let succeeded = lines(|course, second| per_second(&course.succeeded, second));
    let (by_time, latency) = (
        "requests that succeed, by the time they were made",
        "time to the end of a call, 99th percentile",
    );
    vec![
        chart("load", "attempts that reach the server", "attempts / s", attempts),
        chart("goodput", by_time, "requests / s", succeeded),
        chart("latency", latency, "ms", lines(Course::latency_p99)),
    ]
}

fn per_second(counts: &[u32], second: usize) -> f64 {
    f64::from(counts[second * A_SECOND..(second + 1) * A_SECOND].iter().sum::<u32>())
}
