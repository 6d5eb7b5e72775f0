//! The model: which steps there are, and how many faults.

use std::time::Duration;

use onceward_core::{
    Effect, Fingerprint, Key, OperationId, OperationName, Request, Scope, State, Swap, Terms, Ttl,
};
use stateright::{Model, Property};

use crate::{
    effects,
    mutant::Mutant,
    properties,
    requests::{
        ask, ask_without_reply, give_up, mark_unknown, renew, settle, settle_again,
        settle_again_without_reply, settle_without_reply,
    },
    store,
    world::{CLIENTS, Message, Phase, Sent, World, is_memory},
};

pub(crate) struct Protocol {
    pub(crate) requests: [Request; CLIENTS],
    pub(crate) effects: [Effect; CLIENTS],
    pub(crate) limits: Limits,
    pub(crate) mutant: Option<Mutant>,
}

/// How often each fault may happen. Leases expire without limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Changes that get no answer and stay in flight.
    pub(crate) timeouts: u8,
    /// Crashes of a worker.
    pub(crate) crashes: u8,
    /// New requests of clients that got no final answer.
    pub(crate) retries: u8,
    /// Ends of the operation's memory: retention over, or purged.
    pub(crate) forgotten: u8,
    /// Whether unknown outcomes end after a while, which an operator must ask for.
    pub(crate) unknown_ends: bool,
}

impl Limits {
    fn terms(self, effect: Effect) -> Terms {
        let terms = Terms::of(effect);
        let terms = match self.unknown_ends {
            true => terms.unknown_retain(Duration::from_secs(30 * 24 * 3600)),
            false => terms,
        };
        terms.build().expect("the defaults are valid")
    }
}

/// How an execution ends; `Succeed` and `Refuse` carry its own outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Succeed,
    Refuse,
    Fail,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ask(usize),
    AskWithoutReply(usize),
    GiveUp(usize),
    Perform(usize),
    Refuse(usize),
    Renew(usize),
    MarkUnknown(usize),
    Settle(usize, How),
    SettleWithoutReply(usize, How),
    SettleAgain(usize),
    SettleAgainWithoutReply(usize),
    /// A message in flight reaches the store; nobody hears the answer.
    Land(usize),
    /// A worker crashes, with or without the third request on it.
    Crash(usize, Third),
    LeaseOver,
    RetentionOver,
    /// The first claim, and what downstream remembers, become older than the promise.
    PromiseOver,
    DownstreamForgets,
    Sweep,
    Purge,
}

/// Whether the third request runs at the worker that crashes: where it is only matters then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Third {
    Elsewhere,
    There,
}

impl Protocol {
    pub(crate) fn new(effects: [Effect; CLIENTS], limits: Limits) -> Self {
        let operation = OperationId::new(
            Scope::global(),
            OperationName::new("pay").expect("a short name is valid"),
            Key::new("k").expect("a visible character is a key"),
        );
        let request = |client: usize| Request {
            operation: operation.clone(),
            // Clients 0 and 1 mean the same, client 2 does not.
            fingerprints: Fingerprint::from_parts(1, [u8::from(client == 2); 32]).into(),
            terms: limits.terms(effects[client]),
        };
        Self { requests: [request(0), request(1), request(2)], effects, limits, mutant: None }
    }

