//! A store of one row that applies the shipped [`Change`]s by the fence rule, and the watch over it.

use std::time::Duration;

use onceward_core::{
    Change, Effect, Found, NoteKind, Record, Started, State, Stored, Swap, Timestamp, Ttl,
};

use crate::{
    mutant::Mutant,
    protocol::Protocol,
    world::{Kept, Phase, Row, Run, World, is_memory},
};

/// The promise of the repeatable effect.
pub(crate) const WITHIN: Duration = Duration::from_secs(3600);
/// The store's clock stands still; what has passed is told by the flags of the [`Row`].
pub(crate) const NOW: Timestamp = Timestamp::from_unix_micros(1_000_000_000_000);

impl Row {
    /// The record as the shipped code reads it, with the flags turned into times.
    pub(crate) fn stored(&self) -> Stored {
        let mut record = Record::clone(&self.record);
        if self.over {
            record.ttl = Ttl::For(Duration::ZERO);
        }
        let read_at = if self.old { NOW.plus(WITHIN) } else { NOW };
        Stored { record, updated_at: NOW, read_at, suspect: false }
    }

    /// Whether the record binds nothing any more. This and the next two are what the shipped
    /// [`Stored::status`] is judged by, so they do not ask it.
    pub(crate) fn is_free(&self) -> bool {
        match self.record.state {
            State::InProgress => false,
            State::Released => true,
            _ => self.over,
        }
    }

    /// Whether a request of the same meaning and this effect may run the operation again.
    pub(crate) fn may_run_again(&self, effect: Effect) -> bool {
        let repeats = matches!(effect, Effect::Repeatable { .. });
        match (&self.record.state, self.record.effect) {
            (State::FailedRetryable, Effect::Transactional | Effect::External) => true,
            (State::InProgress, Effect::Transactional) => self.over,
            (State::InProgress, Effect::Repeatable { .. }) => self.over && repeats && !self.old,
            (State::FailedRetryable, Effect::Repeatable { .. }) => repeats && !self.old,
            _ => false,
        }
    }

    /// Whether it is not settled what happened: no operator may delete it.
    fn is_open(&self) -> bool {
        let repeats = matches!(self.record.effect, Effect::Repeatable { .. });
        match self.record.state {
            State::InProgress | State::Unknown => true,
            State::FailedRetryable => repeats && self.old,
            _ => false,
        }
    }
}

pub(crate) fn read(world: &World) -> Found {
    world.row.as_ref().map_or(Found::Nothing, |row| Found::Record(Box::new(row.stored())))
}

/// Replaces the record iff the stored fence is the expected one.
pub(crate) fn swap(model: &Protocol, world: &mut World, change: &Change) -> Swap {
    if !is_expected(model, world, change) {
        return Swap::Conflict(read(world));
    }
    watch(world, change);
    if change.is_claim() {
        begin(world, change);
    }
    write(model, world, change);
    Swap::Stored { at: NOW }
}

fn is_expected(model: &Protocol, world: &World, change: &Change) -> bool {
    let stored = world.row.as_ref();
    let is_renewal = change.expected == Some(change.next.fence);
    match model.mutant {
        Some(Mutant::NoFence) => change.expected.is_some() == stored.is_some(),
        Some(Mutant::PerRowFenceCounter) => {
            let number = |fence| world.numbers.iter().find(|(known, _)| *known == fence);
            let expected = change.expected.map(|fence| number(fence).map_or(0, |(_, n)| *n));
            expected == stored.map(|row| row.number)
        }
        Some(Mutant::RenewAfterTakeOver) if is_renewal => {
            stored.is_some_and(|row| row.record.state == State::InProgress)
        }
        _ => change.expected == stored.map(|row| row.record.fence),
    }
}

/// What must be true of every change that is made, judged by what is really stored.
fn watch(world: &mut World, change: &Change) {
    let (stored, next) = (world.row.as_ref(), &change.next);
    let by_owner = stored.is_some_and(|row| row.owner == Run::of(next.execution));
    if change.expected != stored.map(|row| row.record.fence) || !(change.is_claim() || by_owner) {
        world.broken.fence = true;
    }
    let Some(row) = stored else { return };
    if !row.is_free() && row.record.fingerprint != next.fingerprint {
        world.broken.mismatch = true;
    }
    // What was read may have changed in two ways without a new fence: the lease was renewed, which
    // carries no safety, or the promise has ended, see `downstream_forgets`.
    let over = row.over || row.record.state == State::InProgress;
    let row = Row { over, old: false, ..row.clone() };
    if change.is_claim() && !row.is_free() && !row.may_run_again(next.effect) {
        world.broken.rerun = true;
    }
}

