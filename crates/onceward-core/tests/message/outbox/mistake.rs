//! Known mistakes of an outbox. Each must be found: by a case of the conformance suite, by a property of the
//! model, or by both.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mistake {
    /// What a transaction wrote is seen before its commit.
    DirtyRead,
    /// What a transaction wrote stays after its rollback.
    RollbackKeepsMessages,
    /// The cursor is the number of the last message: one that commits late is skipped.
    SequenceCursor,
    /// Messages are taken in the order of their transactions' numbers.
    OrderByTransaction,
    /// Nothing is taken that began after the oldest open transaction.
    WaitsForOpenTransactions,
    /// A cursor moves although nothing was taken.
    IdleLaneMoves,
    /// A page is as long as there are messages.
    PagesWithoutLimit,
    /// A page has new messages first.
    FreshOnesFirst,
    /// Lanes with due messages are not named as waiting.
    DueOnesNotNamed,
    /// A message of any size is taken.
    NoLimits,
    /// The second message of an id is dropped without a word.
    RepeatedIdIgnored,
    /// Header lines are kept as a map.
    HeadersSorted,
    /// A settlement does not compare the step that it expects.
    NoStepCheck,
    /// A settlement asks whether the next step is there, and not whether its own is the newest.
    CleanedStepNotNoticed,
    /// A settlement whose reply was lost is called fenced off.
    LostReplyNotRecognised,
    /// The same, if another step came after it.
    LostReplyRecognisedIfNewest,
    /// A relay that was fenced off goes on with the lane of another.
    FencedOneKeepsTheLane,
    /// A take-over changes the owner only.
    TakeOverWithoutStep,
    /// Each renewal is a step.
    RenewalAppendsStep,
    /// A lane is taken from a relay whose lease goes on.
    NoLease,
    /// A relay takes all that is free.
    GreedyRelays,
    /// The lanes of a relay that ended stay its own until its lease is over.
    LanesNotGivenBack,
    /// Parked messages stop nothing.
    NothingBlocks,
    /// Dead letters stop nothing.
    DeadLetterPassed,
    /// Dead letters stop their aggregate where the operator chose otherwise.
    SkippedOneBlocks,
    /// A scheduled message stops its aggregate.
    ScheduledOneBlocks,
    /// A scheduled message whose time has come passes what blocks its aggregate.
    ScheduledOnePasses,
    /// An expired message stops its aggregate.
    ExpiredOneBlocks,
    /// New messages are blocked by those that are due in the same page: a busy aggregate is parked for ever.
    DueOnesBlock,
    /// A parked message is tried again whenever there is room.
    DueTooEarly,
    /// Due messages come in any order.
    DueOutOfOrder,
    /// A held message leaves no entry.
    HeldDropped,
    /// What a relay read before an operator's step overwrites it.
    OperatorOverwritten,
    /// An operator's change is no step.
    RepairWithoutStep,
    /// A message that is sent again dies after its last attempt, and not after all of them.
    RedriveKeepsAttempts,
    /// A discarded message can be sent again.
    DiscardedRedriven,
    /// What is over can be discarded.
    EverythingDiscarded,
    /// A filter by state is ignored.
    StateNotFiltered,
    /// A page of a list begins with the last line of the one before.
    ListRepeatsALine,
    /// A message is listed for one sink only.
    OneSinkListed,
    /// Parked messages are not counted as missing.
    LagWithoutParked,
    /// A sink that is opened again begins anew.
    SinkStartsAnew,
    /// A sink from now on misses the transactions that are open when it is made.
    NowSkipsOpenTransactions,
    /// A sink from the oldest message on begins now.
    OldestIsNow,
    /// A sink that was removed keeps its parked messages for the next one of its name.
    RemovedSinkStays,
    /// The sweep deletes what one sink has passed.
    SweepByOneSink,
    /// Without sinks the sweep deletes everything.
    SweepWithoutSinks,
    /// The sweep deletes what is younger than the retention.
    SweepOfYoung,
    /// The sweep deletes all at once.
    SweepWithoutLimit,
    /// The sweep deletes what a parked entry names.
    ParkedSwept,
    /// Nothing notices that the database is a restored copy.
    NoAlarm,
    /// Only numbers of transactions are compared, not in which cluster they were given.
    AlarmByNumbersOnly,
    /// The consumer applies whatever it gets.
    NoInbox,
    /// The inbox is no part of the consumer's transaction.
    InboxOutsideTransaction,
    /// The inbox is one for all consumers.
    InboxOfAllConsumers,
    /// The inbox never forgets.
    InboxForEver,
    /// The relay moves the cursor, and then sends.
    CursorBeforeAcknowledgement,
    /// The consumer acknowledges before its commit.
    AcknowledgedBeforeCommit,
}
