//! What is known about one operation, and whether it fits together.

use std::time::Duration;

use crate::history::{Answer, Effect, Ending, Operation, Reply, Verdict};

use super::{EffectKind, OnEnded, Rules, Violation};

/// All that was seen of one operation.
pub(super) struct Evidence<'a> {
    pub(super) operation: &'a Operation,
    /// In the order of their ends.
    pub(super) heard: Vec<OnEnded>,
    /// In the order of their times.
    pub(super) effects: Vec<&'a Effect>,
    pub(super) ending: Option<&'a Ending>,
    /// By then it must have ended.
    pub(super) end_limit: Duration,
    pub(super) rules: &'a Rules,
}

impl Evidence<'_> {
    /// Adds what does not fit.
    pub(super) fn check(&self, violations: &mut Vec<Violation>) {
        if self.rules.has_ledger {
            violations.extend(self.double_effect());
            violations.extend(self.foreign_effect());
            violations.extend(self.missing_effect());
            violations.extend(self.denied_effect());
            violations.extend(self.untrue_verdict());
        }
        violations.extend(self.divergent_answer());
        violations.extend(self.second_first_answer());
        violations.extend(self.forgotten_answer());
        violations.extend(self.wrong_body());
        violations.extend(self.disowned());
        violations.extend(self.lost_answer());
        violations.extend(self.no_end());
    }

    fn double_effect(&self) -> Option<Violation> {
        let (operation, effects) = (self.operation.name.clone(), self.owned_effects());
        (effects.len() > 1).then_some(Violation::DoubleEffect { operation, effects })
    }

    fn foreign_effect(&self) -> Option<Violation> {
        let asked = &self.operation.payload;
        let effect = self.effects.iter().find(|effect| effect.payload != *asked)?;
        Some(Violation::ForeignEffect { effect: (*effect).clone(), asked: asked.clone() })
    }

    /// The first ok must come after the first effect; what is true for it is true for all.
    fn missing_effect(&self) -> Option<Violation> {
        let ok = self.heard.iter().find(|heard| is_ok(heard.answer()))?.clone();
        let Some(effect) = self.effects.first() else {
            return Some(Violation::AbsentEffect { ok });
        };
        let is_late = effect.at > ok.attempt.ended + self.rules.clock_tolerance;
        is_late.then(|| Violation::LateEffect { ok, effect: (*effect).clone() })
    }

    fn denied_effect(&self) -> Option<Violation> {
        let first = self.effects.first()?;
        let bound = self.heard.iter().find(|heard| is_bound_denial(heard.answer()));
        let last_word = self.last_word().filter(|last| {
            // Otherwise an attempt that was lost may have arrived after it, and counts.
            let was_there = first.at + self.rules.clock_tolerance < last.attempt.started;
            matches!(last.answer(), Answer::NothingHappened(_)) && was_there
        });
        let denial = bound.or(last_word).or_else(|| self.unanimous_denial())?.clone();
        Some(Violation::DeniedEffect { denial, effects: self.owned_effects() })
    }

    /// The last attempt, if it was started after all others had ended.
    fn last_word(&self) -> Option<&OnEnded> {
        let (last, others) = self.heard.split_last()?;
        let is_alone = others.iter().all(|other| other.attempt.ended <= last.attempt.started);
        is_alone.then_some(last)
    }

    /// The last attempt, if all of them were told that they had done nothing.
    fn unanimous_denial(&self) -> Option<&OnEnded> {
        let denies =
            |answer: &Answer| matches!(answer, Answer::NothingHappened(_) | Answer::NothingRan(_));
        self.heard.last().filter(|_| self.heard.iter().all(|heard| denies(heard.answer())))
    }

    /// Whether the last word tells what the ledger tells.
    fn untrue_verdict(&self) -> Option<Violation> {
        let ending = self.ending?;
        let is_true = match &ending.verdict {
            Verdict::Ok(_) => self.effects.len() == 1,
            Verdict::NothingHappened(_) => self.effects.is_empty(),
            Verdict::BoundFailure(reply) => reply.status >= 500 || self.effects.is_empty(),
            Verdict::Unknown | Verdict::NotEnded => true,
        };
        (!is_true).then(|| Violation::UntrueVerdict {
            operation: self.operation.name.clone(),
            verdict: ending.verdict.clone(),
            effects: self.owned_effects(),
        })
    }

    /// All answers that bind are the same, in whatever order they were heard.
    fn divergent_answer(&self) -> Option<Violation> {
        let (first, reply) = self.first_bound()?;
        let differs = |heard: &&OnEnded| {
            let other = heard.answer().bound();
            other.is_some_and(|other| {
                is_ok(heard.answer()) != is_ok(first.answer()) || !other.is_same(reply)
            })
        };
        let second = self.heard.iter().find(differs)?.clone();
        let first = first.clone();
        Some(match is_ok(first.answer()) == is_ok(second.answer()) {
            true => Violation::DivergentReplay { first, second },
            false => Violation::OtherBoundAnswer { first, second },
        })
    }

    /// An answer without the mark of a replay goes to the client whose request was run.
    fn second_first_answer(&self) -> Option<Violation> {
        let is_first = |reply: &Reply| !reply.replayed;
        let mut unmarked =
            self.heard.iter().filter(|heard| heard.answer().bound().is_some_and(is_first));
        let (first, second) = (unmarked.next()?.clone(), unmarked.next()?.clone());
        Some(Violation::SecondFirstAnswer { first, second })
    }

    /// Nobody who asks after an answer that binds may be told that nothing happened.
    fn forgotten_answer(&self) -> Option<Violation> {
        let (bound, _) = self.first_bound()?;
        let denies = |heard: &&OnEnded| {
            matches!(heard.answer(), Answer::NothingHappened(_))
                && heard.attempt.started >= bound.attempt.ended
        };
        let denial = self.heard.iter().find(denies)?.clone();
        Some(Violation::ForgottenAnswer { bound: bound.clone(), denial })
    }

    fn wrong_body(&self) -> Option<Violation> {
        let expected = self.operation.body?;
        let is_wrong =
            |answer: &Answer| matches!(answer, Answer::Ok(reply) if reply.body != expected);
        let ok = self.heard.iter().find(|heard| is_wrong(heard.answer()))?.clone();
        Some(Violation::WrongBody { ok, expected })
    }

    /// All attempts ask for the same: nobody but another scope can have used the key otherwise.
    fn disowned(&self) -> Option<Violation> {
        let is_reused = |answer: &Answer| match answer {
            Answer::NothingRan(reply) => reply.code.as_deref() == Some("key-reused"),
            _ => false,
        };
        let refused = self.heard.iter().find(|heard| is_reused(heard.answer()))?.clone();
        Some(Violation::Disowned { refused })
    }

    /// What was once answered and binds must still be the answer in the end.
    fn lost_answer(&self) -> Option<Violation> {
        let (bound, reply) = self.first_bound()?;
        let verdict = &self.ending?.verdict;
        let is_kept = match verdict {
            Verdict::Ok(last) => is_ok(bound.answer()) && last.is_same(reply),
            Verdict::BoundFailure(last) => !is_ok(bound.answer()) && last.is_same(reply),
            Verdict::NothingHappened(_) | Verdict::Unknown | Verdict::NotEnded => false,
        };
        let (bound, verdict) = (bound.clone(), verdict.clone());
        (!is_kept).then_some(Violation::LostAnswer { bound, verdict })
    }

    fn no_end(&self) -> Option<Violation> {
        let operation = self.operation.name.clone();
        let last = self.heard.last().cloned();
        let Some(ending) = self.ending else {
            return Some(Violation::NotEnded { operation, last });
        };
        match ending.verdict {
            Verdict::NotEnded => Some(Violation::NotEnded { operation, last }),
            _ if ending.at > self.end_limit => {
                let (at, limit) = (ending.at, self.end_limit);
                Some(Violation::EndedLate { operation, at, limit })
            }
            Verdict::Unknown if self.rules.effect != EffectKind::External => {
                let effects = self.owned_effects();
                Some(Violation::UnknownForEver { operation, last, effects })
            }
            _ => None,
        }
    }

    fn first_bound(&self) -> Option<(&OnEnded, &Reply)> {
        self.heard.iter().find_map(|heard| Some((heard, heard.answer().bound()?)))
    }

    fn owned_effects(&self) -> Vec<Effect> {
        self.effects.iter().copied().cloned().collect()
    }
}

fn is_ok(answer: &Answer) -> bool {
    matches!(answer, Answer::Ok(_))
}

/// A stored 4xx says that nothing was done, and that nothing will be; a stored 5xx does not.
fn is_bound_denial(answer: &Answer) -> bool {
    matches!(answer, Answer::BoundFailure(reply) if reply.status < 500)
}
