//! The oracle's notes: every claim that landed, every effect, every answer, in their order.
//!
//! They are taken beside the system under test: from what the raw store held before and after each
//! change, from the effects themselves and from what clients heard.

use onceward::{
    Digest, Effect, Execution, State, Status, Timestamp,
    protocol::{Fence, Started, Stored},
    store::Change,
};

use crate::{
    answer::Receipt,
    checks::{I5, I7, I9},
    hearing::{Bound, OnEnded},
    settings::Nature,
    tally::{Event, Tally},
};

/// A check that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) check: &'static str,
    pub(crate) detail: String,
}

/// The time between a claim that starts an operation afresh and the next such claim.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) key: u8,
    pub(crate) fingerprint: u8,
    pub(crate) started_at: Timestamp,
    pub(crate) effects: u32,
    /// Downstream answered from its memory.
    pub(crate) remembered: bool,
    /// The first bound answer that a client heard, and whether it was an ok.
    pub(crate) answer: Option<(bool, Receipt)>,
}

/// One claim that landed in the store. Its number is its place in the list.
#[derive(Debug)]
pub(crate) struct ClaimNote {
    pub(crate) execution: Execution,
    pub(crate) fence: Fence,
    pub(crate) generation: usize,
    pub(crate) process: usize,
    pub(crate) effects: u32,
    pub(crate) endings: Vec<Ended>,
    pub(crate) ran: bool,
    pub(crate) vanished: bool,
    pub(crate) settling: bool,
    pub(crate) superseded: bool,
    /// A client was told that this claim did nothing.
    pub(crate) denied: bool,
}

/// How a claim ended in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded,
    Refused,
    Retryable,
    Released,
    Unknown,
}

