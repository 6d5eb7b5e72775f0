//! A system that keeps its promises, as small as it can be, and clients that do not hear everything.

use std::time::Duration;

use fastrand::Rng;

use super::EffectKind;
use crate::history::{
    Answer, Attempt, Digest, Effect, History, Ledger, Operation, OperationName, Reply,
};

const FAULTS_STOP: Duration = Duration::from_secs(60);

/// The history of some operations; two scopes use the same keys.
pub(super) fn simulate(rng: &mut Rng, kind: EffectKind, operations: usize) -> (History, Ledger) {
    let mut history = History::new(Duration::from_secs(2));
    let mut ledger = Ledger::default();
    history.faults_stopped_at = FAULTS_STOP;
    for number in 0..operations {
        let scope = if number % 2 == 0 { "alice" } else { "bob" };
        let name = OperationName::new(scope, format!("k{}", number / 2));
        let operation = Operation::new(name.clone(), number.to_string()).body(body(&name));
        history.ask(operation.clone());
        let mut simulation = Simulation {
            rng,
            kind,
            operation,
            state: State::Free,
            late: false,
            now: Duration::ZERO,
            attempts: Vec::new(),
            effects: Vec::new(),
        };
        simulation.play();
        history.attempts.append(&mut simulation.attempts);
        ledger.effects.append(&mut simulation.effects);
    }
    rng.shuffle(&mut history.attempts);
    rng.shuffle(&mut ledger.effects);
    history.conclude();
    (history, ledger)
}

/// The body of the ok of an operation.
pub(super) fn body(name: &OperationName) -> Digest {
    Digest::of(format!("{name} is paid"))
}

/// What the simulated system has stored about one operation.
#[derive(Clone)]
enum State {
    Free,
    /// It happened, but the record does not say so; it may be run again, which changes nothing.
    Done,
    Unknown,
    Ended(Answer),
}

/// One operation that clients ask for, and the system that answers.
struct Simulation<'a> {
    rng: &'a mut Rng,
    kind: EffectKind,
    operation: Operation,
    state: State,
    /// An attempt that its client gave up is still on its way.
    late: bool,
    now: Duration,
    attempts: Vec<Attempt>,
    effects: Vec<Effect>,
}

impl Simulation<'_> {
    fn play(&mut self) {
        for _ in 0..self.rng.usize(0..6) {
            self.attempt();
            if self.rng.u8(0..3) == 0 {
                let twin = self.twin();
                self.attempts.extend(twin);
            }
            if self.late && self.rng.bool() {
                self.late = false;
                self.now += Duration::from_millis(1);
                self.run_unheard();
            }
        }
        // The last ones are asked in peace.
        self.late = false;
        self.now = FAULTS_STOP;
        for _ in 0..self.rng.usize(1..3) {
            let started = self.tick();
            let answer = self.answer_in_peace();
            self.push(started, answer);
        }
    }

    fn attempt(&mut self) {
        let started = self.tick();
        let answer = match (&self.state, self.rng.u8(0..10)) {
            (_, 0..2) => Answer::Lost("reset".to_owned()),
            (_, 2) => Answer::NothingRan(self.refusal(503, "store-unavailable")),
            (State::Free, 3) => Answer::NothingHappened(self.reply(429)),
            (State::Free, 4) => {
                self.late = true;
                Answer::Lost("given up".to_owned())
            }
            (State::Free | State::Done, 5..7) => {
                self.run_unheard();
                Answer::Lost("crashed".to_owned())
            }
            // The owner was only slow: the late truth wins.
            (State::Unknown, 3) => {
                self.state = State::Ended(self.late_truth());
                self.answer_in_peace()
            }
            _ => self.answer_in_peace(),
        };
        self.push(started, answer);
    }

    /// The owner is killed at any point.
    fn run_unheard(&mut self) {
        if !matches!(self.state, State::Free) {
            return;
        }
        let happens = self.rng.bool();
        if happens {
            self.happen();
        }
        self.state = match (self.kind, happens) {
            (EffectKind::External, _) => State::Unknown,
            (_, false) => State::Free,
            (EffectKind::Transactional, true) => State::Ended(self.ok()),
            (EffectKind::Repeatable, true) => State::Done,
        };
    }

    fn late_truth(&mut self) -> Answer {
        match self.effects.is_empty() {
            true => Answer::BoundFailure(self.reply(409)),
            false => self.ok(),
        }
    }

    fn answer_in_peace(&mut self) -> Answer {
        let mut first = match &self.state {
            State::Unknown => return Answer::OutcomeUnknown(self.refusal(409, "outcome-unknown")),
            State::Ended(answer) => return mark(answer),
            State::Done => self.ok(),
            State::Free => match self.rng.u8(0..12) {
                0 => Answer::BoundFailure(self.reply(409)),
                1 if self.kind == EffectKind::External => {
                    if self.rng.bool() {
                        self.happen();
                    }
                    Answer::BoundFailure(self.reply(500))
                }
                _ => {
                    self.happen();
                    self.ok()
                }
            },
        };
        self.state = State::Ended(first.clone());
        if self.now < FAULTS_STOP && self.rng.u8(0..4) == 0 {
            first = Answer::Lost("reset".to_owned());
        }
        first
    }

    /// Somebody who asks for the same while the last attempt is under way.
    fn twin(&mut self) -> Option<Attempt> {
        let answer = Answer::Unclear(self.refusal(409, "in-progress"));
        let twin = self.attempts.last()?;
        let middle = (twin.started + twin.ended) / 2;
        Some(Attempt { started: middle, ended: middle, answer, ..twin.clone() })
    }

    fn happen(&mut self) {
        let (operation, payload) = (self.operation.name.clone(), self.operation.payload.clone());
        let at = self.tick();
        self.effects.push(Effect { operation, payload, at });
    }

    fn push(&mut self, started: Duration, answer: Answer) {
        let (operation, ended) = (self.operation.name.clone(), self.tick());
        self.attempts.push(Attempt { operation, started, ended, answer });
        self.now += Duration::from_millis(self.rng.u64(0..2) * 5);
    }

    fn tick(&mut self) -> Duration {
        self.now += Duration::from_millis(self.rng.u64(1..50));
        self.now
    }

    fn ok(&self) -> Answer {
        Answer::Ok(self.reply(201))
    }

    fn reply(&self, status: u16) -> Reply {
        let name = &self.operation.name;
        Reply::new(status, Digest::of(name.to_string()), body(name))
    }

    fn refusal(&self, status: u16, code: &str) -> Reply {
        Reply { code: Some(code.to_owned()), ..self.reply(status) }
    }
}

fn mark(answer: &Answer) -> Answer {
    let replay = |reply: &Reply| Reply { replayed: true, ..reply.clone() };
    match answer {
        Answer::Ok(reply) => Answer::Ok(replay(reply)),
        Answer::BoundFailure(reply) => Answer::BoundFailure(replay(reply)),
        other => other.clone(),
    }
}