    pub(crate) fn with(mut self, mutant: Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    /// Lists more than is possible: what is not makes no next state.
    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        use Action::*;
        for client in 0..CLIENTS {
            match &world.slots[client].phase {
                Phase::Running(_) => {
                    actions.extend([
                        Perform(client),
                        Refuse(client),
                        Renew(client),
                        MarkUnknown(client),
                    ]);
                    for how in [How::Succeed, How::Refuse, How::Fail, How::Release] {
                        actions.extend([Settle(client, how), SettleWithoutReply(client, how)]);
                    }
                }
                Phase::Asking(_) => {
                    actions.extend([Ask(client), AskWithoutReply(client), GiveUp(client)]);
                }
                Phase::Settling { .. } | Phase::GivingUp(_) => {
                    actions.extend([SettleAgain(client), SettleAgainWithoutReply(client)]);
                }
                _ => actions.extend([Ask(client), AskWithoutReply(client)]),
            }
        }
        actions.extend((0..world.in_flight.len()).map(Land));
        for third in [Third::Elsewhere, Third::There] {
            actions.extend([Crash(0, third), Crash(1, third)]);
        }
        actions.extend([LeaseOver, RetentionOver, PromiseOver, DownstreamForgets, Sweep, Purge]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action)?;
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Protocol {
    fn act(&self, world: &mut World, action: Action) -> Option<()> {
        match action {
            Action::Ask(client) => ask(self, world, client),
            Action::AskWithoutReply(client) => ask_without_reply(self, world, client),
            Action::GiveUp(client) => give_up(world, client),
            Action::Perform(client) => effects::perform(self, world, client),
            Action::Refuse(client) => effects::refuse(self, world, client),
            Action::Renew(client) => renew(self, world, client),
            Action::MarkUnknown(client) => mark_unknown(self, world, client),
            Action::Settle(client, how) => settle(self, world, client, how),
            Action::SettleWithoutReply(client, how) => {
                settle_without_reply(self, world, client, how)
            }
            Action::SettleAgain(client) => settle_again(self, world, client),
            Action::SettleAgainWithoutReply(client) => {
                settle_again_without_reply(self, world, client)
            }
            Action::Land(index) => self.land(world, index),
            Action::Crash(worker, third) => self.crash(world, worker, third),
            Action::LeaseOver => lease_over(world),
            Action::RetentionOver => self.retention_over(world),
            Action::PromiseOver => promise_over(world),
            Action::DownstreamForgets => self.downstream_forgets(world),
            Action::Sweep => store::sweep(self, world),
            Action::Purge => self.purge(world),
        }
    }

    /// A message that would change nothing may as well stay in flight for ever.
    fn land(&self, world: &mut World, index: usize) -> Option<()> {
        let Message { change, generation } = world.in_flight.remove(index);
        let Swap::Stored { .. } = store::swap(self, world, &change) else { return None };
        effects::commit(self, world, &change, generation);
        Some(())
    }

    fn crash(&self, world: &mut World, worker: usize, third: Third) -> Option<()> {
        if world.spent.crashes == self.limits.crashes {
            return None;
        }
        let mut lost = 0;
        for (client, slot) in world.slots.iter_mut().enumerate() {
            let is_there = client == worker || (client == 2 && third == Third::There);
            let is_open = !matches!(slot.phase, Phase::Idle | Phase::Answered(_) | Phase::Lost);
            if is_there && is_open {
                slot.phase = Phase::Lost;
                lost += 1;
            }
        }
        world.spent.crashes += 1;
        (lost > 0).then_some(())
    }

    fn retention_over(&self, world: &mut World) -> Option<()> {
        let row = world.row.as_mut().filter(|row| is_memory(&row.record.state))?;
        if row.over || row.record.ttl == Ttl::Never {
            return None;
        }
        row.over = true;
        self.forget(world)
    }

    /// What a sweep may delete as well is left to it.
    fn purge(&self, world: &mut World) -> Option<()> {
        world.row.as_ref().filter(|row| is_memory(&row.record.state) && !row.over)?;
        store::purge(self, world)?;
        self.forget(world)
    }

    fn forget(&self, world: &mut World) -> Option<()> {
        world.spent.forgotten += 1;
        (world.spent.forgotten <= self.limits.forgotten).then_some(())
    }
}

impl Protocol {
    /// Downstream forgets the key some time after the promise. It remembers longer than promised by
    /// more than a request and an execution may last: an owner checks `max_run` before it sends.
    fn downstream_forgets(&self, world: &mut World) -> Option<()> {
        let may_send = world.slots.iter().any(|slot| match &slot.phase {
            Phase::Asking(_) => true,
            Phase::Running(running) => running.sent == Sent::No,
            _ => false,
        });
        let in_time = !may_send || self.mutant == Some(Mutant::SendAfterMaxRun);
        let is_old = world.downstream.is_some_and(|memory| memory.old);
        (is_old && in_time).then(|| world.downstream = None)
    }
}

/// I6: any lease may be over at any moment; nothing forbids this in any state.
fn lease_over(world: &mut World) -> Option<()> {
    let row = world.row.as_mut()?;
    row.over |= row.record.state == State::InProgress;
    Some(())
}

/// Time passes: what began first is over first, or all of it at once.
fn promise_over(world: &mut World) -> Option<()> {
    let ages = world.downstream.is_some_and(|memory| !memory.old);
    if let Some(memory) = &mut world.downstream {
        memory.old = true;
    }
    if let Some(row) = &mut world.row
        && matches!(row.record.effect, Effect::Repeatable { .. })
    {
        row.old |= !(ages && row.lags);
    }
    Some(())
}
