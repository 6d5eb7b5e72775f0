//! What a call does next, as the decision says.

use core::time::Duration;

use super::Stop;

/// What to do now.
///
/// ```
/// use onceward_core::retry::Action;
///
/// fn log(action: Action) -> String {
///     match action {
///         Action::Succeed => "done".into(),
///         Action::Stop(stop) => format!("given up: {}", stop.reason()),
///         Action::Attempt { wait } => format!("next attempt in {wait:?}"),
///         Action::Poll { wait } => format!("asks the status URL in {wait:?}"),
///         Action::Refresh => "gets new credentials".into(),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give the answer to the caller.
    Succeed,
    /// Give up, with the answer if there was one.
    Stop(Stop),
    /// Wait so long, then [`begin`](super::Context::begin) another attempt.
    Attempt {
        /// How long to wait first.
        wait: Duration,
    },
    /// Wait so long, then ask the status URL; what it says is the next thing that the caller tells [`decide`](super::decide).
    Poll {
        /// How long to wait first.
        wait: Duration,
    },
    /// Get new credentials, then [`begin`](super::Context::begin) another attempt.
    Refresh,
}

/// An attempt may be made.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Call, Context, Method, Rules, Target};
///
/// let (rules, now) = (Rules::standard(), Duration::ZERO);
/// let (mut target, mut call) = (Target::new(&rules), Call::new(&rules, Method::of("GET"), now));
/// let mut context = Context { rules: &rules, call: &mut call, target: &mut target };
/// let permit = context.begin(now, 1)?;
/// assert_eq!(permit.timeout, Duration::from_secs(4));
/// assert_eq!(permit.hedge_after, None, "the rules have no hedge");
/// # Ok::<(), onceward_core::retry::Stop>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// It ends after this time at the latest; the caller tells the target this as its deadline.
    pub timeout: Duration,
    /// After this time without an answer, [`hedge`](super::Context::hedge) may be asked.
    pub hedge_after: Option<Duration>,
}
