//! The one driver for everything that is sent and may be sent again.
//!
//! [`drive`] asks the core for leave, lets a [`Sender`] send, tells the core what the attempt has shown, and
//! does what the core [decides](onceward_core::retry::decide). The retrying client is one sender, the gateway's
//! way to its upstream is another: they differ in how a request is sent, what an answer means, and who has to
//! hear of it, and in nothing else.
//!
//! ```
//! use std::time::Instant;
//! use onceward::{client::driver::*, retry::*};
//!
//! struct Process(Instant);
//!
//! impl Environment for Process {
//!     fn now(&self) -> Moment {
//!         self.0.elapsed()
//!     }
//!
//!     fn random(&self) -> u64 {
//!         fastrand::u64(..)
//!     }
//! }
//!
//! /// Something that its receiver takes the second time.
//! struct Delivery;
//!
//! impl Sender for Delivery {
//!     type Environment = Process;
//!     type Reply = u32;
//!
//!     fn launch(
//!         &mut self,
//!         launch: Launch,
//!         attempts: &Attempts<'_, Process>,
//!     ) -> impl Future<Output = Ended<u32>> + Send + use<> {
//!         let at = attempts.now();
//!         async move {
//!             let class = if launch.number == 1 { Class::ServerFault } else { Class::Success };
//!             Ended { reply: launch.number, observation: class.into(), at, is_last: false }
//!         }
//!     }
//!
//!     fn keep(&mut self, ended: Ended<u32>) -> Option<Ended<u32>> {
//!         Some(ended)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (process, rules) = (Process(Instant::now()), Rules::standard());
//! let target = TargetHandle::new(&rules);
//! let call = Call::new(&rules, Method::of("PUT"), process.now());
//! let mut attempts = Attempts::new(&process, &rules, &target, call);
//! let End { stop, last } = drive(&mut attempts, &mut Delivery).await;
//! assert_eq!((stop, last.map(|last| last.reply)), (None, Some(2)));
//! # }
//! ```

mod attempts;
mod body;
mod hedge;
mod sync;
mod target;
#[cfg(test)]
mod target_tests;

use std::{future::ready, time::Duration};

use onceward_core::retry::{Action, Moment, Observation, Stop, StopReason};
use tokio::time::sleep;

pub use attempts::{Attempts, Environment};
pub use body::ReplayableBody;
pub use hedge::HedgeEnd;
pub(super) use target::Targets;
pub use target::{InFlightPermit, TargetHandle};

use crate::telemetry::SentAs;

/// How requests are sent and understood, and who hears what became of them.
pub trait Sender: Send {
    /// Where time and randomness come from.
    type Environment: Environment;
    /// What an attempt gives to its caller: an answer, or why there is none.
    type Reply: Send;

    /// Sends the request once more. The future owns what it needs: two of them may run side by side.
    fn launch(
        &mut self,
        launch: Launch,
        attempts: &Attempts<'_, Self::Environment>,
    ) -> impl Future<Output = Ended<Self::Reply>> + Send + use<Self>;

    /// Whether the sender has what a second request beside the first one takes up.
    fn may_hedge(&mut self) -> bool {
        true
    }

    /// The core allows no second request: the sender gives back what it had for it.
    fn without_hedge(&mut self) {}

    /// A second request was sent, and this became of the two.
    fn hedged(&mut self, _end: HedgeEnd<Self::Reply>, _attempts: &Attempts<'_, Self::Environment>) {
    }

    /// Whether the attempt failed by the caller's own doing, so that it says nothing about the target.
    fn is_by_caller(&self, _ended: &Ended<Self::Reply>) -> bool {
        false
    }

    /// The core has decided what follows this attempt.
    fn decided(
        &mut self,
        _ended: &mut Ended<Self::Reply>,
        _action: Action,
        _attempts: &Attempts<'_, Self::Environment>,
    ) {
    }

