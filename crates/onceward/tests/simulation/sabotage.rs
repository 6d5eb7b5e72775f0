//! Known mistakes, made around the shipped code. The checks must find each of them.

use crate::checks::{I1, I2, I3, I5, I8, I9, I10, I11, I14};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The store ends a claim whatever its fence.
    IgnoresFence,
    /// The sweep deletes claims whose lease is over.
    SweepsInProgress,
    /// The effect is external, but its route says that it is transactional.
    ExternalCalledTransactional,
    /// The answer leaves before the settlement is stored.
    AnswersBeforeDurable,
    /// The store shows every request its own fingerprint.
    IgnoresFingerprint,
    /// The scope is left out: tenants share their keys.
    IgnoresScope,
    /// The effect happens before the transaction that ends the record.
    EffectOutsideCommit,
    /// The store says that an end is stored and has done nothing.
    LosesSettlements,
    /// Downstream forgets the key long before the route says so.
    DownstreamForgets,
    /// A verdict "unknown" is told to the client as a failure.
    UnknownCalledFailure,
    /// A commit without a reply is told as a failure and not resolved by reading.
    DoubtCalledFailure,
}

impl Sabotage {
    /// All of them, with the check that must find it (others may, too).
    pub(crate) const ALL: [(Self, &'static str); 11] = [
        (Self::IgnoresFence, I5),
        (Self::SweepsInProgress, I11),
        (Self::ExternalCalledTransactional, I1),
        (Self::AnswersBeforeDurable, I14),
        (Self::IgnoresFingerprint, I9),
        (Self::IgnoresScope, I10),
        (Self::EffectOutsideCommit, I1),
        (Self::LosesSettlements, I3),
        (Self::DownstreamForgets, I2),
        (Self::UnknownCalledFailure, I8),
        (Self::DoubtCalledFailure, I8),
    ];
}
