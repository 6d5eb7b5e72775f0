//! One request from the question to the answer: the shipped machines and a driver as thin as can be.

use onceward_core::{
    Admission, Change, Effect, Ending, Found, Outcome, Record, Settled, Settlement, SettlementStep,
    State, Step, Swap, Verdict,
};

use crate::{
    answers::{answer, tell_outcome},
    effects,
    mutant::Mutant,
    protocol::{How, Protocol},
    store,
    world::{Answer, Kept, Message, Phase, Row, Run, Running, Sent, Version, World},
};

/// The request of this client that is still to be admitted; begins it, or begins it again, if need be.
fn asking(model: &Protocol, world: &mut World, client: usize) -> Option<Admission> {
    // Clients 0 and 1 are alike if their terms are: only the order in which they begin tells them
    // apart, so one order is enough.
    let is_second_twin = client == 1 && model.effects[0] == model.effects[1];
    if is_second_twin && world.slots[0].phase == Phase::Idle {
        return None;
    }
    let slot = &mut world.slots[client];
    match &slot.phase {
        Phase::Asking(admission) => return Some(Admission::clone(admission)),
        Phase::Idle => {}
        Phase::Lost
        | Phase::Answered(Answer::Busy | Answer::Nothing | Answer::TryAgain | Answer::LeaseLost) => {
            if world.spent.retries == model.limits.retries {
                return None;
            }
            world.spent.retries += 1;
            slot.attempt += 1;
        }
        _ => return None,
    }
    let run = world.run(client);
    let request = model.requests[client].clone();
    Some(Admission::new(request, run.fence(Version::Claim), run.execution()))
}

/// Proposes the change of the admission, and hears the store's answer.
pub(crate) fn ask(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let admission = asking(model, world, client)?;
    let seen = world.row.clone();
    let swap = store::swap(model, world, admission.change());
    let conflict = matches!(swap, Swap::Conflict(_));
    let own = admission.change().next.clone();
    let step = admission.next(misread(model, swap, &own));
    let step = misjudge(model, step, seen.as_ref(), &own);
    if let (true, Some(seen)) = (conflict, &seen) {
        watch_step(world, seen, &own, &step);
    }
    match step {
        Step::Swap(admission) => world.slots[client].phase = Phase::Asking(Kept::new(admission)),
        Step::Done(verdict) => decide(model, world, client, verdict),
        Step::Newer { version } => unreachable!("all fingerprints have one version, not {version}"),
    }
    Some(())
}

/// The change is sent and no answer comes: it may land at any later moment, or never. The driver will
/// repeat it. Landing at once is a lost reply.
pub(crate) fn ask_without_reply(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let admission = asking(model, world, client)?;
    send_off(model, world, admission.change(), 0)?;
    world.slots[client].phase = Phase::Asking(Kept::new(admission));
    Some(())
}

/// The driver stops repeating a claim that was not answered; what may have been made is given back.
pub(crate) fn give_up(world: &mut World, client: usize) -> Option<()> {
    let Phase::Asking(admission) = &world.slots[client].phase else { return None };
    let run = world.run(client);
    let is_own = |message: &Message| Run::of(message.change.next.execution) == run;
    let may_hold = world.row.as_ref().is_some_and(|row| row.owner == run);
    if !may_hold && !world.in_flight.iter().any(is_own) {
        return None;
    }
    let settlement = admission.give_up(run.fence(Version::GivenUp));
    world.slots[client].phase = Phase::GivingUp(Kept::new(settlement));
    Some(())
}

/// Until it is stored the release is repeated, because the claim may land after it.
fn give_back(model: &Protocol, world: &mut World, client: usize, settlement: &Settlement) {
    let swap = store::swap(model, world, settlement.change());
    if let SettlementStep::Done(Settled::Stored { .. }) = settlement.clone().next(swap) {
        answer(world, client, world.generation, Answer::TryAgain);
    }
}

