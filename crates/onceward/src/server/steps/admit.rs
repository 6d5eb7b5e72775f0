//! Step 3: run, replay, wait, or refuse. Rules 8, 9, 15, 21 and 22 of the contract.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use onceward_core::{
    Ending, Found, Request, Scope, Status, StoreError, Stored, Timestamp, Verdict,
};
use tokio::time::Instant;

use super::{
    recall::{self, Recalled},
    shed, unknown,
    wait::{self, News},
};
use crate::{
    AdmitError,
    engine::{Tracked, open::Slot},
    server::{
        Claim, Code, Deadline, Idempotency, Problem, cause_of,
        prefer::{AfterWait, Patience},
    },
    telemetry::{self, Answered, event},
};

/// An operator has to set the clock right.
const CLOCK_PAUSE: Duration = Duration::from_secs(10);

pub(crate) enum Admitted {
    /// This request runs the operation.
    Run { claim: Claim, patience: Patience, counted: Tracked, slot: Slot },
    /// The operation has ended, and this is its answer.
    Replay { recalled: Arc<Recalled>, answered: Answered },
    /// It is running, and the client would rather ask later.
    Accepted(Patience),
    /// The store is down, and the route runs without it.
    Unprotected,
}

pub(crate) async fn admit(
    idempotency: &Idempotency,
    request: &Request,
    parts: &Parts,
) -> Result<Admitted, Problem> {
    let options = idempotency.options();
    let patience = Patience::of(options, &parts.headers);
    let until = Instant::now() + patience.wait;
    let mut answered = Answered::Replayed;
    loop {
        // In a box: thousands of duplicates may wait below, and few ask at a time.
        let otherwise = match Box::pin(ask(idempotency, request, parts)).await? {
            // Its client has waited, and has so much less patience left.
            StoreAnswer::Run(claim, counted, slot) => {
                let wait = until.saturating_duration_since(Instant::now());
                let patience = Patience { wait, ..patience };
                return Ok(Admitted::Run { claim, patience, counted, slot });
            }
            StoreAnswer::Replay(recalled) => return Ok(Admitted::Replay { recalled, answered }),
            StoreAnswer::Unprotected => return Ok(Admitted::Unprotected),
            StoreAnswer::Wait(otherwise) => otherwise,
            StoreAnswer::Changed => continue,
        };
        let news = match patience.wait.is_zero() {
            true => None,
            false => {
                let memory = idempotency.memory_for(parts);
                wait::wait(idempotency, request.operation.digest(), until, memory).await
            }
        };
        answered = Answered::Waited;
        match news {
            // Only the answer to this very request; otherwise the loop asks the store.
            Some(News::Ended(stored, recalled))
                if request.fingerprints.under(stored.version()) == Some(stored) =>
            {
                return Ok(Admitted::Replay { recalled, answered });
            }
            Some(_) => {}
            None if patience.after == AfterWait::Conflict
                || otherwise.code() != Code::InProgress =>
            {
                return Err(otherwise);
            }
            None => return Ok(Admitted::Accepted(patience)),
        }
    }
}

/// What the store answers.
enum StoreAnswer {
    /// The request counts until its execution does, so that no drain overlooks it.
    Run(Claim, Tracked, Slot),
    Replay(Arc<Recalled>),
    Unprotected,
    /// Its answer may come soon; this is the refusal if it does not.
    Wait(Problem),
    /// The record has just been changed: ask again.
    Changed,
}

async fn ask(
    idempotency: &Idempotency,
    request: &Request,
    parts: &Parts,
) -> Result<StoreAnswer, Problem> {
    let (options, id) = (idempotency.options(), request.operation.digest());
    reject(idempotency, request, parts).await?;
    let deadline = Deadline::within(request.terms.max_run());
    let counted = idempotency.engine().track_other();
    let verdict = match idempotency.engine().admit(request.clone()).await {
        Ok(verdict) => verdict,
        // A record of newer software is there: it only cannot be read here.
        Err(AdmitError::Store(error))
            if options.chosen.pass_when_store_is_down && !matches!(error, StoreError::Newer(_)) =>
        {
            shed::refuse_expired(shed::incoming(parts))?;
            telemetry::UNPROTECTED.raise(format_args!("{id} runs unprotected: {error}"));
            return Ok(StoreAnswer::Unprotected);
        }
        Err(error) => return Err(refused(&error)),
    };
    match verdict {
        Verdict::Run(claim) => {
            if is_stale(idempotency, &claim) {
                give_back(idempotency, &claim).await;
                return Err(key_expired());
            }
            if let Err(shed) = options.traffic.admit(shed::incoming(parts), claim.is_repeat()) {
                give_back(idempotency, &claim).await;
                return Err(shed);
            }
            // Others may have filled the quota meanwhile.
            let Some(slot) = slot(idempotency, claim.operation().scope()) else {
                give_back(idempotency, &claim).await;
                return Err(too_many_open());
            };
            idempotency.remember(claim.operation().name());
            let by = (deadline, idempotency.memory_for(parts));
            Ok(StoreAnswer::Run(Claim::new(idempotency.clone(), claim, by), counted, slot))
        }
        Verdict::Replay(replay) => {
            let memory = idempotency.memory_for(parts);
            Ok(StoreAnswer::Replay(Arc::new(
                recall::recall(idempotency, id, replay, memory).await?,
            )))
        }
        Verdict::Busy { retry_after } => {
            Ok(StoreAnswer::Wait(in_progress().retry_after(retry_after)))
        }
        Verdict::Mismatch => Err(key_reused().status(options.mismatch)),
        Verdict::ClockSuspect => Err(clock_suspect()),
        Verdict::Unknown(None) => Err(outcome_unknown(None)),
        Verdict::Unknown(Some(stored)) => {
            let (route, operation) = ((idempotency, options), Some(&request.operation));
            match unknown::resolve(route, id, operation, &stored).await {
                true => Ok(StoreAnswer::Changed),
                false if stored.answer_awaited().is_some() => {
                    Ok(StoreAnswer::Wait(outcome_unknown(Some(&stored))))
                }
                false => Err(outcome_unknown(Some(&stored))),
            }
        }
    }
}