    /// Another attempt follows after this wait.
    fn waiting(&mut self, _wait: Duration, _attempts: &Attempts<'_, Self::Environment>) {}

    /// What the caller gets if no other attempt is allowed after the wait. A kept answer also keeps its connection.
    fn keep(&mut self, ended: Ended<Self::Reply>) -> Option<Ended<Self::Reply>>;

    /// Whether the sender may go on after its wait.
    fn may_go_on(&mut self) -> bool {
        true
    }

    /// Another attempt has begun after this one.
    fn again(&mut self, _before: Ended<Self::Reply>) {}

    /// Asks the status of an accepted operation until the decision is something else than to ask again.
    /// Without `until_done` in its rules a sender never comes here.
    fn follow(
        &mut self,
        _ended: &mut Ended<Self::Reply>,
        _attempts: &mut Attempts<'_, Self::Environment>,
        _wait: Duration,
    ) -> impl Future<Output = Action> + Send {
        ready(Action::Succeed)
    }

    /// Gets new credentials. Only a call that can [refresh](onceward_core::retry::Call::refreshable) comes here.
    fn refresh(
        &mut self,
        _attempts: &mut Attempts<'_, Self::Environment>,
    ) -> impl Future<Output = Result<(), Stop>> + Send {
        ready(Err(Stop::Failed(StopReason::Unauthorised)))
    }
}

/// One request that is to be sent.
#[derive(Debug)]
pub struct Launch {
    /// Counted from 1, hedges included.
    pub number: u32,
    /// The first one, one after a wait, or one beside another.
    pub sent_as: SentAs,
    /// Its answer is waited for no longer than this.
    pub timeout: Duration,
    /// When it is sent.
    pub at: Moment,
    /// Counts it as in flight until this is dropped.
    pub permit: InFlightPermit,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Ended<R> {
    /// What the caller gets of it.
    pub reply: R,
    /// What it has shown.
    pub observation: Observation,
    /// When it ended.
    pub at: Moment,
    /// Whether it is what counts, though it is a failure that another attempt might mend.
    pub is_last: bool,
}

/// How all attempts together ended.
#[derive(Debug)]
pub struct End<R> {
    /// Why there are no more of them; `None`: one succeeded, or failed by its caller's own doing.
    pub stop: Option<Stop>,
    /// The last attempt that the caller gets, if there is one.
    pub last: Option<Ended<R>>,
}

/// Sends a request until the core says that it is enough.
pub async fn drive<S: Sender>(
    attempts: &mut Attempts<'_, S::Environment>,
    sender: &mut S,
) -> End<S::Reply> {
    let mut before = None;
    loop {
        let permit = match attempts.begin() {
            Ok(permit) => permit,
            Err(stop) => return End { stop: Some(stop), last: before },
        };
        if let Some(before) = before.take() {
            sender.again(before);
        }
        let mut ended = hedge::attempt(attempts, sender, permit).await;
        if sender.is_by_caller(&ended) {
            attempts.abandon();
            return End { stop: None, last: Some(ended) };
        }
        let mut action = attempts.decide(&ended);
        sender.decided(&mut ended, action, attempts);
        if let Action::Poll { wait } = action {
            // In a box, as everything that is rare: a call is as large as its largest step.
            action = Box::pin(sender.follow(&mut ended, attempts, wait)).await;
        }
        match action {
            Action::Succeed => return End { stop: None, last: Some(ended) },
            Action::Stop(stop) => return End { stop: Some(stop), last: Some(ended) },
            Action::Attempt { wait } => {
                before = sender.keep(ended);
                sender.waiting(wait, attempts);
                if !wait.is_zero() {
                    sleep(wait).await;
                }
                attempts.tick();
                if !sender.may_go_on() {
                    attempts.abandon();
                    return End { stop: None, last: before };
                }
            }
            Action::Refresh => {
                if let Err(stop) = Box::pin(sender.refresh(attempts)).await {
                    return End { stop: Some(stop), last: Some(ended) };
                }
            }
            Action::Poll { .. } => unreachable!("an answer is followed until it has ended"),
        }
    }
}