fn send_off(model: &Protocol, world: &mut World, change: &Change, generation: u8) -> Option<()> {
    if world.spent.timeouts == model.limits.timeouts {
        return None;
    }
    world.spent.timeouts += 1;
    world.in_flight.push(Message { change: Kept::new(change.clone()), generation });
    Some(())
}

/// What every step of an admission must respect, judged by what was really stored.
fn watch_step(world: &mut World, seen: &Row, own: &Record, step: &Step) {
    let (is_free, record) = (seen.is_free(), &seen.record);
    let is_bound_otherwise = !is_free && record.fingerprint != own.fingerprint;
    let mismatch = matches!(step, Step::Done(Verdict::Mismatch));
    world.broken.mismatch |= !is_free && is_bound_otherwise != mismatch;
    // After too many swaps a request is told to come back: that is no refusal.
    let claims = matches!(step, Step::Swap(_) | Step::Done(Verdict::Busy { .. }));
    world.broken.release |= is_free && !claims;
    // A claim that is recognised as the request's own is not run again: it never ran.
    if let Step::Swap(admission) = step
        && !is_free
        && record.fence != own.fence
    {
        world.broken.rerun |= !seen.may_run_again(admission.change().next.effect);
    }
}

fn decide(model: &Protocol, world: &mut World, client: usize, verdict: Verdict) {
    match verdict {
        Verdict::Run(claim) => {
            let (generation, sent) = (world.generation, Sent::No);
            let claim = Kept::new(claim);
            world.slots[client].phase =
                Phase::Running(Running { claim, generation, sent, detached: false });
        }
        Verdict::Replay(replay) => {
            tell_outcome(world, world.generation, &replay.outcome);
            world.slots[client].phase = Phase::Answered(Answer::Replayed);
        }
        Verdict::Busy { .. } => answer(world, client, world.generation, Answer::Busy),
        Verdict::Mismatch => answer(world, client, world.generation, Answer::Mismatch),
        Verdict::Unknown(_) if model.mutant == Some(Mutant::UnknownCalledFailure) => {
            answer(world, client, world.generation, Answer::Nothing);
        }
        Verdict::Unknown(_) => answer(world, client, world.generation, Answer::Unknown),
        Verdict::ClockSuspect => unreachable!("the clock of the model stands still"),
    }
}

/// Starts the lease anew. If the claim is over nothing changes, and the owner is a zombie as before.
pub(crate) fn renew(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let Phase::Running(running) = &world.slots[client].phase else { return None };
    let change = running.claim.renew();
    matches!(store::swap(model, world, &change), Swap::Stored { .. }).then_some(())
}

/// The owner gives up waiting: the client is told that the outcome is unknown, and the execution goes
/// on, detached. The lease may be over; another owner may have come.
pub(crate) fn mark_unknown(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    let Phase::Running(running) = world.slots[client].phase.clone() else { return None };
    if running.detached {
        return None;
    }
    let fence = world.run(client).fence(Version::Unknown);
    let settlement = running.claim.settle(Ending::Unknown, fence);
    let swap = store::swap(model, world, settlement.change());
    let SettlementStep::Done(Settled::Stored { .. }) = settlement.next(swap) else { return None };
    world.slots[client].phase = Phase::Running(Running { detached: true, ..running });
    Some(())
}

/// Ends the claim as `how` says, if that can be the truth.
pub(crate) fn settle(model: &Protocol, world: &mut World, client: usize, how: How) -> Option<()> {
    let (running, settlement) = settlement(model, world, client, how)?;
    deliver(model, world, client, running, settlement);
    Some(())
}

