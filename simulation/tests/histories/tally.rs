//! What happened, counted: a simulation in which nothing goes wrong proves nothing.

use std::fmt;

macro_rules! events {
    ($($name:ident $text:literal,)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event { $($name,)* }

        impl Event {
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$name, $text),)*];
        }
    };
}

events! {
    Attempt "attempts",
    Ok "answers: ok",
    Replay "answers: replayed",
    Refused "answers: refused for good",
    Retryable "answers: may be retried",
    Busy "answers: busy",
    Mismatch "answers: mismatch",
    Unknown "answers: unknown",
    LeaseLost "answers: lease lost",
    Unavailable "answers: unavailable",
    NoAnswer "answers: none",
    Effect "effects",
    Remembered "effects remembered downstream",
    Claim "first claims",
    TakeOver "take-overs",
    Reclaim "claims over a retryable failure",
    AfterRelease "claims over a released key",
    AfterExpiry "claims over an expired record",
    LateTruth "late truths over unknown",
    Release "releases",
    GiveBack "claims given back unrun",
    FencedOff "settlements fenced off",
    Unsettled "settlements not stored in time",
    InDoubt "commits in doubt",
    Lost "renewals lost",
    Crash "crashes",
    Drain "drains",
    Freeze "freezes",
    Jump "clock jumps",
    Outage "store outages",
    LostReply "lost replies",
    LateLanding "late landings",
    Night "nights",
    Swept "records swept",
    FinalOk "last words: ok",
    FinalRefused "last words: refused",
    FinalMismatch "last words: mismatch",
    FinalUnknown "last words: unknown",
}

/// How often each [`Event`] happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally([u64; Event::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

impl Tally {
    pub(crate) fn add(&mut self, event: Event, count: u64) {
        self.0[event as usize] += count;
    }

    pub(crate) fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (event, text) in Event::ALL {
            writeln!(formatter, "  {text:<34}{:>12}", self.of(*event))?;
        }
        Ok(())
    }
}
