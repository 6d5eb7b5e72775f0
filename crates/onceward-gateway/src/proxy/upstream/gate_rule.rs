//! The rule that the gate is for: an operator may say *never* from the last write of a record + `max_run` +
//! lease on, by the store's clock, and no byte of the request leaves from then on.
//!
//! Both sides are the shipped ones, [`Gate`] and [`Repair`]. Between them is every schedule: each wait of
//! a request takes any number of ticks, and the operator comes at the first moment that the core allows.
//! Each mutant is a known mistake, which some schedule must show.

use std::time::Duration;

use onceward::{
    Effect, Execution, Fingerprint, Key, OperationId, OperationName, Request, Resolution, Scope,
    Terms, Timestamp,
    protocol::{Admission, Fence, Force, Record, Repair, RepairKind, Started, Stored, Ttl},
};
use tokio::time::{Instant, sleep_until};

use super::*;

const TICK: Duration = Duration::from_millis(100);
/// After so many ticks everything has happened that can happen.
const END: u32 = 8;
const LEASE: u32 = 1;
const MAX_RUN: u32 = 3;

/// When the steps of one request are taken, in ticks after its claim was asked for.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// The store writes the claim.
    stored: u32,
    /// The owner hears of it.
    heard: u32,
    /// It is about to connect.
    asked: u32,
    /// There is a connection, and a place on it.
    connected: u32,
    /// The upstream takes the head, and then the rest.
    head: u32,
    rest: u32,
}

impl Schedule {
    fn all() -> Vec<Self> {
        let mut all = vec![vec![]];
        for _ in 0..6 {
            let longer = |steps: Vec<u32>| {
                let from = steps.last().copied().unwrap_or(0);
                (from..=END).map(move |next| [steps.clone(), vec![next]].concat())
            };
            all = all.into_iter().flat_map(longer).collect();
        }
        let named = |steps: Vec<u32>| match steps[..] {
            [stored, heard, asked, connected, head, rest] => {
                Self { stored, heard, asked, connected, head, rest }
            }
            _ => unreachable!("there are six steps"),
        };
        all.into_iter().map(named).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// The owner looks at its deadline, and then waits for a connection.
    CheckedBeforeConnecting,
    /// The owner looks at its deadline when there is a connection, and not at each write.
    CheckedBeforeTheHead,
    /// The owner counts from when it heard of its claim.
    CountedFromTheAnswer,
    /// The operator goes by its own configuration, and not by the owner's.
    MaxRunOfTheReader,
}

/// When bytes of the request leave, in ticks.
async fn sent(schedule: Schedule, mutant: Mutant) -> Vec<u32> {
    let begun = Instant::now();
    let at = |tick: u32| sleep_until(begun + TICK * tick);
    let deadline = Deadline::within(TICK * MAX_RUN);
    at(schedule.heard).await;
    let deadline = match mutant {
        Mutant::CountedFromTheAnswer => Deadline::within(TICK * MAX_RUN),
        _ => deadline,
    };
    at(schedule.asked).await;
    if deadline.is_over() {
        return Vec::new();
    }
    at(schedule.connected).await;
    let gate = Arc::<Gate>::default();
    let pass = match gate.begin(deadline) {
        _ if mutant == Mutant::CheckedBeforeConnecting => None,
        Ok(_) if mutant == Mutant::CheckedBeforeTheHead => None,
        Ok(pass) => Some(pass),
        Err(Late) => return Vec::new(),
    };
    // What has no pass writes past the gate.
    let gate = if pass.is_some() { gate } else { Arc::default() };
    let mut sent = Vec::new();
    for tick in [schedule.head, schedule.rest] {
        at(tick).await;
        if let Poll::Ready(Err(_)) = gate.write(|| Poll::Ready(Ok(1))) {
            break;
        }
        sent.push(tick);
    }
    sent
}

/// The first tick at which the core lets an operator with these terms say *never*, without force.
fn free(schedule: Schedule, claimed: &Record, reader: &Terms) -> u32 {
    // The store's clock shows something else; only that it runs matters.
    let time = |tick: u32| Timestamp::from_unix_micros(1_700_000_000_000_000).plus(TICK * tick);
    let is_free = |tick: &u32| {
        let left = (TICK * LEASE).saturating_sub(TICK * (tick - schedule.stored));
        let started = Started::At(time(schedule.stored));
        let record = Record { started, ttl: Ttl::For(left), ..claimed.clone() };
        let stored = Stored {
            record,
            updated_at: time(schedule.stored),
            read_at: time(*tick),
            suspect: false,
        };
        let repair = Repair {
            id: claim().change().id,
            kind: RepairKind::Resolve(Resolution::Never),
            terms: reader,
            fence: Fence::from_random([5; 16]),
            execution: Execution::from_bytes([6; 16]),
            actor: Some("ada"),
            reason: None,
            force: Force::No,
        };
        repair.of(&stored).is_ok()
    };
    (schedule.stored..).find(is_free).expect("it is free at last")
}

fn terms(max_run: u32) -> Terms {
    let terms = Terms::of(Effect::External).lease(TICK * LEASE).max_run(TICK * max_run);
    terms.build().unwrap()
}

fn claim() -> Admission {
    let name = OperationName::new("pay").unwrap();
    let operation = OperationId::new(Scope::global(), name, Key::new("k").unwrap());
    let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
    let request = Request { operation, fingerprints, terms: terms(MAX_RUN) };
    Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]))
}

/// The first schedule in which a byte leaves when the key may be free.
async fn violation(mutant: Mutant) -> Option<Schedule> {
    let mut claimed = claim().change().next.clone();
    if mutant == Mutant::MaxRunOfTheReader {
        claimed.max_run = None;
    }
    // An operator's process may have been started with a shorter `max_run`, or a longer one.
    let readers = [terms(LEASE), terms(MAX_RUN), terms(MAX_RUN + 1)];
    let runs = Schedule::all().into_iter().map(|schedule| {
        tokio::spawn(async move { (schedule, sent(schedule, mutant).await.pop()) })
    });
    for run in runs.collect::<Vec<_>>() {
        let (schedule, last) = run.await.unwrap();
        let free = readers.iter().map(|reader| free(schedule, &claimed, reader)).min();
        if last >= free {
            return Some(schedule);
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn no_byte_leaves_when_an_operator_may_give_the_key_free() {
    if let Some(schedule) = violation(Mutant::None).await {
        panic!("a byte leaves late: {schedule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_known_mistake_is_caught() {
    for mutant in [
        Mutant::CheckedBeforeConnecting,
        Mutant::CheckedBeforeTheHead,
        Mutant::CountedFromTheAnswer,
        Mutant::MaxRunOfTheReader,
    ] {
        let schedule = violation(mutant).await;
        eprintln!("{mutant:?}: {schedule:?}");
        assert!(schedule.is_some(), "{mutant:?} is not caught");
    }
}