/// Sends the end and hears nothing. A plain swap is repeated; a commit is resolved by reading.
pub(crate) fn settle_without_reply(
    model: &Protocol,
    world: &mut World,
    client: usize,
    how: How,
) -> Option<()> {
    let (running, settlement) = settlement(model, world, client, how)?;
    send_off(model, world, settlement.change(), running.generation)?;
    let doubtful = effects::is_commit(settlement.change());
    if doubtful && model.mutant == Some(Mutant::DoubtfulCommitCalledFailure) {
        answer(world, client, running.generation, Answer::Nothing);
        return Some(());
    }
    if model.mutant == Some(Mutant::AnswerBeforeDurable)
        && let State::Succeeded(outcome) = &settlement.change().next.state
    {
        tell_outcome(world, running.generation, outcome);
        world.slots[client].phase = Phase::Answered(Answer::First);
        return Some(());
    }
    let settlement = Kept::new(settlement);
    world.slots[client].phase = Phase::Settling { running, settlement, doubtful };
    Some(())
}

fn settlement(
    model: &Protocol,
    world: &World,
    client: usize,
    how: How,
) -> Option<(Running, Settlement)> {
    let Phase::Running(running) = &world.slots[client].phase else { return None };
    if !effects::may_end(model, running, how) {
        return None;
    }
    let run = world.run(client);
    // Every execution has its own outcome, so that two different answers can be told apart.
    let outcome = |status| Outcome::inline(status, vec![run.client, run.attempt]);
    let ending = match how {
        How::Succeed => Ending::Succeeded(outcome(201)),
        How::Refuse => Ending::FailedFinal(outcome(402)),
        How::Fail => Ending::FailedRetryable,
        How::Release => Ending::Released,
    };
    Some((running.clone(), running.claim.settle(ending, run.fence(Version::Ended))))
}

/// Proposes the change of a settlement that was interrupted or met its own unknown outcome.
pub(crate) fn settle_again(model: &Protocol, world: &mut World, client: usize) -> Option<()> {
    match world.slots[client].phase.clone() {
        Phase::GivingUp(settlement) => give_back(model, world, client, &settlement),
        Phase::Settling { running, settlement, doubtful: true } => {
            resolve(model, world, client, running, Settlement::clone(&settlement));
        }
        Phase::Settling { running, settlement, doubtful: false } => {
            deliver(model, world, client, running, Settlement::clone(&settlement));
        }
        _ => return None,
    }
    Some(())
}

/// Sends the end once more and hears nothing once more.
pub(crate) fn settle_again_without_reply(
    model: &Protocol,
    world: &mut World,
    client: usize,
) -> Option<()> {
    match world.slots[client].phase.clone() {
        Phase::Settling { running, settlement, doubtful: false } => {
            send_off(model, world, settlement.change(), running.generation)?;
            let doubtful = effects::is_commit(settlement.change());
            world.slots[client].phase = Phase::Settling { running, settlement, doubtful };
            Some(())
        }
        Phase::GivingUp(settlement) => send_off(model, world, settlement.change(), 0),
        _ => None,
    }
}

fn deliver(
    model: &Protocol,
    world: &mut World,
    client: usize,
    running: Running,
    settlement: Settlement,
) {
    let change = settlement.change().clone();
    let swap = store::swap(model, world, &change);
    if matches!(swap, Swap::Stored { .. }) {
        effects::commit(model, world, &change, running.generation);
    }
    let step = settlement.next(misread(model, swap, &change.next));
    conclude(world, client, running, &change, step);
}

/// A commit whose answer was lost: the record tells, and if it is still open, a fenced swap closes it
/// before anything is said, because the commit may be on its way still.
fn resolve(
    model: &Protocol,
    world: &mut World,
    client: usize,
    running: Running,
    settlement: Settlement,
) {
    let change = settlement.change().clone();
    let swap = Swap::Conflict(store::read(world));
    let step = settlement.next(misread(model, swap, &change.next));
    if let SettlementStep::Done(Settled::FencedOff(Found::Record(stored))) = &step
        && stored.record.fence == running.claim.fence()
    {
        let fence = world.run(client).fence(Version::NotCommitted);
        let settlement = Kept::new(running.claim.settle(Ending::FailedRetryable, fence));
        world.slots[client].phase = Phase::Settling { running, settlement, doubtful: false };
        return;
    }
    conclude(world, client, running, &change, step);
}

