//! One attempt, with a second request beside it when the first is late.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use onceward_core::retry::{Class, Method, Permit};
use tokio::time::timeout;

use super::{Attempts, Ended, Sender};

/// What became of two requests side by side.
///
/// ```
/// use onceward::client::driver::HedgeEnd;
///
/// fn word<R>(end: &HedgeEnd<R>) -> &'static str {
///     match end {
///         HedgeEnd::Lost => "lost",
///         HedgeEnd::Won(_) => "won",
///         HedgeEnd::Failed(_) => "failed",
///     }
/// }
/// ```
#[derive(Debug)]
pub enum HedgeEnd<R> {
    /// The first one gave the answer that is taken.
    Lost,
    /// The second one did; the first one, if it had failed before.
    Won(Option<Ended<R>>),
    /// The second one failed, and the first one goes on as if alone.
    Failed(Ended<R>),
}

/// Makes an attempt. The first acceptable answer is taken, and a loser is dropped; a hedge that fails
/// changes nothing of what the first request would have given.
pub(super) async fn attempt<S: Sender>(
    attempts: &mut Attempts<'_, S::Environment>,
    sender: &mut S,
    permit: Permit,
) -> Ended<S::Reply> {
    let launch = attempts.launch(permit.timeout, false);
    let mut first = pin!(sender.launch(launch, attempts));
    let Some(after) = permit.hedge_after else { return first.await };
    if let Ok(ended) = timeout(after, first.as_mut()).await {
        return ended;
    }
    if !sender.may_hedge() {
        return first.await;
    }
    if !attempts.hedge() {
        sender.without_hedge();
        return first.await;
    }
    Box::pin(beside(attempts, sender, first, permit.timeout.saturating_sub(after))).await
}

/// Goes on with a second request beside the first.
async fn beside<S: Sender>(
    attempts: &mut Attempts<'_, S::Environment>,
    sender: &mut S,
    mut first: Pin<&mut (impl Future<Output = Ended<S::Reply>> + Send)>,
    time: Duration,
) -> Ended<S::Reply> {
    let launch = attempts.launch(time, true);
    let mut second = pin!(sender.launch(launch, attempts));
    let is_safe = attempts.call().method() == Method::Safe;
    let (ended, is_first) = poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready((ended, true)),
        Poll::Pending => second.as_mut().poll(context).map(|hedge| (hedge, false)),
    })
    .await;
    match (is_first, is_acceptable(&ended, is_safe)) {
        (true, true) => {
            sender.hedged(HedgeEnd::Lost, attempts);
            ended
        }
        // Where the hedge has done it, that alone may be why the first was refused.
        (true, false) => {
            let hedge = second.await;
            if is_acceptable(&hedge, is_safe) {
                attempts.hedge_won();
                attempts.hedge_failed(ended.observation);
                sender.hedged(HedgeEnd::Won(Some(ended)), attempts);
                return hedge;
            }
            if !is_refusal(hedge.observation.class) && !is_retryable(&ended) && !is_safe {
                attempts.doubt();
            }
            attempts.hedge_failed(hedge.observation);
            sender.hedged(HedgeEnd::Failed(hedge), attempts);
            ended
        }
        (false, true) => {
            attempts.hedge_won();
            sender.hedged(HedgeEnd::Won(None), attempts);
            ended
        }
        (false, false) => {
            attempts.hedge_failed(ended.observation);
            sender.hedged(HedgeEnd::Failed(ended), attempts);
            first.await
        }
    }
}

fn is_retryable<R>(ended: &Ended<R>) -> bool {
    let class = ended.observation.class;
    class.is_failure() || class == Class::InProgress
}

/// The server has looked at it, and did not carry it out.
fn is_refusal(class: Class) -> bool {
    matches!(class, Class::Final | Class::Conflict | Class::Unauthorised)
}

/// Whether the answer to one of two requests may be taken for the answer of the call.
///
/// The other one may have been carried out already, so an answer that this alone could explain
/// (a 404 to the second DELETE, a 412, a busy key) is not taken while the other one runs.
fn is_acceptable<R>(ended: &Ended<R>, is_safe: bool) -> bool {
    match ended.observation.class {
        Class::Success | Class::Accepted | Class::Bound => true,
        Class::Final | Class::Conflict | Class::Unauthorised => is_safe,
        _ => false,
    }
}
