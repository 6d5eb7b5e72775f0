//! The executable meaning of [`Queue`] and [`InspectQueue`]: a suite that every outbox runs unchanged.
//!
//! A backend gives a [`QueueBench`] and gets one `#[test]` for each rule:
//!
//! ```
//! onceward_core::queue_conformance!(MyBench::new(), block_on);
//! onceward_core::inbox_conformance!(MyBench::new(), block_on); // if it has `Receive`
//! ```

use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};

use super::{HOUR, all_of, fresh_bytes, fresh_fence};
use crate::{
    StoreError,
    message::{
        Changed, DeadLetters, InspectQueue, Lane, LaneWork, LeaseRequest, Message, MessageFilter,
        MessageId, MessageState, NewMessage, Next, Page, Position, Queue, RelayId, RepairKind,
        RepairMessage, Settled, Settlement, ShownMessage, SinkId, SinkName, StartFrom, TopicRule,
    },
};
use core::{future::Future, time::Duration};

mod inbox;
mod leases;
mod operators;
mod parked;
mod relay;
mod settlements;
mod sinks;
mod taking;

pub use inbox::*;
pub use leases::*;
pub use operators::*;
pub use parked::*;
pub use settlements::*;
pub use sinks::*;
pub use taking::*;

use relay::{Relay, relay};

/// What the suite needs from the author of an outbox.
pub trait QueueBench: Clone + Send + Sync + 'static {
    /// The queue under test, cheap to clone: clones are the same queue.
    type Queue: InspectQueue + Clone;

    /// A transaction of a producer, on a connection of its own. Dropped, it is rolled back.
    type Transaction: Send;

    /// Opens a queue without messages and sinks.
    fn open(&self) -> impl Future<Output = Self::Queue> + Send;

    /// Closes the queue and opens it again, as a restart does; `None`: it forgets, and says so.
    fn reopen(&self, queue: Self::Queue) -> impl Future<Output = Option<Self::Queue>> + Send;

    /// Opens the same queue once more, as another process does.
    fn another(&self, queue: &Self::Queue) -> impl Future<Output = Self::Queue> + Send;

    /// Moves all stored times back, those of messages, parked entries, steps, leases and inbox, so that
    /// everything is that much older.
    fn age(&self, queue: &Self::Queue, by: Duration) -> impl Future<Output = ()> + Send;

    /// Whether two producers' transactions can be open at once.
    fn is_concurrent(&self) -> bool;

    /// Begins a producer's transaction.
    fn begin(&self, queue: &Self::Queue) -> impl Future<Output = Self::Transaction> + Send;

    /// Puts a message into the outbox, inside this transaction.
    fn enqueue(
        &self,
        queue: &Self::Queue,
        transaction: &mut Self::Transaction,
        message: &NewMessage,
    ) -> impl Future<Output = Result<MessageId, StoreError>> + Send;

    /// Commits a producer's transaction.
    fn commit(&self, transaction: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Rolls a producer's transaction back.
    fn roll_back(&self, transaction: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Runs a task beside the others, on real threads if there are any.
    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send;
}

/// What the suite needs, besides, from the author of an inbox.
pub trait InboxBench: QueueBench {
    /// Asks whether a consumer gets a message for the first time, inside this transaction.
    fn first_time(
        &self,
        queue: &Self::Queue,
        transaction: &mut Self::Transaction,
        consumer: &str,
        message: &str,
        retain: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Makes one `#[test]` for each rule of [`Queue`](crate::message::Queue) and
/// [`InspectQueue`](crate::message::InspectQueue).
///
/// ```
/// use onceward_core::queue_conformance;
///
/// queue_conformance!(MyBench::new(), block_on); // a `QueueBench`, and what runs a future to its end
/// ```
#[macro_export]
macro_rules! queue_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::conformance_tests! { $bench, $block_on:
            committed_messages_are_taken_once_and_in_order
            rolled_back_messages_are_never_taken
            pages_follow_each_other
            late_commits_are_found_though_later_ones_were_taken
            an_open_transaction_delays_no_other
            an_older_transaction_that_enqueues_later_comes_later
            an_idle_lane_stays_where_it_is
            lanes_with_something_to_take_are_named
            a_message_without_an_aggregate_has_its_id
            a_repeated_id_is_an_error
            messages_are_taken_up_to_their_limits
            lanes_and_parked_messages_survive_a_reopen
            of_racing_producers_everything_is_taken_once_and_in_order
            a_settlement_moves_the_lane
            a_fenced_settlement_changes_nothing
            a_lost_reply_is_recognised_by_its_fence
            a_lost_reply_is_recognised_behind_an_operators_step
            of_50_settlements_one_is_made
            a_take_over_fences_the_owner_before
            a_zombie_misses_also_when_its_steps_are_cleaned_up
            a_renewed_lease_keeps_its_step
            lanes_that_are_given_back_are_free_at_once
            relays_share_the_lanes_fairly
            racing_relays_never_hold_the_same_lane
            a_failed_message_is_parked_with_its_step
            a_parked_message_stops_its_aggregate_only
            parked_messages_are_due_in_their_order
            a_page_has_due_ones_first_and_keeps_to_its_limit
            a_scheduled_message_has_no_order_until_it_is_due
            a_scheduled_message_waits_behind_what_blocks_its_aggregate
            an_expired_message_is_over_and_blocks_nothing
            a_dead_letter_blocks_its_aggregate_until_it_is_sent_again
            a_discarded_message_blocks_nothing
            a_skipped_dead_letter_blocks_nothing
            a_held_message_waits_for_an_operator
            an_operators_step_lets_the_relay_propose_again
            an_operators_word_is_not_overwritten
            repairs_that_cannot_be_made_are_refused
            messages_are_listed_as_each_sink_has_them
            lists_are_filtered_and_paged
            the_condition_counts_what_there_is
            two_sinks_are_independent
            a_new_sink_begins_where_it_is_told
            a_sink_from_now_on_gets_what_commits_later
            a_sink_keeps_its_place
            a_removed_sink_is_forgotten
            a_sweep_deletes_what_every_sink_has_passed
            without_a_sink_nothing_is_swept
            a_sweep_keeps_the_retention_and_its_limit
            a_sweep_keeps_what_is_parked
        }
    };
}

/// Makes one `#[test]` for each rule of [`Receive`](crate::message::Receive).
///
/// ```
/// use onceward_core::inbox_conformance;
///
/// inbox_conformance!(MyBench::new(), block_on); // an `InboxBench`, and what runs a future to its end
/// ```
#[macro_export]
macro_rules! inbox_conformance {
    ($bench:expr, $block_on:path) => {
        $crate::conformance_tests! { $bench, $block_on:
            a_message_is_received_once_by_each_consumer
            a_message_whose_effect_was_rolled_back_is_new
            a_message_is_new_again_after_its_retention
            of_racing_deliveries_one_is_the_first
        }
    };
}

const MINUTE: Duration = Duration::from_secs(60);

/// Messages of a page, where the case does not say otherwise.
const PAGE: u32 = 100;

/// Aggregates that share a lane, so that a case sees all its messages in one.
struct Mates<const N: usize> {
    lane: Lane,
    names: [String; N],
}

fn mates<const N: usize>() -> Mates<N> {
    let lane = Lane::of(b"order-0");
    let names = (0_u32..).map(|number| alloc::format!("order-{number}"));
    let mut names = names.filter(|name| Lane::of(name.as_bytes()) == lane);
    Mates { lane, names: core::array::from_fn(|_| names.next().expect("there is no end")) }
}

/// A message whose body names it.
fn message(aggregate: &str, body: &str) -> NewMessage {
    let message = NewMessage::new("order.placed", body.as_bytes()).expect("a valid topic");
    message.aggregate(aggregate).expect("a valid aggregate").id(fresh_id())
}

fn fresh_id() -> MessageId {
    MessageId::from_bytes(fresh_bytes())
}

fn sink_name(name: &str) -> SinkName {
    SinkName::new(name).expect("a valid name")
}

/// Commits messages in one transaction.
async fn put<B: QueueBench>(bench: &B, queue: &B::Queue, messages: &[NewMessage]) {
    let mut transaction = bench.begin(queue).await;
    for message in messages {
        enqueue(bench, queue, &mut transaction, message).await;
    }
    bench.commit(transaction).await;
}

/// Commits one message.
async fn put_one<B: QueueBench>(
    bench: &B,
    queue: &B::Queue,
    aggregate: &str,
    body: &str,
) -> MessageId {
    let message = message(aggregate, body);
    put(bench, queue, core::slice::from_ref(&message)).await;
    message.id.expect("it was given one")
}

async fn enqueue<B: QueueBench>(
    bench: &B,
    queue: &B::Queue,
    transaction: &mut B::Transaction,
    message: &NewMessage,
) {
    let id = bench.enqueue(queue, transaction, message).await.expect("the queue takes it");
    assert!(message.id.is_none_or(|wanted| wanted == id), "the producer chose its id");
}

fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(body).collect()
}

