//! A process that dies at each point between the order and its effect, one run for each point.
//!
//! `ONCEWARD_STEP='relay relay.send#2=abort'` does one of them.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use onceward_crash::messages::{Bug, Role};
use testbed::{Complaint, Process};

use super::{
    bench::{Bench, Engine, Extra, has_aborted},
    lanes::each_in_parallel,
};

/// Most of a run is waiting for a lease.
const LANES: usize = 8;

/// How long relays may take for five orders, on any machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The points that this matrix is about; `steps` has those of the store.
const PREFIXES: [&str; 7] =
    ["consumer.", "inbox.", "ledger.", "outbox.", "relay.", "shop.", "way."];

/// One thing that goes wrong at one point.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) role: Role,
    pub(crate) point: String,
    pub(crate) fault: &'static str,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}={}", self.role.name(), self.point, self.fault)
    }
}

/// Does it at every point of every role; gives the points.
pub(crate) fn survive_everything(engine: Engine) -> Vec<String> {
    let began = Instant::now();
    let points = recorded(engine);
    eprintln!("{} points of {engine:?}: {points:?}", points.len());
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let faults: &[&str] = if is_long { &["abort", "error", "late"] } else { &["abort"] };
    let steps: Vec<Step> = points
        .iter()
        .filter(|(_, point)| is_long || engine == Engine::Sqlite || is_early(point))
        .flat_map(|(role, point)| {
            faults.iter().map(|fault| Step { role: *role, point: point.clone(), fault })
        })
        .collect();
    let only = std::env::var("ONCEWARD_STEP").unwrap_or_default();
    let steps: Vec<Step> =
        steps.into_iter().filter(|step| step.to_string().contains(&only)).collect();
    let benches = Mutex::new(Vec::new());
    let outcomes = each_in_parallel(LANES, &steps, |step| run_or_tell(engine, &benches, step));
    eprintln!("{} runs on {engine:?} in {:.1?}", steps.len(), began.elapsed());
    let bad: Vec<_> = steps.iter().zip(outcomes).filter(|(_, bad)| !bad.is_empty()).collect();
    for (step, complaints) in &bad {
        eprintln!("{step}: {complaints:?}");
    }
    assert!(bad.is_empty(), "{} of {} runs are not well", bad.len(), steps.len());
    points.into_iter().map(|(_, point)| point).collect()
}

/// The first and the second time: in a usual run PostgreSQL, where a run takes longer, is done with them.
fn is_early(point: &str) -> bool {
    point.ends_with("#1") || point.ends_with("#2")
}

/// The points that a run passes when nothing goes wrong.
fn recorded(engine: Engine) -> Vec<(Role, String)> {
    let bench = Bench::new(engine);
    let record = |role| {
        let crashpoint = Some(format!("record={}", bench.record(role).display()));
        Extra { crashpoint, ..Extra::default() }
    };
    let deaths = go(&bench, &Role::ALL.map(|role| (role, record(role))));
    assert_eq!(deaths, Ok(0));
    assert_eq!(bench.complaints(), []);
    let mut points = Vec::new();
    for role in Role::ALL {
        let of_role = bench.recorded(role).into_iter();
        let of_role = of_role.filter(|point| PREFIXES.iter().any(|one| point.starts_with(one)));
        // Later renewals go by the clock.
        let of_role =
            of_role.filter(|point| !point.starts_with("relay.lease") || point.ends_with("#1"));
        points.extend(of_role.map(|point| (role, point)));
    }
    points
}

/// On a bench that another run has left, if there is one. What breaks in the bench is reported with the step.
fn run_or_tell(engine: Engine, benches: &Mutex<Vec<Bench>>, step: &Step) -> Vec<String> {
    let spare = benches.lock().unwrap().pop();
    let run = || {
        let bench = spare.unwrap_or_else(|| Bench::new(engine));
        let complaints = run(&bench, step);
        if complaints.is_empty() {
            benches.lock().unwrap().push(bench.emptied());
        }
        complaints
    };
    let broken = |_| vec!["the bench panicked, see above".to_owned()];
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(broken)
}

/// One run; everything that should not be.
fn run(bench: &Bench, step: &Step) -> Vec<String> {
    let (deaths, complaints) = outcome(bench, step, None);
    let mut said: Vec<String> = complaints.iter().map(|one| format!("{one:?}")).collect();
    match deaths {
        Ok(deaths) if deaths == u32::from(step.fault == "abort") => {}
        other => said.push(format!("of {} died {other:?}", step.role.name())),
    }
    said
}

/// How many processes died, and what the checker says.
pub(crate) fn outcome(
    bench: &Bench,
    step: &Step,
    bug: Option<Bug>,
) -> (Result<u32, String>, Vec<Complaint>) {
    let plan = |role| {
        let is_it = role == step.role;
        let crashpoint = is_it.then(|| format!("{}={}", step.point, step.fault));
        Extra { crashpoint, bug, ..Extra::default() }
    };
    let deaths = go(bench, &Role::ALL.map(|role| (role, plan(role))));
    (deaths, bench.complaints())
}

/// Orders, then delivers. A process that dies at a crash point is started again without it.
fn go(bench: &Bench, extras: &[(Role, Extra); 3]) -> Result<u32, String> {
    let [(_, produce), (_, relay), (_, consume)] = extras;
    let mut relay = relay.clone();
    relay.arguments.push("--drain".to_owned());
    let mut deaths = 0;
    let producer = bench.start(Role::Produce, produce);
    // One that dies of a fault that is no abort says so and ends: it is started again too.
    for attempt in 0..2 {
        let process = match attempt {
            0 => &producer,
            _ => &bench.start(Role::Produce, &Extra { crashpoint: None, ..produce.clone() }),
        };
        let ended = process.wait_for_end().unwrap();
        deaths += u32::from(has_aborted(ended));
        if ended.success() {
            break;
        }
        assert!(attempt == 0, "the second producer ended {ended}: {}", process.state());
    }
    let mut consumer = bench.start(Role::Consume, consume);
    let mut relaying = bench.start(Role::Relay, &relay);
    let began = Instant::now();
    loop {
        if let Some(ended) = relaying.ended() {
            if ended.success() {
                break;
            }
            deaths += died(&relaying)?;
            relaying = bench.start(Role::Relay, &Extra { crashpoint: None, ..relay.clone() });
        }
        if consumer.ended().is_some() {
            deaths += died(&consumer)?;
            consumer = bench.start(Role::Consume, &Extra { crashpoint: None, ..consume.clone() });
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("not all is delivered: {}", relaying.state()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    consumer.kill().unwrap();
    Ok(deaths)
}

fn died(process: &Process) -> Result<u32, String> {
    match process.ended() {
        Some(status) if has_aborted(status) => Ok(1),
        _ => Err(process.state()),
    }
}
