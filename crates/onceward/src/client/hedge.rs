//! One attempt, with a second request beside it when the first is late.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use onceward_core::retry::{Class, Method, Permit};
use tokio::time::timeout;

use super::{
    answer::{self, Ended},
    exchange::Exchange,
    run::Run,
};

/// Makes an attempt. The first acceptable answer is taken, and a loser is dropped; a hedge that fails
/// changes nothing of what the first request would have given.
pub(super) async fn attempt<X: Exchange>(
    run: &mut Run<'_>,
    exchange: &mut X,
    permit: Permit,
) -> Ended<X::Body> {
    let mut first = pin!(run.launch(exchange, permit.timeout, false));
    let Some(after) = permit.hedge_after else { return first.await };
    if let Ok(ended) = timeout(after, first.as_mut()).await {
        return ended;
    }
    if !run.may_hedge() {
        return first.await;
    }
    Box::pin(beside(run, exchange, first, permit.timeout.saturating_sub(after))).await
}

/// Goes on with a second request beside the first.
async fn beside<X: Exchange>(
    run: &mut Run<'_>,
    exchange: &mut X,
    mut first: Pin<&mut (impl Future<Output = Ended<X::Body>> + Send)>,
    time: Duration,
) -> Ended<X::Body> {
    let mut second = pin!(run.launch(exchange, time, true));
    match either(first.as_mut(), second.as_mut()).await {
        // Where the hedge has done it, that alone may be why the first was refused.
        Either::First(ended) if !may_take(run, &ended) => {
            let hedge = second.await;
            if may_take(run, &hedge) {
                run.hedge_won();
                run.hedge_failed(ended.attempt, ended.observation);
                return hedge;
            }
            if !is_refusal(hedge.observation.class)
                && !is_retryable(&ended)
                && run.method != Method::Safe
            {
                run.doubt();
            }
            run.hedge_failed(hedge.attempt, hedge.observation);
            ended
        }
        Either::First(ended) => ended,
        Either::Second(hedge) if may_take(run, &hedge) => {
            run.hedge_won();
            hedge
        }
        Either::Second(hedge) => {
            run.hedge_failed(hedge.attempt, hedge.observation);
            first.await
        }
    }
}

fn is_retryable<B>(ended: &Ended<B>) -> bool {
    ended.observation.class.is_failure() || ended.observation.class == Class::InProgress
}

/// The server has looked at it, and did not carry it out.
fn is_refusal(class: Class) -> bool {
    matches!(class, Class::Final | Class::Conflict | Class::Unauthorised)
}

fn may_take<B>(run: &Run<'_>, ended: &Ended<B>) -> bool {
    answer::is_acceptable(ended.observation.class, run.method == Method::Safe)
}

enum Either<T> {
    First(T),
    Second(T),
}

/// Whichever ends first; the first, if both have.
async fn either<T>(
    mut first: Pin<&mut impl Future<Output = T>>,
    mut second: Pin<&mut impl Future<Output = T>>,
) -> Either<T> {
    poll_fn(|context| {
        if let Poll::Ready(ended) = first.as_mut().poll(context) {
            return Poll::Ready(Either::First(ended));
        }
        second.as_mut().poll(context).map(Either::Second)
    })
    .await
}
