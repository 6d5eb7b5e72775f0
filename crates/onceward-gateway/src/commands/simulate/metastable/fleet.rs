//! The fleet, the queue and the server of the brown-out.

use std::collections::VecDeque;

use crate::commands::simulate::{
    agenda::{Agenda, MILLISECOND, Nanos, SECOND, ms},
    policy::{Contender, Next, Ongoing, Origin, Outcome, Policy, Start},
    random::Random,
};

use super::{CLIENTS, GAP, LASTS, turn};

/// What the server does with requests for which no client waits any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    Kept,
    Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    AtItsTurn,
    TakesTime,
}

pub(crate) struct Course {
    pub(crate) arrived: Vec<u32>,
    /// By the time they arrived, not by the time they were answered.
    pub(crate) succeeded: Vec<u32>,
    /// Retries of the last calls that come after the end of the run are in the last bin.
    pub(crate) attempts: Vec<u32>,
    latencies: Vec<Vec<Nanos>>,
}

impl Course {
    pub(crate) const BIN: Nanos = 100 * MILLISECOND;

    fn new() -> Self {
        let bins = vec![0; (LASTS / Self::BIN) as usize];
        Self {
            arrived: bins.clone(),
            succeeded: bins.clone(),
            attempts: bins,
            latencies: vec![Vec::new(); (LASTS / SECOND) as usize],
        }
    }

    fn bin(at: Nanos) -> usize {
        (at.min(LASTS - 1) / Self::BIN) as usize
    }

    fn ended(&mut self, call: &Ongoing, now: Nanos) {
        self.latencies[(call.since / SECOND) as usize].push(now - call.since);
    }

    pub(crate) fn latency_p99(&self, second: usize) -> f64 {
        let mut took = self.latencies[second].clone();
        took.sort_unstable();
        took.get(took.len() * 99 / 100).map_or(f64::NAN, |took| ms(*took))
    }
}

#[derive(Clone, Copy)]
enum Event {
    Arrive,
    Attempt { call: usize },
    Turn,
    Answered { call: usize, attempt: u32 },
    TimedOut { call: usize, attempt: u32 },
}

struct Called {
    client: usize,
    ongoing: Ongoing,
    /// The attempt that is waited for; none between two of them and after the last.
    waits_for: Option<u32>,
}

struct Request {
    call: usize,
    attempt: u32,
    expires: Nanos,
}

struct Fleet<'a> {
    agenda: Agenda<Event>,
    clients: Vec<Box<dyn Policy>>,
    calls: Vec<Called>,
    queue: VecDeque<Request>,
    expired: Expired,
    service: Service,
    free: Nanos,
    course: Course,
    random: &'a mut Random,
}

pub(crate) fn run(
    contender: &Contender,
    expired: Expired,
    service: Service,
    random: &mut Random,
) -> Course {
    let mut fleet = Fleet {
        agenda: Agenda::new(),
        clients: (0..CLIENTS).map(|_| (contender.make)(random)).collect(),
        calls: Vec::new(),
        queue: VecDeque::new(),
        expired,
        service,
        free: 0,
        course: Course::new(),
        random,
    };
    fleet.agenda.note(0, Event::Arrive);
    while let Some((now, event)) = fleet.agenda.next() {
        fleet.happens(event, now);
    }
    fleet.course
}

impl Fleet<'_> {
    fn happens(&mut self, event: Event, now: Nanos) {
        match event {
            // The last calls are seen to their end.
            Event::Arrive if now >= LASTS => {}
            Event::Arrive => self.arrive(now),
            Event::Attempt { call } => self.attempt(call, now),
            Event::Turn => self.take_turn(now),
            Event::Answered { call, attempt } => self.ended(call, attempt, Outcome::Success, now),
            Event::TimedOut { call, attempt } => self.ended(call, attempt, Outcome::TimedOut, now),
        }
    }

    fn arrive(&mut self, now: Nanos) {
        let client = (self.random.unit() * f64::from(CLIENTS)) as usize;
        let ongoing = self.clients[client].open(Origin::FIRST, now);
        self.calls.push(Called { client, ongoing, waits_for: None });
        self.course.arrived[Course::bin(now)] += 1;
        self.attempt(self.calls.len() - 1, now);
        self.agenda.note(now + self.random.exponential(GAP), Event::Arrive);
    }

    fn attempt(&mut self, call: usize, now: Nanos) {
        let called = &mut self.calls[call];
        let client = &mut self.clients[called.client];
        let Start::Permit { timeout } = client.begin(&mut called.ongoing, now, self.random) else {
            self.course.ended(&called.ongoing, now);
            return;
        };
        let (attempt, expires) = (called.ongoing.attempts, now + timeout);
        called.waits_for = Some(attempt);
        self.course.attempts[Course::bin(now)] += 1;
        self.agenda.note(expires, Event::TimedOut { call, attempt });
        if self.queue.is_empty() {
            self.agenda.note(self.free.max(now), Event::Turn);
        }
        self.queue.push_back(Request { call, attempt, expires });
    }

    /// Takes the next request of the queue and answers it; another turn follows while there are more.
    fn take_turn(&mut self, now: Nanos) {
        while let Some(request) = self.queue.pop_front() {
            if self.expired == Expired::Dropped && request.expires <= now {
                continue;
            }
            let Request { call, attempt, .. } = request;
            if self.service == Service::AtItsTurn {
                self.free = now + turn(now);
                self.ended(call, attempt, Outcome::Success, now);
            } else {
                self.free = now + self.random.exponential(turn(now));
                self.agenda.note(self.free, Event::Answered { call, attempt });
            }
            break;
        }
        if !self.queue.is_empty() {
            self.agenda.note(self.free.max(now), Event::Turn);
        }
    }

    fn ended(&mut self, call: usize, attempt: u32, outcome: Outcome, now: Nanos) {
        let called = &mut self.calls[call];
        // The client does not wait any more for what comes too late.
        if called.waits_for.take_if(|waited| *waited == attempt).is_none() {
            return;
        }
        let client = &mut self.clients[called.client];
        match client.ended(&mut called.ongoing, outcome, now, self.random) {
            Next::Attempt { wait } => self.agenda.note(now + wait, Event::Attempt { call }),
            Next::GiveUp => self.course.ended(&called.ongoing, now),
            Next::Succeed => {
                self.course.succeeded[Course::bin(called.ongoing.since)] += 1;
                self.course.ended(&called.ongoing, now);
            }
        }
    }
}
