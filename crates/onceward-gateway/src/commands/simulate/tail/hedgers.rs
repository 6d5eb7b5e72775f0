//! Who sends a second request, and when: ours and the peers', modelled after their source.

use crate::commands::simulate::{
    agenda::{MILLISECOND, Nanos, SECOND, nanos},
    ours::{self, Ours},
    peers::{Budget as _, Window},
    policy::{Next, Ongoing, Origin, Outcome, Policy as _},
    random::Random,
};

/// After how many times the 95th percentile we hedge here. At the percentile itself 5 % of the requests
/// would be hedged, half of which are about to be answered; the slow answers of this tail are later than
/// ten times that.
const STRETCH: f64 = 3.0;

pub(crate) struct Answered {
    pub(crate) request: usize,
    pub(crate) sent: u32,
    pub(crate) hedge: bool,
    pub(crate) took: Nanos,
}

pub(crate) trait Hedger {
    fn begin(&mut self, request: usize, now: Nanos, random: &mut Random) -> Option<Nanos>;
    fn may_hedge(&mut self, _request: usize, _now: Nanos) -> bool {
        true
    }
    /// So many were sent; after which further time another may be.
    fn next(&self, _sent: u32) -> Option<Nanos> {
        None
    }
    fn answered(&mut self, _answered: Answered, _now: Nanos, _random: &mut Random) {}
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) ours: bool,
    pub(crate) make: fn() -> Box<dyn Hedger>,
}

pub(crate) fn all() -> [Contender; 6] {
    let peer = |name, make| Contender { name, ours: false, make };
    [
        peer("no hedges", || Box::new(Never)),
        // The example of proposal A6: after half a second, four requests at most.
        peer("gRPC", || Box::new(Fixed { after: 500 * MILLISECOND, most: 4 })),
        // `HedgeLayer::standard()` of tower-resilience 0.13: after 100 ms, three requests at most.
        peer("tower-resilience", || Box::new(Fixed { after: 100 * MILLISECOND, most: 3 })),
        peer("tower", || Box::new(Tower(Histogram::new(0.95, 10 * SECOND, 100)))),
        peer("Finagle", || Box::new(Finagle::new())),
        Contender { name: "onceward", ours: true, make: || Box::new(Own::new()) },
    ]
}

struct Never;

impl Hedger for Never {
    fn begin(&mut self, _: usize, _: Nanos, _: &mut Random) -> Option<Nanos> {
        None
    }
}

/// After a time that the operator has chosen.
struct Fixed {
    after: Nanos,
    most: u32,
}

impl Hedger for Fixed {
    fn begin(&mut self, _: usize, _: Nanos, _: &mut Random) -> Option<Nanos> {
        Some(self.after)
    }

    fn next(&self, sent: u32) -> Option<Nanos> {
        (sent < self.most).then_some(self.after)
    }
}

/// tower 0.5 `Hedge`: after a percentile of the last whole period, in milliseconds; nothing bounds it. It
/// has no defaults: the 95th percentile and 100 data points are ours, 10 s is as long as Finagle looks.
struct Tower(Histogram);

impl Hedger for Tower {
    fn begin(&mut self, _: usize, now: Nanos, _: &mut Random) -> Option<Nanos> {
        self.0.quantile(now)
    }

    fn answered(&mut self, answered: Answered, now: Nanos, _: &mut Random) {
        // Each request is timed by itself, and the one that loses is dropped untimed. A hedge's own time
        // is not known here; that of the whole call is longer, which spares hedges.
        self.0.add(answered.took, now);
    }
}

/// Finagle's `BackupRequestFilter` with `maxExtraLoad` 0.05: after the 95th percentile, worked out anew
/// every 3 s, and paid from a budget of 5 % and 10 a second.
struct Finagle {
    latencies: Histogram,
    budget: Window,
    known: Option<Nanos>,
    asked: Nanos,
}

impl Finagle {
    fn new() -> Self {
        Self {
            latencies: Histogram::new(0.95, 3 * SECOND, 1),
            budget: Window::of_share(0.05, Window::DEPOSIT_BY_REQUEST),
            known: None,
            asked: 0,
        }
    }
}

impl Hedger for Finagle {
    fn begin(&mut self, _: usize, now: Nanos, _: &mut Random) -> Option<Nanos> {
        self.budget.opened(now);
        if now - self.asked >= 3 * SECOND {
            self.asked = now;
            self.known = self.latencies.quantile(now);
        }
        self.known.map(|late| late.max(MILLISECOND))
    }

    fn may_hedge(&mut self, _: usize, now: Nanos) -> bool {
        self.budget.pay(Outcome::TimedOut, now).is_some()
    }

    fn answered(&mut self, answered: Answered, now: Nanos, _: &mut Random) {
        self.latencies.add(answered.took, now);
    }
}

/// Two histograms in whole milliseconds: one is read, the other written, and every period they change.
struct Histogram {
    quantile: f64,
    period: Nanos,
    least: u32,
    read: Vec<u32>,
    written: Vec<u32>,
    changed: Nanos,
    known: Option<Nanos>,
}

impl Histogram {
    fn new(quantile: f64, period: Nanos, least: u32) -> Self {
        let empty = vec![0; 4096];
        let (read, written) = (empty.clone(), empty);
        Self { quantile, period, least, read, written, changed: 0, known: None }
    }

    fn add(&mut self, took: Nanos, now: Nanos) {
        self.change(now);
        let longest = self.written.len() - 1;
        self.written[(took.div_ceil(MILLISECOND) as usize).min(longest)] += 1;
    }

    fn quantile(&mut self, now: Nanos) -> Option<Nanos> {
        self.change(now);
        self.known
    }

    fn change(&mut self, now: Nanos) {
        if now - self.changed < self.period {
            return;
        }
        self.changed = now;
        std::mem::swap(&mut self.read, &mut self.written);
        self.written.fill(0);
        let all: u32 = self.read.iter().sum();
        let mut sum = 0;
        let found = self.read.iter().position(|count| {
            sum += count;
            f64::from(sum) >= f64::from(all) * self.quantile
        });
        self.known = found.filter(|_| all >= self.least).map(|ms| ms as Nanos * MILLISECOND);
    }
}

struct Own {
    ours: Ours,
    calls: Vec<Ongoing>,
}

impl Own {
    fn new() -> Self {
        Self { ours: Ours::new(&ours::hedging(STRETCH)), calls: Vec::new() }
    }
}

impl Hedger for Own {
    fn begin(&mut self, request: usize, now: Nanos, random: &mut Random) -> Option<Nanos> {
        let mut call = self.ours.open(Origin::FIRST, now);
        let permit = self.ours.permit(&mut call, now, random);
        debug_assert_eq!(self.calls.len(), request);
        self.calls.push(call);
        permit?.hedge_after.map(nanos)
    }

    fn may_hedge(&mut self, request: usize, now: Nanos) -> bool {
        self.ours.hedge(&mut self.calls[request], now)
    }

    fn answered(&mut self, answered: Answered, now: Nanos, random: &mut Random) {
        let call = &mut self.calls[answered.request];
        if answered.hedge {
            self.ours.hedge_won(call);
        }
        let next = self.ours.ended(call, Outcome::Success, now, random);
        debug_assert_eq!(next, Next::Succeed);
        // The loser is dropped with its connection.
        for _ in 1..answered.sent {
            self.ours.landed();
        }
    }
}
