//! THE state machine: a request and what is stored give the next swap or a [`Verdict`].
//!
//! ```text
//! what is stored                                       verdict or next swap
//! ------------------------------------------------------------------------------------------
//! nothing, retention over, released                    claim afresh, whatever the fingerprint
//! retention over only by a clock that jumped           ClockSuspect, whatever the fingerprint
//! other fingerprint, in every other status             Mismatch
//! succeeded, failed for good                           Replay
//! failed, may be run again                             claim again, attempts + 1
//! in progress, lease running                           Busy
//! in progress, lease over    transactional             take over, attempts + 1
//!                            external                  Unknown
//!                            repeatable, still within  take over, attempts + 1
//!                            repeatable, too late      Unknown
//! unknown, unreadable                                  Unknown
//! ```
//!
//! What an abandoned claim allows is decided by the effect *stored with it*, never by the reader's
//! configuration: the reader did not run it. See [`Stored::status`] for the first column.

use alloc::boxed::Box;
use core::time::Duration;

use crate::{
    Change, Claim, Effect, Ending, Execution, Fence, Found, Note, NoteKind, Record, Replay,
    Request, Settlement, Started, State, Status, Stored, Swap, Timestamp, Ttl, Verdict,
};

/// One request on its way to a verdict: propose [`change`](Self::change), pass the answer to
/// [`next`](Self::next), until it is done.
///
/// After a store error the same change is proposed again: if the first one was made after all, the
/// conflict shows a record with this admission's own fence, and that *is* the claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    request: Request,
    change: Change,
    first: Fence,
    swaps: u8,
    /// The key was given back by an earlier claim.
    follows_release: bool,
}

/// What to do next for an [`Admission`].
#[expect(clippy::large_enum_variant, reason = "moved once for each answer of a store")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Propose the change of this admission.
    Swap(Admission),
    /// Nothing more to ask the store.
    Done(Verdict),
    /// The record's fingerprint has a version that only newer software can compare.
    Newer {
        /// That version.
        version: u8,
    },
}

impl Admission {
    /// How many changes are proposed: each further one means that another request was faster.
    pub const MAX_SWAPS: u8 = 3;
    /// Running operations usually end soon: it makes sense to ask again after a second.
    pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(1);

    /// Starts with the proposal to create the record. `fence` and `execution` must be fresh.
    #[must_use]
    pub fn new(request: Request, fence: Fence, execution: Execution) -> Self {
        let record = Record {
            scope: request.operation.scope().clone(),
            operation: request.operation.name().clone(),
            key_digest: request.operation.key().digest(),
            fence,
            execution,
            effect: request.terms.effect(),
            max_run: Some(request.terms.max_run()),
            keeps: request.terms.keeps(),
            fingerprint: request.fingerprints.current(),
            attempts: 1,
            state: State::InProgress,
            cause: None,
            started: Started::Now,
            ttl: Ttl::For(request.terms.lease()),
        };
        let id = request.operation.digest();
        let retain = Some(request.terms.retain());
        let change = Change { id, expected: None, next: record, note: None, retain };
        Self { request, change, first: fence, swaps: 1, follows_release: false }
    }

    /// The change to propose now.
    #[must_use]
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Takes the store's answer to that change.
    #[must_use]
    pub fn next(self, swap: Swap) -> Step {
        match swap {
            Swap::Stored { at } => self.run(at),
            Swap::Held if self.change.is_claim() => busy(Ttl::For(Self::MAX_RETRY_AFTER)),
            // Its own claim is there, and no other request would run it or give it back.
            Swap::Held => Step::Swap(self),
            Swap::Conflict(Found::Nothing) => self.claim_afresh(None),
            Swap::Conflict(Found::Unreadable { .. }) => Step::Done(Verdict::Unknown(None)),
            Swap::Conflict(Found::Record(stored)) if self.is_own(&stored) => {
                self.recognise(&stored)
            }
            Swap::Conflict(Found::Record(stored)) => self.weigh(stored),
        }
    }

    /// Gives back the claim that this admission may hold without knowing it, because no answer came.
    #[must_use]
    pub fn give_up(&self, fence: Fence) -> Settlement {
        let Change { id, next, .. } = &self.change;
        Settlement::new(*id, next, &self.request.terms, Ending::Released, fence)
    }

