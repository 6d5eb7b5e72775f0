//! The suite for outboxes is right about one that is right, and finds the mistakes of one that is not.

use std::{sync::mpsc, thread, time::Duration};

use onceward_core::{conformance, inbox_conformance, queue_conformance};

use crate::{
    memory::{Bench, block_on},
    outbox::Mistake,
};

queue_conformance!(Bench(None), block_on);
inbox_conformance!(Bench(None), block_on);

/// Which case finds each mistake.
macro_rules! found {
    ($($mistake:ident: $case:ident)*) => {
        #[test]
        fn every_mistake_is_found_by_its_case() {
            let missed: Vec<_> = [$(
                (stringify!($mistake), stringify!($case), fails(|| {
                    block_on(conformance::$case(&Bench(Some(Mistake::$mistake))));
                })),
            )*].into_iter().filter(|(.., fails)| !fails).collect();
            assert!(missed.is_empty(), "not found: {missed:?}");
        }
    };
}

found! {
    DirtyRead: rolled_back_messages_are_never_taken
    RollbackKeepsMessages: rolled_back_messages_are_never_taken
    SequenceCursor: late_commits_are_found_though_later_ones_were_taken
    OrderByTransaction: an_older_transaction_that_enqueues_later_comes_later
    WaitsForOpenTransactions: an_open_transaction_delays_no_other
    IdleLaneMoves: an_idle_lane_stays_where_it_is
    PagesWithoutLimit: pages_follow_each_other
    FreshOnesFirst: a_page_has_due_ones_first_and_keeps_to_its_limit
    DueOnesNotNamed: lanes_with_something_to_take_are_named
    NoLimits: messages_are_taken_up_to_their_limits
    RepeatedIdIgnored: a_repeated_id_is_an_error
    HeadersSorted: committed_messages_are_taken_once_and_in_order
    NoStepCheck: a_fenced_settlement_changes_nothing
    NoStepCheck: of_50_settlements_one_is_made
    NoStepCheck: a_take_over_fences_the_owner_before
    CleanedStepNotNoticed: a_zombie_misses_also_when_its_steps_are_cleaned_up
    LostReplyNotRecognised: a_lost_reply_is_recognised_by_its_fence
    LostReplyRecognisedIfNewest: a_lost_reply_is_recognised_behind_an_operators_step
    FencedOneKeepsTheLane: a_fenced_settlement_changes_nothing
    TakeOverWithoutStep: a_take_over_fences_the_owner_before
    TakeOverWithoutStep: lanes_that_are_given_back_are_free_at_once
    RenewalAppendsStep: a_renewed_lease_keeps_its_step
    NoLease: a_renewed_lease_keeps_its_step
    GreedyRelays: relays_share_the_lanes_fairly
    GreedyRelays: racing_relays_never_hold_the_same_lane
    LanesNotGivenBack: lanes_that_are_given_back_are_free_at_once
    NothingBlocks: a_parked_message_stops_its_aggregate_only
    DeadLetterPassed: a_dead_letter_blocks_its_aggregate_until_it_is_sent_again
    SkippedOneBlocks: a_skipped_dead_letter_blocks_nothing
    ScheduledOneBlocks: a_scheduled_message_has_no_order_until_it_is_due
    ScheduledOnePasses: a_scheduled_message_waits_behind_what_blocks_its_aggregate
    ExpiredOneBlocks: an_expired_message_is_over_and_blocks_nothing
    DueOnesBlock: parked_messages_are_due_in_their_order
    DueTooEarly: a_failed_message_is_parked_with_its_step
    DueOutOfOrder: parked_messages_are_due_in_their_order
    HeldDropped: a_held_message_waits_for_an_operator
    OperatorOverwritten: an_operators_word_is_not_overwritten
    RepairWithoutStep: an_operators_step_lets_the_relay_propose_again
    RedriveKeepsAttempts: a_dead_letter_blocks_its_aggregate_until_it_is_sent_again
    DiscardedRedriven: repairs_that_cannot_be_made_are_refused
    EverythingDiscarded: repairs_that_cannot_be_made_are_refused
    StateNotFiltered: lists_are_filtered_and_paged
    ListRepeatsALine: lists_are_filtered_and_paged
    OneSinkListed: messages_are_listed_as_each_sink_has_them
    LagWithoutParked: the_condition_counts_what_there_is
    SinkStartsAnew: a_sink_keeps_its_place
    NowSkipsOpenTransactions: a_sink_from_now_on_gets_what_commits_later
    OldestIsNow: a_new_sink_begins_where_it_is_told
    RemovedSinkStays: a_removed_sink_is_forgotten
    SweepByOneSink: a_sweep_deletes_what_every_sink_has_passed
    SweepWithoutSinks: without_a_sink_nothing_is_swept
    SweepOfYoung: a_sweep_keeps_the_retention_and_its_limit
    SweepWithoutLimit: a_sweep_keeps_the_retention_and_its_limit
    ParkedSwept: a_sweep_keeps_what_is_parked
    InboxOutsideTransaction: a_message_whose_effect_was_rolled_back_is_new
    InboxOfAllConsumers: a_message_is_received_once_by_each_consumer
    InboxForEver: a_message_is_new_again_after_its_retention
}

/// Whether a case finds something: it panics, or a mistake keeps it from its end.
fn fails(case: impl FnOnce() + Send + 'static) -> bool {
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        case();
        let _ = sender.send(());
    });
    ended.recv_timeout(Duration::from_secs(60)).is_err()
}
