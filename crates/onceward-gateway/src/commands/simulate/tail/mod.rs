//! A long tail, and second requests that overtake it (Dean and Barroso 2013, "The tail at scale").
//!
//! The study does not publish its latencies, so these are made up: 97.5 % log-normal around 8 ms (sigma
//! 0.3), 2.5 % anything between 0.2 and 2 s. Which answers are slow is drawn from shuffled decks of a
//! thousand cards with exactly 25 slow ones, one deck for first requests and one for hedges, so that the
//! share is exact in every run. One client sends 200,000 requests, a thousand a second; the first 20,000
//! are for getting to know the server and do not count. With the shift, every latency is 200 ms longer from
//! the 100,000th request on, and the figures are of those after it: that is the day on which hedging makes
//! a slow server slower.

mod hedgers;

use super::{
    Setting,
    agenda::{Agenda, MILLISECOND, Nanos, SECOND, from_ms, ms},
    chart::{Axis, Chart, Line},
    random::{Deck, Random},
    row::{Findings, Row},
};
use hedgers::{Contender, Hedger};

const GAP: Nanos = MILLISECOND;
const REQUESTS: usize = 200_000;
const WARM: usize = 20_000;
const SHIFT_AT: usize = 100_000;
const SHIFT: Nanos = 200 * MILLISECOND;
const TEN: usize = 10;

pub(super) fn run(setting: &mut Setting<'_>) -> Findings {
    let mut findings = Findings { rows: Vec::new(), charts: charts() };
    for shift in [0, SHIFT] {
        for (number, contender) in hedgers::all().iter().enumerate() {
            setting.progress(contender.name);
            // The same latencies for all of them, as far as they send the same requests.
            let mut random = Random::new(setting.seed, shift + number as u64);
            let run = Run::new(contender, shift, &mut random).live();
            findings.rows.push(run.row(contender, shift));
            let line = |points| Line::new(contender.name, contender.ours, points);
            match shift {
                0 => findings.charts[0].lines.push(line(run.quantiles())),
                _ => findings.charts[1].lines.push(line(run.shares())),
            }
        }
    }
    findings
}

enum Event {
    Arrive,
    Hedge { request: usize },
    Answer { request: usize, hedge: bool },
}

struct Request {
    since: Nanos,
    sent: u32,
    answered: bool,
}

struct Run<'a> {
    agenda: Agenda<Event>,
    hedger: Box<dyn Hedger>,
    requests: Vec<Request>,
    first: Deck,
    further: Deck,
    shift: Nanos,
    measured: Measured,
    random: &'a mut Random,
}

struct Measured {
    from: usize,
    latencies: Vec<Nanos>,
    hedged: u32,
    seconds: Vec<(u32, u32)>,
    from_second: usize,
}

impl<'a> Run<'a> {
    fn new(contender: &Contender, shift: Nanos, random: &'a mut Random) -> Self {
        Self {
            agenda: Agenda::new(),
            hedger: (contender.make)(),
            requests: Vec::new(),
            first: Deck::new(25, 1000),
            further: Deck::new(25, 1000),
            shift,
            measured: Measured {
                from: if shift > 0 { SHIFT_AT } else { WARM },
                latencies: Vec::new(),
                hedged: 0,
                seconds: Vec::new(),
                from_second: 0,
            },
            random,
        }
    }

    fn live(mut self) -> Measured {
        self.agenda.note(0, Event::Arrive);
        while let Some((now, event)) = self.agenda.next() {
            match event {
                Event::Arrive if self.requests.len() == REQUESTS => {}
                Event::Arrive => self.arrive(now),
                Event::Hedge { request } => self.hedge(request, now),
                Event::Answer { request, hedge } => self.answer(request, hedge, now),
            }
        }
        self.measured.latencies.sort_unstable();
        self.measured
    }

    fn arrive(&mut self, now: Nanos) {
        let request = self.requests.len();
        self.requests.push(Request { since: now, sent: 1, answered: false });
        self.measured.second(now).0 += 1;
        if request == self.measured.from {
            self.measured.from_second = (now / SECOND) as usize + 1;
        }
        let slow = self.first.draw(self.random);
        let took = self.latency(slow);
        self.agenda.note(now + took, Event::Answer { request, hedge: false });
        if let Some(after) = self.hedger.begin(request, now, self.random) {
            self.agenda.note(now + after, Event::Hedge { request });
        }
        self.agenda.note(now + self.random.exponential(GAP), Event::Arrive);
    }

