//! The state of the model: what is stored, where each request is, and what everybody was told.
//!
//! What the protocol itself keeps ([`Admission`], [`Claim`], [`Settlement`], [`Record`]) are the
//! shipped values. The rest is the world around them: messages in flight, the downstream's memory,
//! a ledger of effects outside the system, and how much of each fault is already spent.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use onceward_core::{Admission, Change, Claim, Execution, Fence, Record, Settlement, State};

/// Three requests: clients 0 and 1 ask for the same, client 2 for something else under the same key.
pub(crate) const CLIENTS: usize = 3;
/// A generation is the life of one memory of the operation: see [`World::generation`].
pub(crate) const GENERATIONS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct World {
    pub(crate) row: Option<Row>,
    pub(crate) slots: [Slot; CLIENTS],
    /// Changes that were sent, are not answered, and may land at any later moment.
    pub(crate) in_flight: Vec<Message>,
    /// What the downstream of a repeatable effect remembers of the operation's key.
    pub(crate) downstream: Option<Memory>,
    /// Counts how often the memory of the operation ended: an ended record past its retention was
    /// claimed over or swept, or an operator purged it. A release is no such end, because nothing
    /// may have happened before it: the invariants hold across it.
    pub(crate) generation: u8,
    pub(crate) ledger: [Ledger; GENERATIONS],
    pub(crate) spent: Spent,
    pub(crate) broken: Broken,
    /// Only for the mutant that counts fences by row: the number that each fence stands for.
    pub(crate) numbers: Vec<(Fence, u8)>,
}

/// The stored record, with time as flags that any action of the environment may raise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) record: Kept<Record>,
    /// The lease or the retention is over.
    pub(crate) over: bool,
    /// The first claim is older than the promise of a repeatable effect.
    pub(crate) old: bool,
    /// The first claim was stored when downstream knew the key already: its age lags behind.
    pub(crate) lags: bool,
    /// Whose claim was stored last, kept apart from the record so that mutants cannot hide it.
    pub(crate) owner: Run,
    /// Only for the mutant that counts fences by row.
    pub(crate) number: u8,
}

/// Names one request of one client; fences and executions are made of it, so they are fresh for ever
/// and do not depend on the order of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Run {
    pub(crate) client: u8,
    pub(crate) attempt: u8,
}

impl Run {
    pub(crate) fn execution(self) -> Execution {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&[self.client, self.attempt]);
        Execution::from_bytes(bytes)
    }

    pub(crate) fn of(execution: Execution) -> Self {
        let [client, attempt, ..] = *execution.as_bytes();
        Self { client, attempt }
    }

    pub(crate) fn fence(self, version: Version) -> Fence {
        let mut bytes = [0; 16];
        bytes[..3].copy_from_slice(&[self.client, self.attempt, version as u8]);
        Fence::from_random(bytes)
    }

    /// The place of this request in a set of bits.
    pub(crate) fn bit(self) -> u16 {
        1 << (usize::from(self.attempt) * CLIENTS + usize::from(self.client))
    }
}

/// What a fence was made for: every version of a record has its own.
#[derive(Clone, Copy)]
pub(crate) enum Version {
    Claim = 1,
    Unknown,
    Ended,
    NotCommitted,
    GivenUp,
}

/// One client and its present request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Slot {
    pub(crate) attempt: u8,
    pub(crate) phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// About to propose, once more or for the first time, the change of this admission.
    Asking(Kept<Admission>),
    Running(Running),
    /// About to propose, once more, the change of this settlement.
    Settling {
        running: Running,
        settlement: Kept<Settlement>,
        /// A commit was sent and not answered: it must be resolved by reading.
        doubtful: bool,
    },
    /// No answer to its claim came, and the client was told to come back. The claim, which may land
    /// still, is given back in the background.
    GivingUp(Kept<Settlement>),
    Answered(Answer),
    /// The worker crashed: its requests vanish, their clients hear nothing.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Running {
    pub(crate) claim: Kept<Claim>,
    /// The generation in which the claim was stored: its effect counts there, however late.
    pub(crate) generation: u8,
    pub(crate) sent: Sent,
    /// The outcome was declared unknown while the execution goes on, detached from its client.
    pub(crate) detached: bool,
}

/// What became of the effect of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sent {
    No,
    Done,
    Refused,
}

/// What a client hears. Which outcome it was is kept in the [`Ledger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// The answer of its own execution.
    First,
    Replayed,
    Busy,
    Mismatch,
    Unknown,
    /// A definite failure: nothing happened.
    Nothing,
    /// Failed, and may be repeated under the same key; whether something happened is not said.
    TryAgain,
    /// Another execution took over; whether something happened is not said.
    LeaseLost,
    /// The client was told `Unknown`; its execution settled later.
    LateTruth,
}

/// A change in flight that nobody waits for any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) change: Kept<Change>,
    /// The generation in which its sender's claim was stored.
    pub(crate) generation: u8,
}

/// The memory of a downstream that honours the operation's key: a repetition does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub(crate) refused: bool,
    /// The promise is over: the memory may vanish.
    pub(crate) old: bool,
}

/// What happened in one generation, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Ledger {
    pub(crate) effects: u8,
    /// A repeatable effect of an earlier generation was still remembered and answered for this one.
    pub(crate) remembered: bool,
    /// Final answers that clients received: whose success.
    pub(crate) successes: u16,
    /// Final answers that clients received: whose refusal.
    pub(crate) refusals: u16,
    /// Executions that could still have had an effect when a client was told that nothing happened.
    pub(crate) denied: u16,
}

/// How many faults happened; each kind is bounded by [`Limits`](crate::protocol::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Spent {
    pub(crate) timeouts: u8,
    pub(crate) crashes: u8,
    pub(crate) retries: u8,
    pub(crate) forgotten: u8,
}

/// Invariants about a step and not about a state: raised when the step is made, never lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Broken {
    pub(crate) fence: bool,
    pub(crate) rerun: bool,
    pub(crate) denial: bool,
    pub(crate) mismatch: bool,
    pub(crate) deletion: bool,
    pub(crate) release: bool,
}

/// Whether the record is remembered after its end; `Released` binds nothing.
pub(crate) fn is_memory(state: &State) -> bool {
    !matches!(state, State::InProgress | State::Released)
}

/// A shared value with its hash.
///
/// The checker clones and hashes every state that it generates, millions of them, and the shipped
/// values hold texts; they never change in place, so both can be done once.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T>(Arc<T>, u64);

impl<T: Hash> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(Arc::new(value), hasher.finish())
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1 && self.0 == other.0
    }
}

impl<T: Eq> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.1);
    }
}