fn body(message: &Message) -> String {
    String::from_utf8_lossy(&message.body).into_owned()
}

/// The sink does not take these now, and is asked again in a minute.
fn failing<'a>(those: &'a [&'a str]) -> impl FnMut(&Message) -> Next + 'a {
    answering(those, || Next::Park { wait: MINUTE, why: "503".into() })
}

/// The sink will never take these.
fn refusing<'a>(those: &'a [&'a str]) -> impl FnMut(&Message) -> Next + 'a {
    answering(those, || Next::Die { why: "400".into() })
}

/// The sink answers so to these, and takes the others.
fn answering<'a>(
    those: &'a [&'a str],
    next: impl Fn() -> Next + 'a,
) -> impl FnMut(&Message) -> Next + 'a {
    move |message| match those.contains(&body(message).as_str()) {
        true => next(),
        false => Next::Delivered,
    }
}

/// What an operator does to a message of the sink `billing`.
async fn repair<Q: InspectQueue>(queue: &Q, id: MessageId, kind: RepairKind) -> Changed {
    let sink = sink_name("billing");
    let (actor, reason) = (Some("ada".into()), "it is mended".into());
    let repair = RepairMessage { id, sink, kind, actor, reason };
    queue.repair(&repair).await.expect("the queue answers")
}

/// A message as the sink `billing` has it.
async fn shown<Q: InspectQueue>(queue: &Q, id: MessageId) -> ShownMessage {
    let shown = queue.show(id).await.expect("the queue answers");
    let mut of_billing = shown.into_iter().filter(|shown| shown.sink.as_str() == "billing");
    of_billing.next().expect("the message is there")
}

/// Everything that is so at a sink.
fn of_state(state: MessageState) -> MessageFilter {
    MessageFilter { state: Some(state), ..MessageFilter::default() }
}

async fn state<Q: InspectQueue>(queue: &Q, id: MessageId) -> MessageState {
    shown(queue, id).await.state
}

/// Runs all tasks beside each other and collects what they return.
async fn gather<B: QueueBench, T: Send + 'static, F>(
    bench: &B,
    tasks: impl IntoIterator<Item = F>,
) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    all_of(tasks.into_iter().map(|task| bench.spawn(task))).await
}

fn no_bodies() -> Vec<String> {
    vec![]
}
