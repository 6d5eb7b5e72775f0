//! A server that fails a share of its requests (Brooker 2022, "Fixing retries with token buckets and
//! circuit breakers").
//!
//! A hundred client processes make ten calls a second each. Whether an attempt fails is chance alone and
//! does not depend on the load, so clients do not meet, and each can be run by itself. The network takes
//! 10 ms each way in the mean, without memory. A run lasts a minute, because what a bucket holds at the
//! start counts less the longer one looks; the figures are of two runs, at 10 % of twelve.

use super::{
    Setting,
    agenda::{Agenda, MILLISECOND, Nanos, SECOND},
    chart::{Axis, Chart, Line},
    peers::{self, Limits},
    policy::{Next, Ongoing, Origin, Outcome, Policy, Start},
    random::Random,
    row::{Findings, Row},
};

const CLIENTS: u32 = 100;
/// Where one call in ten thousand decides, more of them are looked at.
const PUBLISHED: f64 = 0.1;

fn runs(rate: f64) -> u32 {
    if rate == PUBLISHED { 12 } else { 2 }
}

const GAP: Nanos = SECOND / 10;
const LASTS: Nanos = 60 * SECOND;
const RATES: [f64; 9] = [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];

pub(super) fn run(setting: &mut Setting<'_>) -> Findings {
    let attempts = setting.attempts.unwrap_or(4);
    let limits = Limits { attempts, attempt_timeout: 10 * SECOND, deadline: 10 * SECOND };
    let mut rows = Vec::new();
    for (number, contender) in peers::beside_ours(limits).iter().enumerate() {
        for (step, rate) in RATES.into_iter().enumerate() {
            setting.progress(contender.name);
            let mut random = Random::new(setting.seed, (number * 100 + step) as u64);
            let mut count = Count::default();
            for _ in 0..CLIENTS * runs(rate) {
                let policy = (contender.make)(&mut random);
                Client { policy, rate, calls: Vec::new(), agenda: Agenda::new() }
                    .live(&mut count, &mut random);
            }
            rows.push(Row {
                clients: Some(CLIENTS),
                failure_rate: Some(rate),
                calls: Some(count.attempts as f64 / f64::from(runs(rate))),
                load: Some(count.attempts as f64 / count.calls as f64),
                success: Some(count.successes as f64 / count.calls as f64),
                ..Row::new(contender.name, contender.ours)
            });
        }
    }
    Findings { charts: charts(&rows), rows }
}

#[derive(Default)]
struct Count {
    calls: u64,
    attempts: u64,
    successes: u64,
}

enum Event {
    Arrive,
    Attempt { call: usize },
    Answer { call: usize },
}

struct Client {
    policy: Box<dyn Policy>,
    rate: f64,
    calls: Vec<Ongoing>,
    agenda: Agenda<Event>,
}

impl Client {
    fn live(mut self, count: &mut Count, random: &mut Random) {
        self.agenda.note(random.exponential(GAP), Event::Arrive);
        while let Some((now, event)) = self.agenda.next() {
            match event {
                // Those under way are seen to their end, as in the study.
                Event::Arrive if now >= LASTS => {}
                Event::Arrive => {
                    count.calls += 1;
                    self.calls.push(self.policy.open(Origin::FIRST, now));
                    self.attempt(self.calls.len() - 1, now, count, random);
                    self.agenda.note(now + random.exponential(GAP), Event::Arrive);
                }
                Event::Attempt { call } => self.attempt(call, now, count, random),
                Event::Answer { call } => self.answer(call, now, count, random),
            }
        }
    }

    fn attempt(&mut self, call: usize, now: Nanos, count: &mut Count, random: &mut Random) {
        if let Start::Permit { .. } = self.policy.begin(&mut self.calls[call], now, random) {
            count.attempts += 1;
            let there_and_back =
                random.exponential(10 * MILLISECOND) + random.exponential(10 * MILLISECOND);
            self.agenda.note(now + there_and_back, Event::Answer { call });
        }
    }

    fn answer(&mut self, call: usize, now: Nanos, count: &mut Count, random: &mut Random) {
        let failed = random.unit() < self.rate;
        let outcome = if failed { Outcome::Fault } else { Outcome::Success };
        match self.policy.ended(&mut self.calls[call], outcome, now, random) {
            Next::Succeed => count.successes += 1,
            Next::GiveUp => {}
            Next::Attempt { wait } => self.agenda.note(now + wait, Event::Attempt { call }),
        }
    }
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let lines = |value: fn(&Row) -> Option<f64>| {
        Line::by_policy(rows, |row| Some((row.failure_rate? * 100.0, value(row)?)))
    };
    let rate = || Axis::linear("attempts that fail, %");
    let chart = |file, what, y, lines| {
        Chart::new(file, &format!("A failing server: {what}"), rate(), Axis::linear(y), lines)
    };
    let (load, success) = (lines(|row| row.load), lines(|row| row.success));
    let (in_load, in_success) = ("attempts / requests", "successes / requests");
    vec![
        chart("outage-load", "attempts for each request", in_load, load),
        chart("outage-success", "requests that succeed in the end", in_success, success),
    ]
}
