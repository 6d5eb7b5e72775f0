//! Known mistakes, made around the shipped code. The checks must find each of them.

use crate::checks::{I1, I2, I3, I4, I5, I7, I8, I9, I10, I11, I14, I17, LIVE};

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
    /// Nobody gives back the claim of an admission that was left.
    NeverGivesBack,
}

impl Sabotage {
    /// All of them, with the checks that must find each (others may, too).
    pub(crate) const ALL: [(Self, &'static [&'static str]); 12] = [
        (Self::IgnoresFence, &[I1, I3, I5]),
        (Self::SweepsInProgress, &[I1, I11]),
        (Self::ExternalCalledTransactional, &[I1, I7]),
        (Self::AnswersBeforeDurable, &[I3, I14]),
        (Self::IgnoresFingerprint, &[I9]),
        (Self::IgnoresScope, &[I10]),
        (Self::EffectOutsideCommit, &[I1, I4]),
        (Self::LosesSettlements, &[I3, I14, LIVE]),
        (Self::DownstreamForgets, &[I1, I2]),
        (Self::UnknownCalledFailure, &[I8]),
        (Self::DoubtCalledFailure, &[I8]),
        (Self::NeverGivesBack, &[I17]),
    ];
}
