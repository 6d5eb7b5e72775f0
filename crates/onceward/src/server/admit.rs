//! Step 3: run, replay, wait, or refuse. Rules 8, 9, 15, 21 and 22 of the contract.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use onceward_core::{Claim, Ending, Fingerprints, OperationId, Request, Timestamp, Verdict};
use tokio::time::Instant;

use super::{
    Code, Idempotency, Problem,
    prefer::Patience,
    recall::{self, Recalled},
    respond, unknown,
    wait::{self, News},
};
use crate::{AdmitError, telemetry};

/// What becomes of a request.
#[expect(clippy::large_enum_variant, reason = "moved once, and most requests run")]
pub(super) enum Admitted {
    /// This request runs the operation.
    Run { claim: Claim, asked_at: Instant, patience: Patience },
    /// The operation has ended, and this is its answer.
    Replay(Arc<Recalled>),
    /// It is running, and the client would rather be told later.
    Accepted,
    /// The store is down, and the route runs without it.
    Unprotected,
}

pub(super) async fn admit(
    idempotency: &Idempotency,
    operation: OperationId,
    fingerprints: Fingerprints,
    parts: &Parts,
) -> Result<Admitted, Problem> {
    let options = idempotency.options();
    let patience = Patience::of(options, &parts.headers);
    let until = Instant::now() + patience.wait;
    let id = operation.digest();
    let request = Request { operation, fingerprints, terms: options.terms };
    loop {
        let asked_at = Instant::now();
        let verdict = match idempotency.engine().admit(request.clone()).await {
            Ok(verdict) => verdict,
            Err(AdmitError::Store(error)) if options.pass_when_store_is_down => {
                telemetry::UNPROTECTED.raise(format_args!("{id} runs unprotected: {error}"));
                return Ok(Admitted::Unprotected);
            }
            Err(error) => return Err(refused(&error)),
        };
        match verdict {
            Verdict::Run(claim) => {
                refuse_stale_key(idempotency, &claim).await?;
                return Ok(Admitted::Run { claim, asked_at, patience });
            }
            Verdict::Replay(replay) => {
                let recalled = recall::recall(idempotency, id, replay).await?;
                return Ok(Admitted::Replay(Arc::new(recalled)));
            }
            Verdict::Mismatch => return Err(key_reused().status(options.mismatch)),
            Verdict::Unknown(stored) => {
                let operation = Some(&request.operation);
                let resolved = match &stored {
                    Some(stored) => unknown::resolve(idempotency, id, operation, stored).await,
                    None => false,
                };
                if !resolved {
                    let status_url = respond::status_url(idempotency, id);
                    return Err(outcome_unknown().location(Some(status_url)));
                }
            }
            Verdict::Busy { retry_after } => {
                let news = match patience.wait.is_zero() {
                    true => None,
                    false => wait::wait(idempotency, id, until).await,
                };
                match news {
                    // Only the answer to this very request; otherwise the store will tell.
                    Some(News::Ended(stored, recalled))
                        if request.fingerprints.under(stored.version()) == Some(stored) =>
                    {
                        return Ok(Admitted::Replay(recalled));
                    }
                    Some(_) => {}
                    None if patience.asynchronous => return Ok(Admitted::Accepted),
                    None => return Err(in_progress().retry_after(retry_after)),
                }
            }
        }
    }
}

/// A key that tells its age and is older than the retention may have run and been forgotten.
async fn refuse_stale_key(idempotency: &Idempotency, claim: &Claim) -> Result<(), Problem> {
    let options = idempotency.options();
    if !options.stale_keys_refused || claim.attempt() > 1 {
        return Ok(());
    }
    let Some(made_at) = made_at(claim.operation().key().as_str()) else { return Ok(()) };
    if claim.claimed_at().since(made_at) <= options.terms.retain() {
        return Ok(());
    }
    // Whether or not this is awaited to its end, it ends.
    let _ = idempotency.engine().settle(claim.clone(), Ending::Released).await;
    let text = "the key is older than the answers that are kept: it may have run and been forgotten; \
                find out before you use a new key";
    Err(Problem::new(Code::KeyExpired, text))
}

/// When a `UUIDv7` key was made.
fn made_at(key: &str) -> Option<Timestamp> {
    let uuid = uuid::Uuid::try_parse(key).ok().filter(|uuid| uuid.get_version_num() == 7)?;
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let micros = seconds.checked_mul(1_000_000)?.checked_add(u64::from(nanos) / 1000)?;
    Some(Timestamp::from_unix_micros(i64::try_from(micros).ok()?))
}

fn refused(error: &AdmitError) -> Problem {
    let code = match error {
        AdmitError::Store(_) => {
            tracing::error!(%error, "a request was refused");
            Code::StoreUnavailable
        }
        _ => Code::Overloaded,
    };
    let text = "nothing was run; try again with the same key";
    Problem::new(code, text).retry_after(Duration::from_secs(1))
}

fn key_reused() -> Problem {
    let text = "this key was used for a request that means something else; use a new key for a new \
                operation";
    Problem::new(Code::KeyReused, text)
}

fn in_progress() -> Problem {
    let text = "the first request with this key is still running; ask again with the same key";
    Problem::new(Code::InProgress, text)
}

fn outcome_unknown() -> Problem {
    let text = "nobody knows yet whether it happened, and it will not run again by itself; ask later \
                with the same key, never with a new one";
    Problem::new(Code::OutcomeUnknown, text)
}
