//! An outbox between a relay and the real one, whose calls fail before or after they are made.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    StoreError,
    message::{
        Changed, InspectQueue, Lane, LeaseRequest, MessageFilter, MessageId, MessagePage, Page,
        Position, Queue, QueueCondition, RelayId, RepairMessage, Settled, Settlement, ShownMessage,
        SinkId, SinkName, StartFrom, Sweep,
    },
    store::StoreFuture,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Lease,
    GiveBack,
    Waiting,
    Take,
    Settle,
    Sweep,
    Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It is not made, and fails.
    Before,
    /// It is made, and its answer is lost.
    After,
    /// It is not made, and never answers.
    Hang,
    /// It is not made: the outbox cannot be used as it is.
    Unusable,
}

type Decide = dyn FnMut(Call) -> Fault + Send;

pub struct Between {
    inner: Arc<dyn InspectQueue>,
    decide: Mutex<Box<Decide>>,
}

impl Between {
    pub fn over(
        inner: Arc<dyn InspectQueue>,
        decide: impl FnMut(Call) -> Fault + Send + 'static,
    ) -> Arc<dyn InspectQueue> {
        Arc::new(Self { inner, decide: Mutex::new(Box::new(decide)) })
    }

    fn pass<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let fault = (self.decide.lock().unwrap())(call);
            let lost = || StoreError::Unavailable(format!("{call:?}: {fault:?}"));
            match fault {
                Fault::None => answer.await,
                Fault::Before => Err(lost()),
                Fault::After => {
                    answer.await?;
                    Err(lost())
                }
                Fault::Unusable => Err(StoreError::Unusable("a read-only standby".into())),
                Fault::Hang => {
                    tokio::time::sleep(Duration::from_secs(1_000_000)).await;
                    Err(lost())
                }
            }
        })
    }
}

impl Queue for Between {
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId> {
        self.pass(Call::Open, self.inner.open_sink(name, from))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>> {
        self.pass(Call::Lease, self.inner.lease(request))
    }

    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()> {
        self.pass(Call::GiveBack, self.inner.give_back(sink, relay))
    }

    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>> {
        self.pass(Call::Waiting, self.inner.waiting(positions))
    }

    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page> {
        self.pass(Call::Take, self.inner.take(position, limit))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled> {
        self.pass(Call::Settle, self.inner.settle(settlement))
    }

    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep> {
        self.pass(Call::Sweep, self.inner.sweep(retain, limit))
    }
}

impl InspectQueue for Between {
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage> {
        self.inner.list(filter)
    }

    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>> {
        self.inner.show(id)
    }

    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed> {
        self.inner.repair(repair)
    }

    fn remove_sink<'a>(&'a self, sink: &'a SinkName) -> StoreFuture<'a, bool> {
        self.inner.remove_sink(sink)
    }

    fn condition(&self) -> StoreFuture<'_, QueueCondition> {
        self.pass(Call::Condition, self.inner.condition())
    }
}
