//! The outbox in memory means what every outbox means, but for lists in several pages.

use std::{future::Future, time::Duration};

use onceward::{
    StoreError,
    conformance::{block_on, spawn},
    message::{MessageId, NewMessage},
    protocol::conformance::QueueBench,
};

use super::{MemoryQueue, Transaction};

#[derive(Clone)]
struct Memory;

impl QueueBench for Memory {
    type Queue = MemoryQueue;
    type Transaction = Transaction;

    async fn open(&self) -> MemoryQueue {
        MemoryQueue::new()
    }

    async fn reopen(&self, _: MemoryQueue) -> Option<MemoryQueue> {
        None
    }

    async fn another(&self, queue: &MemoryQueue) -> MemoryQueue {
        queue.clone()
    }

    async fn age(&self, queue: &MemoryQueue, by: Duration) {
        queue.age(by);
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    async fn begin(&self, queue: &MemoryQueue) -> Transaction {
        queue.begin()
    }

    async fn enqueue(
        &self,
        _: &MemoryQueue,
        transaction: &mut Transaction,
        message: &NewMessage,
    ) -> Result<MessageId, StoreError> {
        transaction.enqueue(message)
    }

    async fn commit(&self, transaction: Transaction) {
        transaction.commit();
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

/// Those of the suite that an outbox in memory can have.
macro_rules! cases {
    ($($case:ident)*) => { $(
        #[test]
        fn $case() {
            block_on(onceward::protocol::conformance::$case(&Memory));
        }
    )* };
}

cases! {
    committed_messages_are_taken_once_and_in_order
    rolled_back_messages_are_never_taken
    pages_follow_each_other
    an_idle_lane_stays_where_it_is
    lanes_with_something_to_take_are_named
    a_message_without_an_aggregate_has_its_id
    a_repeated_id_is_an_error
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
    the_condition_counts_what_there_is
    two_sinks_are_independent
    a_new_sink_begins_where_it_is_told
    a_sink_from_now_on_gets_what_commits_later
    a_sink_keeps_its_place
    a_removed_sink_is_forgotten
    a_sweep_deletes_what_every_sink_has_passed
    a_sweep_keeps_the_retention_and_its_limit
    a_sweep_keeps_what_is_parked
}