    fn hedge(&mut self, request: usize, now: Nanos) {
        if self.requests[request].answered || !self.hedger.may_hedge(request, now) {
            return;
        }
        self.requests[request].sent += 1;
        self.measured.second(now).1 += 1;
        self.measured.hedged += u32::from(request >= self.measured.from);
        let slow = self.further.draw(self.random);
        let took = self.latency(slow);
        self.agenda.note(now + took, Event::Answer { request, hedge: true });
        if let Some(after) = self.hedger.next(self.requests[request].sent) {
            self.agenda.note(now + after, Event::Hedge { request });
        }
    }

    /// The first answer counts; the others are dropped on arrival.
    fn answer(&mut self, request: usize, hedge: bool, now: Nanos) {
        let asked = &mut self.requests[request];
        if asked.answered {
            return;
        }
        asked.answered = true;
        let (took, sent) = (now - asked.since, asked.sent);
        if request >= self.measured.from {
            self.measured.latencies.push(took);
        }
        self.hedger.answered(hedgers::Answered { request, sent, hedge, took }, now, self.random);
    }

    fn latency(&mut self, slow: bool) -> Nanos {
        let own = match slow {
            true => from_ms(self.random.uniform(200.0, 2000.0)),
            false => self.random.log_normal_ms(8.0, 0.3),
        };
        if self.requests.len() > SHIFT_AT { own + self.shift } else { own }
    }
}

impl Measured {
    fn second(&mut self, now: Nanos) -> &mut (u32, u32) {
        let second = (now / SECOND) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, (0, 0));
        }
        &mut self.seconds[second]
    }

    fn row(&self, contender: &Contender, shift: Nanos) -> Row {
        Row {
            clients: Some(1),
            shift_ms: Some(ms(shift)),
            p999_ms: Some(self.quantile(0.999)),
            extra: Some(f64::from(self.hedged) / self.latencies.len() as f64),
            extra_worst_10s: Some(self.worst_share()),
            ..Row::new(contender.name, contender.ours)
        }
    }

    /// Of ten whole seconds; the last one, in which requests end, is not whole.
    fn worst_share(&self) -> f64 {
        let whole = REQUESTS / 1000 - 2;
        let tens = self.seconds[self.from_second..whole].windows(TEN).map(|ten| {
            let sum = |part: fn(&(u32, u32)) -> u32| f64::from(ten.iter().map(part).sum::<u32>());
            sum(|second| second.1) / sum(|second| second.0)
        });
        tens.fold(0.0, f64::max)
    }

    fn quantile(&self, quantile: f64) -> f64 {
        let place = (self.latencies.len() as f64 * quantile).ceil() as usize;
        ms(self.latencies[place.clamp(1, self.latencies.len()) - 1])
    }

    /// Latency over the quantile, from the median to 99.99 %, by nines.
    fn quantiles(&self) -> Vec<(f64, f64)> {
        let nines = (3..=40).map(|tenths| f64::from(tenths) / 10.0);
        nines.map(|nines| (nines, self.quantile(1.0 - 10_f64.powf(-nines)))).collect()
    }

    /// Twenty seconds before the shift and forty after it.
    fn shares(&self) -> Vec<(f64, f64)> {
        let seconds = self.seconds.iter().skip(self.from_second.saturating_sub(21)).take(60);
        seconds
            .enumerate()
            .map(|(second, (requests, hedges))| {
                (second as f64, f64::from(*hedges) / f64::from(*requests) * 100.0)
            })
            .collect()
    }
}

fn charts() -> Vec<Chart> {
    let title = "A long tail: latency by quantile";
    let nines = Axis::linear("nines of the quantile (1 is 90 %, 3 is 99.9 %)");
    let latency = Chart::new("tail-latency", title, nines, Axis::logarithmic("ms"), Vec::new());
    let title = "Every answer 200 ms later: requests sent on top";
    let (x, y) = (Axis::linear("seconds"), Axis::linear("extra requests, %"));
    let shade = Some((20.0, 60.0, "+200 ms"));
    vec![latency, Chart { shade, ..Chart::new("tail-shift", title, x, y, Vec::new()) }]
}
