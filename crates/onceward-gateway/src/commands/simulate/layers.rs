//! Five services that call one another, on a dead backend (Amazon Builders' Library, "Timeouts, retries
//! and backoff with jitter").
//!
//! A request enters the outermost layer; each layer makes up to three attempts to the next, the innermost
//! to a backend of which every request fails after a millisecond. Twenty requests a second for a minute.
//! What the backend gets, for each request that entered, is the amplification. A layer whose call failed
//! answers its own caller with a failure; one that refuses without having tried answers 503. Our layers
//! tell the next one which attempt it is and how long they wait; others do not.

use super::{
    Setting,
    agenda::{Agenda, MILLISECOND, Nanos, SECOND},
    chart::{Axis, Chart, Line},
    peers::{self, Limits},
    policy::{Contender, Next, Ongoing, Origin, Outcome, Policy, Start},
    random::Random,
    row::{Findings, Row},
};

const LAYERS: usize = 5;
const GAP: Nanos = SECOND / 20;
const LASTS: Nanos = 60 * SECOND;

pub(super) fn run(setting: &mut Setting<'_>) -> Findings {
    let attempts = setting.attempts.unwrap_or(3);
    let limits = Limits { attempts, attempt_timeout: 10 * SECOND, deadline: Nanos::MAX };
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (number, contender) in peers::beside_ours(limits).iter().enumerate() {
        let by_depth: Vec<f64> = (1..=LAYERS)
            .map(|depth| {
                setting.progress(contender.name);
                let mut random = Random::new(setting.seed, (number * 10 + depth) as u64);
                Stack::new(contender, depth, &mut random).live()
            })
            .collect();
        rows.push(Row {
            amplification: by_depth.last().copied(),
            ..Row::new(contender.name, contender.ours)
        });
        let points = by_depth.iter().enumerate();
        let points = points.map(|(depth, times)| (depth as f64 + 1.0, *times)).collect();
        lines.push(Line::new(contender.name, contender.ours, points));
    }
    let title = "A dead backend: what it gets for each request";
    let (x, y) = ("layers that retry", "requests to the backend / request");
    let (x, y) = (Axis::linear(x), Axis::logarithmic(y));
    let chart = Chart::new("layers-amplification", title, x, y, lines);
    Findings { rows, charts: vec![chart] }
}

enum Event {
    Enter,
    Attempt { call: usize },
    Ended { call: usize, outcome: Outcome },
}

struct Called {
    layer: usize,
    above: Option<usize>,
    nested: bool,
    ongoing: Ongoing,
}

struct Stack<'a> {
    agenda: Agenda<Event>,
    layers: Vec<Box<dyn Policy>>,
    calls: Vec<Called>,
    tells: bool,
    entered: u64,
    reached: u64,
    random: &'a mut Random,
}

impl<'a> Stack<'a> {
    fn new(contender: &Contender, depth: usize, random: &'a mut Random) -> Self {
        Self {
            agenda: Agenda::new(),
            layers: (0..depth).map(|_| (contender.make)(random)).collect(),
            calls: Vec::new(),
            tells: contender.ours,
            entered: 0,
            reached: 0,
            random,
        }
    }

    fn live(mut self) -> f64 {
        self.agenda.note(0, Event::Enter);
        while let Some((now, event)) = self.agenda.next() {
            match event {
                Event::Enter if now >= LASTS => {}
                Event::Enter => {
                    self.entered += 1;
                    self.open(0, None, Origin::FIRST, now);
                    self.agenda.note(now + self.random.exponential(GAP), Event::Enter);
                }
                Event::Attempt { call } => self.attempt(call, now),
                Event::Ended { call, outcome } => self.ended(call, outcome, now),
            }
        }
        self.reached as f64 / self.entered as f64
    }

    fn open(&mut self, layer: usize, above: Option<usize>, origin: Origin, now: Nanos) {
        let ongoing = self.layers[layer].open(origin, now);
        self.calls.push(Called { layer, above, nested: origin.nested, ongoing });
        self.attempt(self.calls.len() - 1, now);
    }

    fn attempt(&mut self, call: usize, now: Nanos) {
        let called = &mut self.calls[call];
        let layer = called.layer;
        let tried = called.ongoing.attempts > 0;
        match self.layers[layer].begin(&mut called.ongoing, now, self.random) {
            Start::Stop => {
                let outcome = if tried { Outcome::Fault } else { Outcome::Refused };
                self.answer(call, outcome, now);
            }
            Start::Permit { .. } if layer + 1 == self.layers.len() => {
                self.reached += 1;
                self.agenda.note(now + MILLISECOND, Event::Ended { call, outcome: Outcome::Fault });
            }
            Start::Permit { timeout } => {
                let again = self.tells && (called.nested || called.ongoing.attempts > 1);
                let within = if self.tells { timeout } else { Nanos::MAX };
                self.open(layer + 1, Some(call), Origin { nested: again, within }, now);
            }
        }
    }

    fn ended(&mut self, call: usize, outcome: Outcome, now: Nanos) {
        let called = &mut self.calls[call];
        match self.layers[called.layer].ended(&mut called.ongoing, outcome, now, self.random) {
            Next::Attempt { wait } => self.agenda.note(now + wait, Event::Attempt { call }),
            Next::Succeed | Next::GiveUp => self.answer(call, Outcome::Fault, now),
        }
    }

    fn answer(&mut self, call: usize, outcome: Outcome, now: Nanos) {
        if let Some(above) = self.calls[call].above {
            self.agenda.note(now, Event::Ended { call: above, outcome });
        }
    }
}
