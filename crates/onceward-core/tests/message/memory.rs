//! The outbox behind a lock, with transactions on threads: what the conformance suite runs over.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use onceward_core::{
    StoreError, StoreFuture, Timestamp,
    conformance::{InboxBench, QueueBench},
    message::{
        Changed, InspectQueue, Lane, LeaseRequest, MessageFilter, MessageId, MessagePage,
        NewMessage, Page, Position, Queue, QueueCondition, RelayId, RepairMessage, Settled,
        Settlement, ShownMessage, SinkId, SinkName, StartFrom, Sweep,
    },
};

use crate::outbox::{Mistake, Outbox};

/// A queue that forgets with its last handle.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A transaction has ended.
    ended: Condvar,
    mistake: Option<Mistake>,
}

struct State {
    outbox: Outbox,
    /// Consumer and message, until when it is remembered, and the transaction that is open.
    inbox: BTreeMap<(String, String), (Timestamp, Option<u64>)>,
    next_id: u128,
}

impl Memory {
    fn new(mistake: Option<Mistake>) -> Self {
        let state =
            State { outbox: Outbox::new(mistake), inbox: BTreeMap::new(), next_id: 1 << 100 };
        Self(Arc::new(Shared { state: Mutex::new(state), ended: Condvar::new(), mistake }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no case panics while it holds the lock")
    }

    fn answer<T: Send + 'static>(&self, ask: impl FnOnce(&mut Outbox) -> T) -> StoreFuture<'_, T> {
        let answer = ask(&mut self.state().outbox);
        Box::pin(async { Ok(answer) })
    }
}

impl Queue for Memory {
    fn open_sink<'a>(&'a self, name: &'a SinkName, from: StartFrom) -> StoreFuture<'a, SinkId> {
        self.answer(|outbox| outbox.open_sink(name, from, Lane::all()))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> StoreFuture<'a, Vec<Position>> {
        self.answer(|outbox| outbox.lease(request))
    }

    fn give_back(&self, sink: SinkId, relay: RelayId) -> StoreFuture<'_, ()> {
        self.answer(|outbox| outbox.give_back(sink, relay))
    }

    fn waiting<'a>(&'a self, positions: &'a [Position]) -> StoreFuture<'a, Vec<Lane>> {
        self.answer(|outbox| outbox.waiting(positions))
    }

    fn take<'a>(&'a self, position: &'a Position, limit: u32) -> StoreFuture<'a, Page> {
        self.answer(|outbox| outbox.take(position, limit as usize))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> StoreFuture<'a, Settled> {
        self.answer(|outbox| outbox.settle(settlement))
    }

    fn sweep(&self, retain: Duration, limit: u32) -> StoreFuture<'_, Sweep> {
        self.answer(|outbox| outbox.sweep(retain, limit))
    }
}

impl InspectQueue for Memory {
    fn list<'a>(&'a self, filter: &'a MessageFilter) -> StoreFuture<'a, MessagePage> {
        let page = self.state().outbox.list(filter);
        Box::pin(async { page })
    }

    fn show(&self, id: MessageId) -> StoreFuture<'_, Vec<ShownMessage>> {
        self.answer(|outbox| outbox.show(id))
    }

    fn repair<'a>(&'a self, repair: &'a RepairMessage) -> StoreFuture<'a, Changed> {
        self.answer(|outbox| outbox.repair(repair))
    }

    fn remove_sink<'a>(&'a self, sink: &'a SinkName) -> StoreFuture<'a, bool> {
        self.answer(|outbox| outbox.remove_sink(sink))
    }

    fn condition(&self) -> StoreFuture<'_, QueueCondition> {
        self.answer(|outbox| outbox.condition())
    }
}

/// A producer's or a consumer's transaction.
pub(crate) struct Transaction {
    memory: Memory,
    xid: u64,
    is_open: bool,
}

impl Transaction {
    fn end(&mut self, commits: bool) {
        if !core::mem::replace(&mut self.is_open, false) {
            return;
        }
        let mut state = self.memory.state();
        let keeps = commits || self.memory.0.mistake == Some(Mistake::RollbackKeepsMessages);
        match keeps {
            true => state.outbox.commit(self.xid),
            false => state.outbox.roll_back(self.xid),
        }
        let is_own = |open: &Option<u64>| *open == Some(self.xid);
        let stays = self.memory.0.mistake == Some(Mistake::InboxOutsideTransaction);
        state.inbox.retain(|_, (_, open)| commits || stays || !is_own(open));
        for (_, open) in state.inbox.values_mut().filter(|(_, open)| is_own(open)) {
            *open = None;
        }
        self.memory.0.ended.notify_all();
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// An outbox in memory, which may make a mistake.
#[derive(Clone, Copy)]
pub(crate) struct Bench(pub(crate) Option<Mistake>);

impl QueueBench for Bench {
    type Queue = Memory;
    type Transaction = Transaction;

    async fn open(&self) -> Memory {
        Memory::new(self.0)
    }

    async fn reopen(&self, _: Memory) -> Option<Memory> {
        None
    }

    async fn another(&self, queue: &Memory) -> Memory {
        queue.clone()
    }

    async fn age(&self, queue: &Memory, by: Duration) {
        let outbox = &mut queue.state().outbox;
        outbox.now = outbox.now.plus(by);
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    async fn begin(&self, queue: &Memory) -> Transaction {
        let xid = queue.state().outbox.begin();
        Transaction { memory: queue.clone(), xid, is_open: true }
    }

    async fn enqueue(
        &self,
        queue: &Memory,
        transaction: &mut Transaction,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        let mut state = queue.state();
        state.next_id += 1;
        let made = MessageId::from_bytes(state.next_id.to_be_bytes());
        state.outbox.enqueue(transaction.xid, message, made)
    }

    async fn commit(&self, mut transaction: Transaction) {
        transaction.end(true);
    }

    async fn roll_back(&self, transaction: Transaction) {
        drop(transaction);
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

impl InboxBench for Bench {
    async fn first_time(
        &self,
        queue: &Memory,
        transaction: &mut Transaction,
        consumer: &str,
        message: &str,
        retain: Duration,
    ) -> Result<bool, StoreError> {
        let consumer = match self.0 {
            Some(Mistake::InboxOfAllConsumers) => "",
            _ => consumer,
        };
        let name = (consumer.to_owned(), message.to_owned());
        let mut state = queue.state();
        let is_anothers = |state: &State| {
            let open = state.inbox.get(&name).and_then(|(_, open)| *open);
            open.is_some_and(|xid| xid != transaction.xid)
        };
        while is_anothers(&state) {
            state = queue.0.ended.wait(state).expect("no case panics while it holds the lock");
        }
        let now = state.outbox.now;
        let forgets = self.0 != Some(Mistake::InboxForEver);
        if state.inbox.get(&name).is_some_and(|(until, _)| *until > now || !forgets) {
            return Ok(false);
        }
        state.inbox.insert(name, (now.plus(retain), Some(transaction.xid)));
        Ok(true)
    }
}

/// What a task on a thread of its own returns.
struct Task<T>(Arc<Mutex<Waiting<T>>>);

struct Waiting<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut waiting = self.0.lock().expect("the task does not panic");
        match waiting.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    let waiting = Arc::new(Mutex::new(Waiting { value: None, waker: None }));
    let of_task = waiting.clone();
    thread::spawn(move || {
        let value = block_on(task);
        let mut waiting = of_task.lock().expect("the waiter does not panic");
        waiting.value = Some(value);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    });
    Task(waiting)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