/// A stored claim belongs to the generation that it finds or begins, also when it lands late.
fn begin(world: &mut World, change: &Change) {
    if world.row.as_ref().is_some_and(|row| row.over && is_memory(&row.record.state)) {
        world.generation += 1;
    }
    let generation = world.generation;
    let execution = change.next.execution;
    for slot in &mut world.slots {
        if let Phase::Running(running) | Phase::Settling { running, .. } = &mut slot.phase
            && running.claim.execution() == execution
        {
            running.generation = generation;
        }
    }
    for message in &mut world.in_flight {
        if message.change.next.execution == execution {
            message.generation = generation;
        }
    }
}

fn write(model: &Protocol, world: &mut World, change: &Change) {
    let mut next = change.next.clone();
    let before = world.row.as_ref();
    let restarts = model.mutant == Some(Mutant::TakeOverRestartsAge) && change.is_claim();
    let is_fresh = restarts || next.started == Started::Now;
    if is_fresh {
        next.started = Started::At(NOW);
    }
    let is_release = change.note.as_ref().is_some_and(|note| note.kind == NoteKind::Release);
    match (model.mutant, before) {
        (Some(Mutant::TakeOverKeepsExecution), Some(row)) => next.execution = row.record.execution,
        (Some(Mutant::ReleaseOfRerunForgetsAge), _) if is_release => next.state = State::Released,
        _ => {}
    }
    let owner = match before {
        Some(row) if !change.is_claim() => row.owner,
        _ => Run::of(change.next.execution),
    };
    let number = match (model.mutant, before) {
        (Some(Mutant::PerRowFenceCounter), None) => 1,
        (Some(Mutant::PerRowFenceCounter), Some(row)) if change.expected == Some(next.fence) => {
            row.number
        }
        (Some(Mutant::PerRowFenceCounter), Some(row)) => row.number + 1,
        _ => 0,
    };
    if number > 0 {
        world.numbers.retain(|(fence, _)| *fence != next.fence);
        world.numbers.push((next.fence, number));
    }
    let old = !is_fresh && before.is_some_and(|row| row.old);
    let lags = match before {
        Some(row) if !is_fresh => row.lags,
        _ => world.downstream.is_some(),
    };
    world.row = Some(Row { record: Kept::new(next), over: false, old, lags, owner, number });
}

/// Deletes the row as a sweep does: ended, and past its retention.
pub(crate) fn sweep(model: &Protocol, world: &mut World) -> Option<()> {
    let row = world.row.as_ref()?;
    // That the lease for which a released row is kept has passed needs no flag: it binds nothing.
    let allowed = match row.record.state {
        State::InProgress => false,
        State::Released => true,
        _ => row.over,
    };
    let mistaken = match model.mutant {
        Some(Mutant::SweepOfInProgress) => row.over,
        Some(Mutant::SweepOfUnknown) => row.record.state == State::Unknown,
        _ => false,
    };
    (allowed || mistaken).then(|| delete(model, world, allowed))
}

/// Deletes the row as an operator does: whatever is not open.
pub(crate) fn purge(model: &Protocol, world: &mut World) -> Option<()> {
    let row = world.row.as_ref()?;
    let (may_go, allowed) = (!row.stored().status().is_open(), !row.is_open());
    may_go.then(|| delete(model, world, allowed))
}

fn delete(model: &Protocol, world: &mut World, allowed: bool) {
    let row = world.row.take().expect("only what is there is deleted");
    // What must not be forgotten still counts: only an allowed end of the memory begins anew.
    if allowed && is_memory(&row.record.state) {
        world.generation += 1;
    }
    world.broken.deletion |= !allowed;
    // A claim in flight expects that nothing is stored: landing after the deletion, it would bring
    // back a fence that was gone. The margin of the sweep is longer than any message lives; an
    // operator who purges must wait as long.
    if model.mutant != Some(Mutant::MessageOutlivesDeletion) {
        world.in_flight.clear();
    }
}
