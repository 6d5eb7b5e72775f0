//! When to try again: one pure decision, used by clients, the gateway and the simulator.
//!
//! [`decide`] gets what an attempt has shown and says what to do: succeed, stop, wait and try
//! again. Time and chance are arguments, so the code that the simulator measures is the code that
//! ships. Its parts, each with its reason in its own file:
//!
//! | part | question |
//! |---|---|
//! | [`Class`] | what has this attempt shown? |
//! | [`Method`] | is a second run harmless at all? |
//! | [`Backoff`] | how long to wait? |
//! | [`Budget`], [`Share`] | can we afford it? |
//! | [`Breaker`], [`Throttle`] | should the target be left alone? |
//! | [`Hedge`] | is it late enough for a second request? |
//! | [`Priority`] | who gives way first? |
//! | [`Limit`] | how many at once? |
//!
//! They work in this order: the key makes a repeat harmless, the backoff spreads repeats in time, the
//! budget bounds how many there are, the breaker ends them where they cannot help, and the deadline
//! bounds everything.

mod action;
mod backoff;
mod breaker;
mod budget;
mod call;
mod class;
mod decide;
mod hedge;
mod latency;
mod limit;
mod observation;
mod own;
mod priority;
mod random;
mod rules;
mod safety;
mod saturation;
mod share;
mod target;
mod throttle;
mod window;

pub use action::{Action, Permit};
pub use backoff::Backoff;
pub use breaker::{Breaker, Circuit};
pub use budget::{Budget, BudgetBalance};
pub use call::{Call, Stop, StopReason};
pub use class::{Answer, Class};
pub use decide::{Context, decide};
pub use hedge::Hedge;
pub use limit::Limit;
pub use observation::Observation;
pub use priority::Priority;
pub use rules::{Rules, RulesBuilder, RulesError};
pub use safety::Method;
pub use share::{Share, ShareCounter};
pub use target::Target;
pub use throttle::Throttle;

/// Monotonic time, as what has passed since a start that the caller chose.
///
/// ```
/// use std::time::Instant;
/// use onceward_core::retry::{Call, Method, Moment, Rules};
///
/// let start = Instant::now();
/// let now: Moment = start.elapsed();
/// let call = Call::new(&Rules::standard(), Method::of("GET"), now);
/// # let _ = call;
/// ```
pub type Moment = core::time::Duration;
