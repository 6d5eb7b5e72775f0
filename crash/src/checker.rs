//! The oracle: what a history and a ledger must look like, whatever was broken on the way.
//!
//! It knows nothing of the system under test but its contract. It is sound as long as every attempt
//! is in the history, also one that was given up, and the ledger was read after the last of them.

mod evidence;
mod violation;

#[cfg(test)]
mod random;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::history::{Answer, Effect, History, Ledger, OperationName, Verdict};

use evidence::Evidence;
pub use violation::{OnEnded, Violation};

/// What kind of effect the operations have: it decides whether unknown may be a last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectKind {
    /// In the same transaction as the record: never unknown in the end.
    Transactional,
    /// Somewhere else, and not to be repeated: may be unknown in the end.
    External,
    /// Somewhere else, where a repetition changes nothing: never unknown in the end.
    Repeatable,
}

/// What is demanded of a history.
#[derive(Clone, Debug)]
pub struct Rules {
    effect: EffectKind,
    floor_percent: usize,
    floor_within: Duration,
    end_margin: Duration,
    clock_tolerance: Duration,
    has_ledger: bool,
}

impl Rules {
    /// The rules of `docs/guarantees.md` for operations with such an effect.
    #[must_use]
    pub fn new(effect: EffectKind) -> Self {
        Self {
            effect,
            floor_percent: 95,
            floor_within: Duration::from_secs(30),
            end_margin: Duration::from_secs(5),
            clock_tolerance: Duration::ZERO,
            has_ledger: true,
        }
    }

    /// How many of a hundred operations must end well; 95 unless told.
    #[must_use]
    pub fn floor_percent(mut self, percent: usize) -> Self {
        self.floor_percent = percent;
        self
    }

    /// How soon after the faults they must; 30 seconds unless told.
    #[must_use]
    pub fn floor_within(mut self, time: Duration) -> Self {
        self.floor_within = time;
        self
    }

    /// How long after faults and one lease everything must have ended; 5 seconds unless told.
    #[must_use]
    pub fn end_margin(mut self, time: Duration) -> Self {
        self.end_margin = time;
        self
    }

    /// How far the clocks of ledger and clients may be apart; not at all unless told.
    #[must_use]
    pub fn clock_tolerance(mut self, tolerance: Duration) -> Self {
        self.clock_tolerance = tolerance;
        self
    }

    /// Nobody keeps a ledger: only answers are compared.
    #[must_use]
    pub fn without_ledger(mut self) -> Self {
        self.has_ledger = false;
        self
    }
}

/// Everything in which the history and the ledger break the rules; empty if they keep them.
#[must_use]
pub fn check(history: &History, ledger: &Ledger, rules: &Rules) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut heard = heard(history);
    let mut effects = effects(ledger, rules);
    for operation in history.operations.values() {
        let evidence = Evidence {
            operation,
            heard: heard.remove(&operation.name).unwrap_or_default(),
            effects: effects.remove(&operation.name).unwrap_or_default(),
            ending: history.endings.get(&operation.name),
            end_limit: history.faults_stopped_at + history.lease + rules.end_margin,
            rules,
        };
        evidence.check(&mut violations);
    }
    // What is left belongs to operations that nobody asked for.
    for heard in heard.into_values().flatten().filter(|heard| heard.answer().bound().is_some()) {
        violations.push(Violation::UnaskedAnswer { heard });
    }
    for effect in effects.into_values().flatten() {
        violations.push(Violation::UnaskedEffect { effect: effect.clone() });
    }
    check_availability(history, rules, &mut violations);
    violations
}

/// The attempts of each operation, in the order in which they ended.
fn heard(history: &History) -> BTreeMap<&OperationName, Vec<OnEnded>> {
    let mut all: BTreeMap<_, Vec<OnEnded>> = BTreeMap::new();
    for (number, attempt) in history.attempts.iter().enumerate() {
        all.entry(&attempt.operation)
            .or_default()
            .push(OnEnded { number, attempt: attempt.clone() });
    }
    for attempts in all.values_mut() {
        attempts.sort_by_key(|heard| heard.attempt.ended);
    }
    all
}

/// The effects of each operation, in the order of their times.
fn effects<'a>(ledger: &'a Ledger, rules: &Rules) -> HashMap<&'a OperationName, Vec<&'a Effect>> {
    let mut all: HashMap<_, Vec<&Effect>> = HashMap::new();
    if rules.has_ledger {
        for effect in &ledger.effects {
            all.entry(&effect.operation).or_default().push(effect);
        }
    }
    for effects in all.values_mut() {
        effects.sort_by_key(|effect| effect.at);
    }
    all
}

/// A dead system keeps every promise of safety: so many must have ended, and somebody must be happy.
fn check_availability(history: &History, rules: &Rules, violations: &mut Vec<Violation>) {
    let mut answers = history.attempts.iter().map(|attempt| &attempt.answer);
    if !answers.any(|answer| matches!(answer, Answer::Ok(_))) {
        violations.push(Violation::NothingOk { attempts: history.attempts.len() });
    }
    let limit = history.faults_stopped_at + rules.floor_within;
    let ended = history.operations.keys().filter_map(|name| history.endings.get(name));
    let ended = ended
        .filter(|ending| ending.at <= limit)
        .filter(|ending| matches!(ending.verdict, Verdict::Ok(_) | Verdict::Unknown))
        .count();
    let operations = history.operations.len();
    if ended * 100 < operations * rules.floor_percent {
        let (floor_percent, within) = (rules.floor_percent, rules.floor_within);
        violations.push(Violation::Unavailable { ended, operations, floor_percent, within });
    }
}