/// Whether the key says that it is older than the retention: then it may have run and been forgotten.
pub(crate) fn is_stale(idempotency: &Idempotency, claim: &onceward_core::Claim) -> bool {
    let options = idempotency.options();
    if !options.chosen.stale_keys_refused || claim.attempt() > 1 {
        return false;
    }
    made_at(claim.operation().key().as_str())
        .is_some_and(|made_at| claim.claimed_at().since(made_at) > options.terms.retain())
}

pub(crate) fn key_expired() -> Problem {
    let text = "the key is older than the answers that are kept: it may have run and been forgotten; \
                find out before you use a new key";
    Problem::new(Code::KeyExpired, text)
}

/// Refuses a new operation for which there is no room, before the claim: a flood of requests causes no
/// writes. What runs or has ended is not new.
async fn reject(
    idempotency: &Idempotency,
    request: &Request,
    parts: &Parts,
) -> Result<(), Problem> {
    let (engine, options) = (idempotency.engine(), idempotency.options());
    let principal = options.principal(request.operation.scope());
    let reason = match engine.open().is_full(&principal, options.chosen.max_open) {
        true => Some(too_many_open()),
        false => shed::refuse_expired(shed::incoming(parts))
            .err()
            .or_else(|| options.chosen.reject.as_ref().and_then(|reason| reason(parts))),
    };
    let Some(reason) = reason else { return Ok(()) };
    let is_new = match engine.read(&request.operation.digest()).await {
        Ok(Found::Nothing) => true,
        // It would run, for the first time or again.
        Ok(Found::Record(stored)) => matches!(
            stored.status(),
            Status::Released | Status::Expired | Status::FailedRetryable | Status::Interrupted
        ),
        // The admission decides.
        Ok(Found::Unreadable { .. }) | Err(_) => false,
    };
    if is_new { Err(reason) } else { Ok(()) }
}

/// Ends a claim under which nothing was run.
async fn give_back(idempotency: &Idempotency, claim: &onceward_core::Claim) {
    // An operation that ran before stays bound to its request.
    let ending = match claim.attempt() {
        1 => Ending::Released,
        _ => Ending::FailedRetryable,
    };
    // The engine ends it also when this future is dropped.
    let _ = idempotency.engine().settle(claim.clone(), ending).await;
}

/// `None`: there are as many as may be.
pub(crate) fn slot(idempotency: &Idempotency, scope: &Scope) -> Option<Slot> {
    let options = idempotency.options();
    idempotency.engine().open().take(&options.principal(scope), options.chosen.max_open)
}

pub(crate) fn too_many_open() -> Problem {
    let text = "too many operations of this caller are running here, and this one was not begun; try \
                again with the same key";
    Problem::new(Code::TooManyOpen, text).retry_after(Duration::from_secs(1))
}

/// When a `UUIDv7` key was made.
fn made_at(key: &str) -> Option<Timestamp> {
    let uuid = uuid::Uuid::try_parse(key).ok().filter(|uuid| uuid.get_version_num() == 7)?;
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let micros = seconds.checked_mul(1_000_000)?.checked_add(u64::from(nanos) / 1000)?;
    Some(Timestamp::from_unix_micros(i64::try_from(micros).ok()?))
}

pub(crate) fn refused(error: &AdmitError) -> Problem {
    let code = match error {
        AdmitError::Store(_) => {
            tracing::error!(event = event::STORE_FAILED, %error, "a request was refused");
            Code::StoreUnavailable
        }
        _ => Code::Overloaded,
    };
    let text = "nothing was run; try again with the same key";
    Problem::new(code, text).retry_after(Duration::from_secs(1))
}

pub(crate) fn key_reused() -> Problem {
    let text = "this key was used for a request that means something else; use a new key for a new \
                operation";
    Problem::new(Code::KeyReused, text)
}

pub(crate) fn in_progress() -> Problem {
    let text = "the first request with this key is still running; ask again with the same key";
    Problem::new(Code::InProgress, text)
}

/// What to do about an unknown outcome.
pub(crate) const UNKNOWN_ADVICE: &str = "ask later with the same key, never with a new one; if that does \
    not help, the operator of this service has to find out and resolve it";

pub(crate) fn outcome_unknown(stored: Option<&Stored>) -> Problem {
    let cause = match stored {
        Some(stored) => cause_of(stored),
        None => Some("the record is damaged".to_owned()),
    };
    let text = format!(
        "it is not known whether it happened, and it will not run again by itself; {UNKNOWN_ADVICE}"
    );
    Problem::new(Code::OutcomeUnknown, text).because(cause)
}

pub(crate) fn clock_suspect() -> Problem {
    let text = "the clock of the store jumped, and only by that this key would be new again; nothing was run; try \
                again later with the same key, never with a new one";
    Problem::new(Code::ClockSuspect, text).retry_after(CLOCK_PAUSE)
}
