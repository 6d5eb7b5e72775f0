//! The right of one execution to run one operation, and how it ends.

use alloc::string::ToString as _;

use crate::{
    Cause, Change, Digest, Effect, Execution, Fence, Found, Key, Note, NoteKind, OperationId,
    Outcome, Record, Started, State, Stored, Swap, Terms, Timestamp, Ttl,
};

/// The right of one execution to run one operation.
///
/// It is data: dropping it ends nothing. A claim that is neither renewed nor settled is abandoned
/// when its lease is over, and its [`Effect`] says what happens then.
///
/// ```
/// # use onceward_core::*;
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// # let at = Timestamp::from_unix_micros(0);
/// let Step::Done(Verdict::Run(claim)) = admission.next(Swap::Stored { at }) else { unreachable!() };
/// assert_eq!(claim.attempt(), 1);
/// assert_eq!(claim.renew().expected, Some(claim.fence()), "the fence stays the same");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    operation: OperationId,
    terms: Terms,
    record: Record,
    claimed_at: Timestamp,
    follows_release: bool,
}

impl Claim {
    pub(crate) fn new(
        operation: OperationId,
        terms: Terms,
        mut record: Record,
        at: Timestamp,
    ) -> Self {
        if record.started == Started::Now {
            record.started = Started::At(at);
        }
        Self { operation, terms, record, claimed_at: at, follows_release: false }
    }

    pub(crate) fn after_release(self, follows_release: bool) -> Self {
        Self { follows_release, ..self }
    }

    /// What is run.
    #[must_use]
    pub fn operation(&self) -> &OperationId {
        &self.operation
    }

    /// The digest under which its record is stored.
    #[must_use]
    pub fn id(&self) -> Digest {
        self.operation.digest()
    }

    /// The owner execution id of this claim.
    #[must_use]
    pub fn execution(&self) -> Execution {
        self.record.execution
    }

    /// The fence that every change by this claim expects.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.record.fence
    }

    /// Which attempt this is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.record.attempts
    }

    /// Whether a client asked for this operation a while ago already: it was run before, or its key was
    /// given back.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.follows_release || self.record.attempts > 1
    }

    /// What is at stake, as stored with the claim.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.record.effect
    }

    /// The terms of the request that made the claim.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// When this claim was made, by the store's clock.
    #[must_use]
    pub fn claimed_at(&self) -> Timestamp {
        self.claimed_at
    }

    /// When the operation's first claim was made, by the store's clock: kept over take-overs.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        match self.record.started {
            Started::At(time) => time,
            Started::Now => self.claimed_at,
        }
    }

    /// The key for a downstream provider: see [`OperationId::key_for`].
    #[must_use]
    pub fn key_for(&self, effect: &str) -> Key {
        self.operation.key_for(effect)
    }

    /// Starts the lease anew. The fence stays, so that a lost reply does no harm.
    ///
    /// A conflict means that the claim is over: stop; a settlement would meet the same.
    #[must_use]
    pub fn renew(&self) -> Change {
        Change {
            id: self.id(),
            expected: Some(self.record.fence),
            next: self.record.clone(),
            note: None,
            retain: None,
        }
    }

    /// Ends the claim. `fence` must be fresh: it is what the ended record will carry.
    #[must_use]
    pub fn settle(&self, ending: Ending, fence: Fence) -> Settlement {
        Settlement::new(self.id(), &self.record, &self.terms, ending, fence)
    }
}

/// How a claim ends.
///
/// ```
/// use onceward_core::{Ending, Outcome};
///
/// let declined = Ending::FailedFinal(Outcome::inline(402, b"card declined".to_vec()));
/// # let _ = declined;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The effect happened: duplicates get this answer.
    Succeeded(Outcome),
    /// Refused for good: duplicates get this answer.
    FailedFinal(Outcome),
    /// Nothing happened, or a repetition is harmless: a duplicate runs it again.
    FailedRetryable,
    /// Nothing happened and the key is given back: it binds nothing any more.
    ///
    /// A re-run of a repeatable effect cannot know that of the runs before it: it ends as
    /// `FailedRetryable`, which keeps the fingerprint and the time of the first claim.
    Released,
    /// The effect may have happened or not.
    Unknown,
}

/// A claim on its way to its end: propose [`change`](Self::change), pass the answer to
/// [`next`](Self::next), until it is done. After a store error the same change is proposed again.
///
/// ```
/// # use onceward_core::*;
/// # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
/// # let terms = Terms::of(Effect::External).build()?;
/// # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
/// # let request = Request { operation, fingerprints, terms };
/// # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
/// # let at = Timestamp::from_unix_micros(0);
/// # let Step::Done(Verdict::Run(claim)) = admission.next(Swap::Stored { at }) else { unreachable!() };
/// let settlement = claim.settle(Ending::Released, Fence::from_random([3; 16]));
/// let step = settlement.next(Swap::Stored { at });
/// assert_eq!(step, SettlementStep::Done(Settled::Stored { at }));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settlement {
    change: Change,
}

