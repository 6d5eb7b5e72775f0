//! The answers that are on their way from the upstream, those of all routes together.
//!
//! Each holds a connection to the upstream, or a stream of one, until its client has taken it. A place
//! at the upstream ends when the answer begins, so a client that does not read holds none; here it counts.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use onceward::telemetry::{LevelGuard, RejectReason};

use super::shares::{Holder, Shares};
use crate::observe::metrics;

/// All answers; clones are the same.
#[derive(Clone)]
pub(crate) struct Answers(Arc<Mutex<AnswerCounts>>);

struct AnswerCounts {
    most: u32,
    taken: u32,
    /// Numbers that ended answers gave back: with those in use they are all numbers from 0 on.
    free: BinaryHeap<Reverse<u32>>,
    shares: Shares,
}

impl Answers {
    pub(crate) fn new() -> Self {
        let (free, shares) = (BinaryHeap::new(), Shares::of_at_least(1));
        Self(Arc::new(Mutex::new(AnswerCounts { most: 0, taken: 0, free, shares })))
    }

    pub(crate) fn allow(&self, most: usize) {
        self.enter().most = u32::try_from(most).unwrap_or(u32::MAX);
    }

    pub(crate) fn is_shut(&self, holder: &Holder) -> Option<RejectReason> {
        self.enter().is_shut(holder)
    }

    /// Counts an answer from before its request leaves until it has ended.
    pub(crate) fn take(&self, holder: Holder) -> Result<Answer, RejectReason> {
        let mut counts = self.enter();
        if let Some(reason) = counts.is_shut(&holder) {
            return Err(reason);
        }
        counts.shares.take(&holder);
        let number = counts.free.pop().map_or(counts.taken, |Reverse(number)| number);
        counts.taken += 1;
        let state = AnswerState {
            of: self.clone(),
            holder,
            number,
            is_left: AtomicBool::new(false),
            _counted: metrics::UPSTREAM_ANSWERS.hold(),
        };
        Ok(Answer(Arc::new(state)))
    }

    fn enter(&self) -> MutexGuard<'_, AnswerCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerCounts {
    fn is_shut(&self, holder: &Holder) -> Option<RejectReason> {
        match self.taken >= self.most {
            true => Some(RejectReason::Limit),
            false => (!self.shares.admit(holder, self.most)).then_some(RejectReason::Share),
        }
    }
}

/// One answer; clones are the same. It counts until all of them are dropped.
#[derive(Clone)]
pub(crate) struct Answer(Arc<AnswerState>);

struct AnswerState {
    of: Answers,
    holder: Holder,
    number: u32,
    is_left: AtomicBool,
    _counted: LevelGuard,
}

impl Answer {
    /// The smallest number that no other answer has: always less than how many there may be.
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    /// Its client took it no further.
    pub(crate) fn leave(&self) {
        self.0.is_left.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_left(&self) -> bool {
        self.0.is_left.load(Ordering::Relaxed)
    }
}

impl Drop for AnswerState {
    fn drop(&mut self) {
        let mut counts = self.of.enter();
        counts.taken -= 1;
        counts.free.push(Reverse(self.number));
        counts.shares.give_back(&self.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Origin;

    fn from(last: u8) -> Holder {
        let origin = Origin { address: Some([10, 0, 0, last].into()), connection: None };
        Holder { origin, peer_share: 0.5, is_unmatched: false, is_arriving: false }
    }

    fn numbers(taken: &[Answer]) -> Vec<u32> {
        taken.iter().map(Answer::number).collect()
    }

    #[test]
    fn numbers_stay_below_what_is_allowed() {
        let answers = Answers::new();
        answers.allow(64);
        let mut taken: Vec<_> = (0..32).map(|_| answers.take(from(1)).ok().unwrap()).collect();
        assert_eq!(answers.take(from(1)).err(), Some(RejectReason::Share));
        taken.extend((0..32).map(|_| answers.take(from(2)).ok().unwrap()));
        assert_eq!(answers.take(from(3)).err(), Some(RejectReason::Limit));
        assert_eq!(numbers(&taken), (0..64).collect::<Vec<_>>());
        taken.drain(10..50);
        let again: Vec<_> = (0..30).map(|_| answers.take(from(3)).ok().unwrap()).collect();
        assert_eq!(numbers(&again), (10..40).collect::<Vec<_>>());
        drop((taken, again));
        assert_eq!(answers.take(from(1)).ok().unwrap().number(), 0);
    }

    #[test]
    fn one_counts_until_its_last_clone_is_gone() {
        let answers = Answers::new();
        answers.allow(1);
        let answer = answers.take(from(1)).ok().unwrap();
        let of_request = answer.clone();
        answer.leave();
        drop(answer);
        assert!(of_request.is_left());
        assert_eq!(answers.take(from(1)).err(), Some(RejectReason::Limit));
        drop(of_request);
        assert!(answers.take(from(1)).is_ok());
    }
}