fn conclude(
    world: &mut World,
    client: usize,
    running: Running,
    change: &Change,
    step: SettlementStep,
) {
    let settled = match step {
        SettlementStep::Swap(settlement) => {
            let settlement = Kept::new(settlement);
            world.slots[client].phase = Phase::Settling { running, settlement, doubtful: false };
            return;
        }
        SettlementStep::Done(settled) => settled,
    };
    let ended = match &settled {
        Settled::Stored { .. } => Some((&change.next.state, change.next.effect)),
        // Ended by this very execution, in a commit of its own: that is its answer.
        Settled::FencedOff(Found::Record(stored))
            if stored.record.execution == running.claim.execution() =>
        {
            Some((&stored.record.state, stored.record.effect))
        }
        Settled::FencedOff(_) => None,
    };
    if running.detached {
        let kind = if ended.is_some() { Answer::LateTruth } else { Answer::LeaseLost };
        world.slots[client].phase = Phase::Answered(kind);
        return;
    }
    let kind = match ended {
        Some((State::Succeeded(outcome) | State::FailedFinal(outcome), _)) => {
            tell_outcome(world, running.generation, outcome);
            world.slots[client].phase = Phase::Answered(Answer::First);
            return;
        }
        Some((State::FailedRetryable, Effect::Repeatable { .. })) => Answer::TryAgain,
        Some((State::FailedRetryable | State::Released, _)) => Answer::Nothing,
        Some((State::Unknown, _)) => Answer::Unknown,
        Some((State::InProgress, _)) | None => Answer::LeaseLost,
    };
    answer(world, client, running.generation, kind);
}

/// What a mistaken reader sees in a conflict.
fn misread(model: &Protocol, swap: Swap, own: &Record) -> Swap {
    let Swap::Conflict(Found::Record(mut stored)) = swap else { return swap };
    match model.mutant {
        Some(Mutant::TakeOverOfExternal) if stored.record.effect == Effect::External => {
            stored.record.effect = Effect::Transactional;
        }
        Some(Mutant::RerunOfOldRepeatable) => stored.read_at = store::NOW,
        Some(Mutant::RunnerConfigInsteadOfStored) => stored.record.effect = own.effect,
        Some(Mutant::LateWordOverOwnOutcome) if is_other_outcome(&stored.record, own) => {
            stored.record.state = State::Unknown;
        }
        Some(Mutant::LateTruthWithoutExecutionCheck) => stored.record.execution = own.execution,
        _ => {}
    }
    Swap::Conflict(Found::Record(stored))
}

fn is_other_outcome(stored: &Record, own: &Record) -> bool {
    let has_outcome = matches!(stored.state, State::Succeeded(_) | State::FailedFinal(_));
    has_outcome && stored.execution == own.execution && stored.fence != own.fence
}

/// What a mistaken admission makes of it.
fn misjudge(model: &Protocol, step: Step, seen: Option<&Row>, own: &Record) -> Step {
    let Some(seen) = seen else { return step };
    let differs = seen.record.fingerprint != own.fingerprint;
    let is_running = seen.record.state == State::InProgress && !seen.over;
    match model.mutant {
        Some(Mutant::MismatchAfterInFlight) if differs && is_running => {
            Step::Done(Verdict::Busy { retry_after: Admission::MAX_RETRY_AFTER })
        }
        Some(Mutant::ReleaseKeepsFingerprint)
            if differs && seen.record.state == State::Released =>
        {
            Step::Done(Verdict::Mismatch)
        }
        _ => step,
    }
}

impl World {
    pub(crate) fn run(&self, client: usize) -> Run {
        let client_byte = u8::try_from(client).expect("there are three clients");
        Run { client: client_byte, attempt: self.slots[client].attempt }
    }
}