/// What to do next for a [`Settlement`].
///
/// ```
/// use onceward_core::{Settled, Settlement, SettlementStep, Store, StoreError};
///
/// async fn end(store: &dyn Store, mut settlement: Settlement) -> Result<Settled, StoreError> {
///     loop {
///         let swap = store.swap(settlement.change()).await?;
///         match settlement.next(swap) {
///             SettlementStep::Swap(next) => settlement = next,
///             SettlementStep::Done(settled) => return Ok(settled),
///         }
///     }
/// }
/// ```
#[expect(clippy::large_enum_variant, reason = "moved once, and rarely")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementStep {
    /// Propose the change of this settlement; after [`Swap::Held`] not at once.
    Swap(Settlement),
    /// Nothing more to ask the store.
    Done(Settled),
}

/// The end of a settlement.
///
/// ```
/// use onceward_core::Settled;
///
/// /// Whether the handler's answer may go to its client.
/// fn may_answer(settled: &Settled) -> bool {
///     match settled {
///         Settled::Stored { .. } => true,
///         Settled::FencedOff(_) => false, // another execution has the key now
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The end is durable.
    Stored {
        /// The store's time of it.
        at: Timestamp,
    },
    /// The claim was over before: nothing was changed, and this execution's answer must not be sent.
    FencedOff(Found),
}

impl Settlement {
    pub(crate) fn new(
        id: Digest,
        claimed: &Record,
        terms: &Terms,
        ending: Ending,
        fence: Fence,
    ) -> Self {
        let retain = Ttl::For(terms.retain());
        let retain_failed = match claimed.effect {
            // It may have happened: too old to be repeated it is unknown, and kept like that.
            Effect::Repeatable { .. } => terms.unknown_retain(),
            Effect::Transactional | Effect::External => retain,
        };
        let (state, ttl, note) = match ending {
            Ending::Succeeded(outcome) => (State::Succeeded(outcome), retain, None),
            Ending::FailedFinal(outcome) => (State::FailedFinal(outcome), retain, None),
            Ending::FailedRetryable => (State::FailedRetryable, retain_failed, None),
            Ending::Released if may_have_happened_before(claimed) => {
                (State::FailedRetryable, retain_failed, Some(NoteKind::Release))
            }
            Ending::Released => (State::Released, Ttl::For(terms.lease()), Some(NoteKind::Release)),
            Ending::Unknown => (State::Unknown, terms.unknown_retain(), Some(NoteKind::Unknown)),
        };
        let note = note.map(|kind| Note::of_protocol(kind, claimed.execution));
        let next = Record { fence, state, ttl, cause: None, ..claimed.clone() };
        Self { change: Change { id, expected: Some(claimed.fence), next, note, retain: None } }
    }

    /// Says why the outcome is unknown, to clients and operators; another end has no cause.
    ///
    /// ```
    /// # use onceward_core::*;
    /// fn give_up(claim: &Claim, fence: Fence) -> Settlement {
    ///     claim.settle(Ending::Unknown, fence).because(Cause::ConnectionLost)
    /// }
    /// ```
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        if self.change.next.state == State::Unknown {
            self.change.next.cause = Some(cause);
            if let Some(note) = &mut self.change.note {
                note.reason = Some(cause.to_string());
            }
        }
        self
    }

    /// The change to propose now.
    #[must_use]
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Takes the store's answer to that change.
    #[must_use]
    pub fn next(self, swap: Swap) -> SettlementStep {
        let found = match swap {
            Swap::Stored { at } => return SettlementStep::Done(Settled::Stored { at }),
            Swap::Held => return SettlementStep::Swap(self),
            Swap::Conflict(found) => found,
        };
        if let Found::Record(stored) = &found {
            // The reply to an earlier try was lost: this is our own write.
            if stored.record.fence == self.change.next.fence {
                return SettlementStep::Done(Settled::Stored { at: stored.updated_at });
            }
            // The late truth wins over an unknown outcome of the same execution.
            let unknown = stored.record.state == State::Unknown;
            if unknown && stored.record.execution == self.change.next.execution {
                return self.over_unknown(stored);
            }
        }
        SettlementStep::Done(Settled::FencedOff(found))
    }

    /// Another unknown end counts only if it knows better why: a late 504, say, or that no answer is
    /// awaited any more.
    fn over_unknown(mut self, stored: &Stored) -> SettlementStep {
        let next = &self.change.next;
        let knows_why = next.cause.is_some() && next.cause != stored.record.cause;
        if next.state == State::Unknown && !knows_why {
            return SettlementStep::Done(Settled::Stored { at: stored.updated_at });
        }
        self.change.expected = Some(stored.record.fence);
        SettlementStep::Swap(self)
    }
}

/// Whether an earlier attempt may have had its effect: then this one cannot give the key free,
/// because the request that claims it afresh would not know how long ago that was.
fn may_have_happened_before(claimed: &Record) -> bool {
    matches!(claimed.effect, Effect::Repeatable { .. }) && claimed.attempts > 1
}