    fn weigh(mut self, stored: Box<Stored>) -> Step {
        let status = stored.status();
        self.follows_release = status == Status::Released;
        if matches!(status, Status::Released | Status::Expired) {
            return self.claim_afresh(Some(stored.record.fence));
        }
        if status == Status::ClockSuspect {
            return Step::Done(Verdict::ClockSuspect);
        }
        let version = stored.record.fingerprint.version();
        let Some(fingerprint) = self.request.fingerprints.under(version) else {
            return Step::Newer { version };
        };
        if fingerprint != stored.record.fingerprint {
            return Step::Done(Verdict::Mismatch);
        }
        match status {
            Status::InProgress => busy(stored.record.ttl),
            Status::Succeeded | Status::FailedFinal => {
                let replay = Replay::of(*stored).expect("what has ended has an outcome");
                Step::Done(Verdict::Replay(replay))
            }
            Status::FailedRetryable | Status::Interrupted => match self.effect_of_rerun(&stored) {
                Some(effect) => self.claim_again(&stored, effect),
                None => Step::Done(Verdict::Unknown(Some(stored))),
            },
            _ => Step::Done(Verdict::Unknown(Some(stored))),
        }
    }

    /// What is at stake if this request runs the operation again; `None`: it must not.
    ///
    /// An earlier run of a repeatable effect may have happened, so that a runner that would not
    /// repeat it under the same downstream key may not run it; the shorter promise of both counts.
    fn effect_of_rerun(&self, stored: &Stored) -> Option<Effect> {
        match (stored.record.effect, self.request.terms.effect()) {
            (Effect::Repeatable { within }, Effect::Repeatable { within: own }) => {
                let within = within.min(own);
                (stored.age() < within).then_some(Effect::Repeatable { within })
            }
            (Effect::Repeatable { .. }, _) => None,
            (Effect::Transactional | Effect::External, own) => Some(own),
        }
    }

    fn claim_afresh(self, expected: Option<Fence>) -> Step {
        let effect = self.request.terms.effect();
        let next = Record { effect, attempts: 1, started: Started::Now, ..self.another_claim() };
        self.propose(expected, next, None)
    }

    fn claim_again(self, stored: &Stored, effect: Effect) -> Step {
        let note = (stored.record.state == State::InProgress)
            .then(|| Note::of_protocol(NoteKind::TakeOver, stored.record.execution));
        let attempts = stored.record.attempts.saturating_add(1);
        let started = Started::At(stored.started_at());
        let next = Record { effect, attempts, started, ..self.another_claim() };
        self.propose(Some(stored.record.fence), next, note)
    }

    /// The claim before may have been stored and taken over unnoticed: it must not come back.
    fn another_claim(&self) -> Record {
        let claim = &self.change.next;
        let (fence, execution) = (claim.fence.successor(), claim.execution.successor());
        Record { fence, execution, ..claim.clone() }
    }

    /// The claim was made by an earlier try whose reply was lost. It may run if its lease lasts.
    fn recognise(mut self, stored: &Stored) -> Step {
        let claimed = Record { ttl: self.change.next.ttl, ..stored.record.clone() };
        if stored.status() != Status::InProgress {
            return self.propose(Some(claimed.fence), claimed, None);
        }
        self.change.next = claimed;
        self.run(stored.updated_at)
    }

    fn propose(mut self, expected: Option<Fence>, next: Record, note: Option<Note>) -> Step {
        let had_claim = self.change.expected == Some(self.change.next.fence);
        // An own claim is renewed however late: no other request would run it or give it back.
        let renews = expected == Some(next.fence);
        if had_claim || (self.swaps >= Self::MAX_SWAPS && !renews) {
            return busy(Ttl::Never);
        }
        self.swaps += 1;
        let retain = (!renews).then(|| self.request.terms.retain());
        self.change = Change { id: self.change.id, expected, next, note, retain };
        Step::Swap(self)
    }

    fn run(self, at: Timestamp) -> Step {
        let Change { next, .. } = self.change;
        let claim = Claim::new(self.request.operation, self.request.terms, next, at);
        Step::Done(Verdict::Run(claim.after_release(self.follows_release)))
    }

    /// Whether any of this admission's proposals made that record.
    fn is_own(&self, stored: &Stored) -> bool {
        let fences = core::iter::successors(Some(self.first), |fence| Some(fence.successor()));
        fences.take(usize::from(self.swaps)).any(|fence| fence == stored.record.fence)
    }
}

fn busy(lease: Ttl) -> Step {
    let Ttl::For(left) = lease else { return busy(Ttl::For(Admission::MAX_RETRY_AFTER)) };
    Step::Done(Verdict::Busy { retry_after: left.min(Admission::MAX_RETRY_AFTER) })
}
