//! Known mistakes, made around the shipped code, which has no hooks for them.

/// One mistake. Each must be found by the invariant that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The store creates at most one row, but changes it whatever the fence.
    NoFence,
    /// The fence is a counter kept in the row: it restarts when the row is deleted.
    PerRowFenceCounter,
    /// The sweep deletes claims whose lease is over.
    SweepOfInProgress,
    /// The sweep deletes unknown outcomes that are to be kept.
    SweepOfUnknown,
    /// Rows are deleted while changes that were sent before may still land.
    MessageOutlivesDeletion,
    /// An abandoned external effect is taken for a transactional one.
    TakeOverOfExternal,
    /// An abandoned claim is judged by the effect of whoever reads it.
    RunnerConfigInsteadOfStored,
    /// A claim over a record keeps the execution of the claim before it.
    TakeOverKeepsExecution,
    /// A settlement overrides every unknown outcome, not only its own.
    LateTruthWithoutExecutionCheck,
    /// A settlement overrides also an outcome that its own execution has stored.
    LateWordOverOwnOutcome,
    /// A renewal does not compare the fence.
    RenewAfterTakeOver,
    /// Whether another execution is running is checked before the fingerprint.
    MismatchAfterInFlight,
    /// A released key stays bound to the fingerprint of whoever released it.
    ReleaseKeepsFingerprint,
    /// The re-run of a repeatable effect gives the key free, and with it the first claim's age.
    ReleaseOfRerunForgetsAge,
    /// The promise of a repeatable effect is counted from the last claim and not from the first.
    TakeOverRestartsAge,
    /// A repeatable effect is run again however long ago it was first claimed.
    RerunOfOldRepeatable,
    /// An owner sends its effect later than the downstream's memory outlasts the promise.
    SendAfterMaxRun,
    /// A downstream that was promised to honour the key forgets what it refused.
    RefusalNotRemembered,
    /// The effect happens before the transaction that ends the record.
    EffectOutsideTransaction,
    /// A commit without an answer is reported as a failure and not resolved by reading.
    DoubtfulCommitCalledFailure,
    /// An unknown outcome is reported as a failure.
    UnknownCalledFailure,
    /// The answer is sent before the settlement is known to be stored.
    AnswerBeforeDurable,
}
