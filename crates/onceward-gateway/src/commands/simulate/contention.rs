//! One contended row (AWS 2015, "Exponential backoff and jitter").
//!
//! Every client reads the row's version and writes once with it; the write of a stale version fails, and
//! the client backs off and reads again. As in the study, calls are writes, the network takes N(10, 2) ms
//! each way, the first wait is drawn from twice the base, and the figures are means over many runs.

use super::{
    Setting,
    agenda::{Agenda, MILLISECOND, Nanos, SECOND, seconds},
    chart::{Axis, Chart, Line},
    ours::{self, Ours},
    peers::{Backoff, Limits, Peer, Unlimited},
    policy::{Contender, Next, Ongoing, Origin, Outcome, Policy},
    random::Random,
    row::{Findings, Row},
};

/// The study's 5 ms are raised to the power of the attempt's number, which is 1 at the first wait.
const FIRST: Nanos = 10 * MILLISECOND;
const CAP: Nanos = 2 * SECOND;
/// The row whose figures are published is measured more often: single runs differ by a second.
const PUBLISHED: u32 = 100;

fn runs(clients: u32) -> u64 {
    if clients == PUBLISHED { 800 } else { 15 }
}

const PATIENT: Limits =
    Limits { attempts: u32::MAX, attempt_timeout: Nanos::MAX, deadline: Nanos::MAX };

pub(super) fn run(setting: &mut Setting<'_>) -> Findings {
    let mut rows = Vec::new();
    for (number, contender) in contenders().iter().enumerate() {
        for clients in (10..=190).step_by(10) {
            setting.progress(contender.name);
            let mut random = Random::new(setting.seed, number as u64 * 1000 + u64::from(clients));
            let (mut calls, mut time, runs) = (0, 0, runs(clients));
            for _ in 0..runs {
                let (run_calls, run_time) = contend(contender, clients, &mut random);
                calls += run_calls;
                time += run_time;
            }
            rows.push(Row {
                clients: Some(clients),
                calls: Some(calls as f64 / runs as f64),
                time_s: Some(seconds(time) / runs as f64),
                ..Row::new(contender.name, contender.ours)
            });
        }
    }
    Findings { charts: charts(&rows), rows }
}

fn contenders() -> Vec<Contender> {
    let peer = |name, backoff: fn() -> Backoff| {
        Contender::new(name, move |_| Peer::new(PATIENT, backoff(), Unlimited))
    };
    vec![
        peer("no backoff", || Backoff::None),
        peer("exponential", || Backoff::Exponential { base: FIRST, cap: CAP }),
        // All clients are calls of one process, whose generator each of them starts from.
        Contender::new("tower", |_| {
            let mut process = Random::new(0, 0);
            Peer::new(PATIENT, Backoff::tower(FIRST, CAP, &mut process), Unlimited)
        }),
        peer("equal jitter", || Backoff::Equal { base: FIRST, cap: CAP }),
        peer("decorrelated", || Backoff::Decorrelated { base: FIRST / 2, cap: CAP }),
        Contender::new("onceward", |_| Ours::new(&ours::contention(FIRST, CAP))).ours(),
    ]
}

enum Event {
    Read { client: usize },
    Write { client: usize, version: u64 },
}

struct Client {
    policy: Box<dyn Policy>,
    call: Ongoing,
}

/// Until every client has written once: the writes that took, and the time.
fn contend(contender: &Contender, clients: u32, random: &mut Random) -> (u64, Nanos) {
    let mut agenda = Agenda::new();
    let mut crowd: Vec<Client> = (0..clients)
        .map(|_| {
            let mut policy = (contender.make)(random);
            let call = policy.open(Origin::FIRST, 0);
            Client { policy, call }
        })
        .collect();
    for (client, each) in crowd.iter_mut().enumerate() {
        each.policy.begin(&mut each.call, 0, random);
        agenda.note(network(random), Event::Read { client });
    }
    let (mut row_version, mut calls, mut end) = (0, 0, 0);
    while let Some((now, event)) = agenda.next() {
        match event {
            Event::Read { client } => {
                let there_and_back = network(random) + network(random);
                agenda.note(now + there_and_back, Event::Write { client, version: row_version });
            }
            Event::Write { client, version } => {
                calls += 1;
                let answered = now + network(random);
                let won = version == row_version;
                row_version += u64::from(won);
                let outcome = if won { Outcome::Success } else { Outcome::Fault };
                match crowd[client].ended(outcome, answered, random) {
                    Some(again) => agenda.note(again + network(random), Event::Read { client }),
                    None => end = end.max(answered),
                }
            }
        }
    }
    (calls, end)
}

impl Client {
    fn ended(&mut self, outcome: Outcome, now: Nanos, random: &mut Random) -> Option<Nanos> {
        let Next::Attempt { wait } = self.policy.ended(&mut self.call, outcome, now, random) else {
            return None;
        };
        self.policy.begin(&mut self.call, now + wait, random);
        Some(now + wait)
    }
}

fn network(random: &mut Random) -> Nanos {
    random.normal_ms(10.0, 2.0)
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let lines = |value: fn(&Row) -> Option<f64>| {
        Line::by_policy(rows, |row| Some((f64::from(row.clients?), value(row)?)))
    };
    let clients = || Axis::linear("clients that write the same row").up_to(200.0);
    let (calls, time) = (lines(|row| row.calls), lines(|row| row.time_s));
    let (in_calls, in_time) = (Axis::linear("calls").up_to(5000.0), Axis::logarithmic("seconds"));
    let title = |what| format!("One contended row: {what} until all have written");
    vec![
        Chart::new("contention-calls", &title("calls"), clients(), in_calls, calls),
        Chart::new("contention-time", &title("seconds"), clients(), in_time, time),
    ]
}