impl Ended {
    pub(crate) fn of(state: &State) -> Option<Self> {
        Some(match state {
            State::InProgress => return None,
            State::Succeeded(_) => Self::Succeeded,
            State::FailedFinal(_) => Self::Refused,
            State::FailedRetryable => Self::Retryable,
            State::Released => Self::Released,
            State::Unknown => Self::Unknown,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) nature: Nature,
    pub(crate) ids: Vec<Digest>,
    pub(crate) claims: Vec<ClaimNote>,
    pub(crate) generations: Vec<Generation>,
    pub(crate) heard: Vec<OnEnded>,
    pub(crate) bound: [Option<Bound>; 2],
    pub(crate) violations: Vec<Violation>,
    pub(crate) tally: Tally,
    /// The executions that somebody tried to give back.
    pub(crate) given_back: Vec<Execution>,
    /// Ended versions that somebody saw past their retention: the clock may be set back since.
    expired: Vec<Fence>,
    moment: u64,
}

impl Book {
    pub(crate) fn new(nature: Nature, ids: Vec<Digest>, clients: usize) -> Self {
        Self {
            nature,
            ids,
            claims: Vec::new(),
            generations: Vec::new(),
            heard: vec![OnEnded::default(); clients],
            bound: [None; 2],
            violations: Vec::new(),
            tally: Tally::default(),
            given_back: Vec::new(),
            expired: Vec::new(),
            moment: 0,
        }
    }

    pub(crate) fn violate(&mut self, check: &'static str, detail: String) {
        self.violations.push(Violation { check, detail });
    }

    pub(crate) fn count(&mut self, event: Event) {
        self.tally.add(event, 1);
    }

    /// Orders what happens at the same virtual time.
    pub(crate) fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn claim_of(&self, execution: Execution) -> Option<usize> {
        self.claims.iter().rposition(|claim| claim.execution == execution)
    }

    /// Somebody was shown this record.
    pub(crate) fn shown(&mut self, stored: &Stored) {
        if stored.status() == Status::Expired {
            self.expired.push(stored.record.fence);
        }
    }

    /// The store made this change over what it held before.
    pub(crate) fn landed(
        &mut self,
        before: Option<&Stored>,
        change: &Change,
        at: Timestamp,
        process: usize,
    ) {
        let fence = before.map(|stored| stored.record.fence);
        if fence != change.expected {
            let expected = change.expected;
            self.violate(I5, format!("a change that expected {expected:?} landed on {fence:?}"));
        }
        match (before, Ended::of(&change.next.state)) {
            (_, None) if change.is_claim() => self.claimed(before, change, at, process),
            (Some(before), None) => self.renewed(before, change),
            (Some(before), Some(ended)) => self.ended(before, change, ended),
            (None, _) => self.violate(I5, "an end landed where no claim was".into()),
        }
    }

    fn claimed(&mut self, before: Option<&Stored>, change: &Change, at: Timestamp, process: usize) {
        if self.claims.iter().any(|claim| claim.fence == change.next.fence) {
            let number = self.claims.len();
            self.violate(I5, format!("claim #{number} has a fence that was stored before"));
        }
        let old = before.filter(|stored| !self.binds_nothing(stored, change));
        let generation = match old {
            Some(stored) => self.claimed_again(stored, change),
            None => self.claimed_afresh(before, change, at),
        };
        self.claims.push(ClaimNote {
            execution: change.next.execution,
            fence: change.next.fence,
            generation,
            process,
            effects: 0,
            endings: Vec::new(),
            ran: false,
            vanished: false,
            settling: false,
            superseded: false,
            denied: false,
        });
    }

    fn binds_nothing(&self, stored: &Stored, change: &Change) -> bool {
        // The retention of a retryable failure may end while a re-claim of it is on its way.
        let on_its_way = stored.record.state == State::FailedRetryable
            && matches!(change.next.started, Started::At(_));
        let observation = self.expired.contains(&stored.record.fence);
        let expired = (observation || stored.status() == Status::Expired) && !on_its_way;
        stored.record.state == State::Released || expired
    }

    fn claimed_afresh(&mut self, before: Option<&Stored>, change: &Change, at: Timestamp) -> usize {
        self.count(match before.map(|stored| &stored.record.state) {
            None => Event::Claim,
            Some(State::Released) => Event::AfterRelease,
            Some(_) => Event::AfterExpiry,
        });
        if change.next.started != Started::Now || change.next.attempts != 1 {
            self.violate(I7, format!("a fresh claim is not counted afresh: {:?}", change.next));
        }
        let key = self.ids.iter().position(|id| *id == change.id).expect("a known key");
        self.generations.push(Generation {
            key: key as u8,
            fingerprint: change.next.fingerprint.digest()[0],
            started_at: at,
            effects: 0,
            remembered: false,
            answer: None,
        });
        self.generations.len() - 1
    }

    fn claimed_again(&mut self, before: &Stored, change: &Change) -> usize {
        let owner = self.claim_of(before.record.execution).expect("its claim landed");
        self.claims[owner].superseded = true;
        let generation = self.claims[owner].generation;
        let takes_over = before.record.state == State::InProgress;
        self.count(if takes_over { Event::TakeOver } else { Event::Reclaim });

        let may_rerun = match before.record.state {
            State::FailedRetryable => true,
            State::InProgress => self.nature != Nature::External,
            _ => false,
        };
        if !may_rerun {
            let state = &before.record.state;
            self.violate(I7, format!("claim #{owner} was claimed over as {state:?}"));
        }
        let Generation { fingerprint, started_at, .. } = self.generations[generation];
        if change.next.fingerprint.digest()[0] != fingerprint {
            self.violate(I9, format!("claim #{owner} was claimed over by another request"));
        }
        if change.next.started != Started::At(started_at) {
            self.violate(I7, format!("the re-claim of #{owner} forgot the first claim's time"));
        }
        generation
    }

    fn renewed(&mut self, before: &Stored, change: &Change) {
        let is_owner = before.record.execution == change.next.execution;
        if !is_owner || before.record.state != State::InProgress {
            let state = &before.record.state;
            self.violate(I5, format!("a renewal landed on {state:?}, owner: {is_owner}"));
        }
    }

    fn ended(&mut self, before: &Stored, change: &Change, ended: Ended) {
        let Some(claim) = self.claim_of(change.next.execution) else {
            return self.violate(I5, "an execution ended that never claimed".into());
        };
        let is_owner = before.record.execution == change.next.execution;
        let is_open = matches!(before.record.state, State::InProgress | State::Unknown);
        if !is_owner || !is_open || self.claims[claim].superseded {
            let state = &before.record.state;
            let text = format!("{ended:?} of #{claim} landed on {state:?}, owner: {is_owner}");
            self.violate(I5, text);
        }
        if ended != Ended::Unknown && before.status() == Status::Unknown {
            self.count(Event::LateTruth);
        }
        if ended == Ended::Released {
            self.count(if self.claims[claim].ran { Event::Release } else { Event::GiveBack });
        }
        self.claims[claim].endings.push(ended);
    }

    /// A process was told to run a claim.
    pub(crate) fn ran(&mut self, claim: usize, started_at: Timestamp, effect: Effect) {
        let generation = self.claims[claim].generation;
        if self.generations[generation].started_at != started_at {
            self.violate(I7, format!("claim #{claim} does not know when the first one was made"));
        }
        if self.claims[claim].ran {
            self.violate(I7, format!("claim #{claim} was run twice"));
        }
        let external = self.nature == Nature::External && effect == Effect::External;
        let doubles = self.claims.iter().filter(|other| {
            let ended = other.endings.contains(&Ended::Retryable);
            other.generation == generation && other.ran && !ended
        });
        if external && doubles.count() > 0 {
            self.violate(I7, format!("claim #{claim} runs an external effect again"));
        }
        self.claims[claim].ran = true;
    }

    pub(crate) fn effect(&mut self, claim: usize) {
        self.count(Event::Effect);
        self.claims[claim].effects += 1;
        let generation = self.claims[claim].generation;
        self.generations[generation].effects += 1;
    }

    /// Whether the settlement of this claim has come to its end, one way or the other.
    pub(crate) fn is_settled(&self, claim: usize) -> bool {
        let claim = &self.claims[claim];
        claim.superseded || !claim.endings.is_empty()
    }
}
