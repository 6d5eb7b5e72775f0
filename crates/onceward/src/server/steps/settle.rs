//! Step 6: make the end durable before any client hears of it. Rules 10 to 12, 17 and 18.

use std::time::Duration;

use http::{Response, StatusCode, header};
use onceward_core::{Effect, Ending, Found, Meaning, Replay, Settled, SpoolId, StoredBody};
use tokio::time::{sleep, timeout};

use super::{
    capture::Captured,
    execute, keep,
    recall::{self, CHUNK},
    respond,
};
use crate::{
    Engine,
    engine::fresh_fence,
    server::{Body, Claim, Code, Idempotency, Problem, headers, options::checked::Options},
    telemetry::{self, Call, event},
};

/// When a client shall come back if the service freed its key and named no time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Ends the claim by what came back, and gives the answer for the first client. If that takes long,
/// `late` gets what the client hears meanwhile.
pub(crate) async fn settle(
    idempotency: &Idempotency,
    claim: &Claim,
    captured: Captured,
    late: impl FnOnce(Problem),
) -> Result<Response<Body>, Problem> {
    if claim.effect() == Effect::Transactional
        && let Some(replay) = committed(idempotency, claim).await?
    {
        return ended_by_commit(idempotency, claim, replay, captured).await;
    }
    settle_open(idempotency, claim, captured, late).await
}

/// The same for a claim that was made in the handler's own transaction: if that was not committed,
/// there is no record of it.
pub(crate) async fn settle_run_in(
    idempotency: &Idempotency,
    claim: &Claim,
    captured: Captured,
) -> Result<Response<Body>, Problem> {
    if let Some(replay) = claim.take_end() {
        return ended_by_commit(idempotency, claim, replay, captured).await;
    }
    match read(idempotency.engine(), claim).await? {
        Found::Unreadable { .. } => Err(unreadable()),
        Found::Record(found) if found.record.execution == claim.execution() => {
            match Replay::of(*found) {
                Some(replay) => ended_by_commit(idempotency, claim, replay, captured).await,
                // The effect itself has committed: the claim alone is there.
                None => settle_open(idempotency, claim, captured, |_| {}).await,
            }
        }
        // No reader sees the record while the commit is under way.
        Found::Record(_) | Found::Nothing if claim.is_sent() => Err(not_durable_yet()),
        Found::Record(_) | Found::Nothing => match refusal(&captured) {
            Some(problem) => Ok(respond::problem(idempotency, claim.id(), problem)),
            None => uncommitted(captured),
        },
    }
}

/// The answer of a handler that has committed nothing. It binds nothing, and must not claim success.
pub(crate) fn uncommitted(captured: Captured) -> Result<Response<Body>, Problem> {
    answer(captured, Meaning::FailedRetryable, Effect::Transactional)
}

async fn ended_by_commit(
    idempotency: &Idempotency,
    claim: &Claim,
    replay: Replay,
    captured: Captured,
) -> Result<Response<Body>, Problem> {
    idempotency.shared().ended(&claim.id());
    telemetry::count_committed(&replay.outcome);
    ended(idempotency, claim, replay, captured).await
}

async fn settle_open(
    idempotency: &Idempotency,
    claim: &Claim,
    captured: Captured,
    late: impl FnOnce(Problem),
) -> Result<Response<Body>, Problem> {
    let id = claim.id();
    let meaning = captured.meaning(&idempotency.options().policy, claim.effect());
    let fence = fresh_fence();
    let ending = match meaning {
        Meaning::Succeeded | Meaning::FailedFinal => {
            let (mut outcome, large) = keep::outcome(idempotency, &captured);
            if let Some(bytes) = large {
                let id = SpoolId { operation: id, fence };
                outcome.body = spool((idempotency, idempotency.options()), id, &bytes).await;
            }
            telemetry::count_answer(&outcome.body);
            match meaning {
                Meaning::Succeeded => Ending::Succeeded(outcome),
                _ => Ending::FailedFinal(outcome),
            }
        }
        Meaning::FailedRetryable => Ending::FailedRetryable,
        Meaning::Released => Ending::Released,
        Meaning::Unknown => {
            tracing::warn!(
                event = event::OUTCOME_UNKNOWN,
                operation = %id,
                status = captured.head().map(|(status, ..)| status.as_u16()),
                cause = %captured.cause(),
                "the outcome is unknown; retries are refused until an operator or a resolver finds out"
            );
            Ending::Unknown
        }
    };
    let cause = captured.cause();
    let settlement = claim.settle(ending, fence).because(cause);
    let settling = idempotency.engine().settle_here(settlement, || late(not_durable_yet()));
    let settled = settling.await;
    idempotency.shared().ended(&id);
    match settled {
        Some(Settled::Stored { at }) => {
            let ended = matches!(meaning, Meaning::Succeeded | Meaning::FailedFinal);
            let times = ended.then(|| (at, Some(at.plus(claim.terms().retain()))));
            if !ended && let Some(problem) = refusal(&captured) {
                return Ok(respond::problem(idempotency, id, problem));
            }
            let mut answer =
                answer(captured, meaning, claim.effect()).map_err(|problem| match meaning {
                    Meaning::Unknown => problem.because(Some(cause.to_string())),
                    _ => problem,
                })?;
            if meaning == Meaning::Unknown {
                answer.headers_mut().insert(headers::OUTCOME, headers::UNKNOWN);
            }
            if meaning == Meaning::Released && answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                let pause = respond::whole_seconds(RETRY_AFTER);
                answer.headers_mut().entry(header::RETRY_AFTER).or_insert(pause);
            }
            respond::stamp(answer.headers_mut(), id, times);
            Ok(answer)
        }
        Some(Settled::FencedOff(found)) => match own_end(claim, found) {
            Some(replay) => ended(idempotency, claim, replay, captured).await,
            None => Err(lease_lost()),
        },
        None => Err(not_durable_yet()),
    }
}

/// What a service inside of the layer refused with: nothing of it is kept, so that no replay can differ.
fn refusal(captured: &Captured) -> Option<Problem> {
    captured.head()?.2.get().cloned()
}

fn answer(captured: Captured, meaning: Meaning, effect: Effect) -> Result<Response<Body>, Problem> {
    let cause = captured.cause();
    let answer = match for_client(captured) {
        // To ask again would not bring it: it binds nothing and is not kept.
        Err(_) if meaning == Meaning::Unknown => None,
        answer => answer?,
    };
    let answer = answer.ok_or_else(|| execute::no_answer(meaning, cause))?;
    let went_well = answer.status().is_success() || answer.status().is_redirection();
    match effect == Effect::Transactional && went_well {
        true => Err(not_committed()),
        false => Ok(answer),
    }
}

/// What came back, for a client that may take its time to read it.
fn for_client(mut captured: Captured) -> Result<Option<Response<Body>>, Problem> {
    match captured.has_room() {
        true => Ok(passed_on(captured)),
        false => Err(no_room()),
    }
}

/// What came back, as it is; `None`: nothing did.
pub(crate) fn passed_on(captured: Captured) -> Option<Response<Body>> {
    let mut answer = match captured {
        Captured::Nothing(_) | Captured::NotSent => return None,
        Captured::Stream(answer) => answer,
        Captured::Whole { head, whole, room, .. } => {
            let body = Body::whole(room.hold(whole.bytes), whole.trailers);
            Response::from_parts(head, body)
        }
    };
    headers::strip_own(answer.headers_mut());
    Some(answer)
}

/// Keeps a large answer beside its record, or says that it could not be kept.
pub(crate) async fn spool(
    (idempotency, route): (&Idempotency, &Options),
    id: SpoolId,
    bytes: &[u8],
) -> StoredBody {
    let Some(spool) = &route.chosen.spool else { return StoredBody::Unavailable };
    for (index, chunk) in (0..).zip(bytes.chunks(CHUNK)) {
        let put = || idempotency.engine().bounded(Call::PutChunk, spool.put(&id, index, chunk));
        let mut written = put().await;
        // The same chunk may be written again, and a large answer is worth a second try.
        if written.is_err() {
            sleep(Duration::from_millis(100)).await;
            written = put().await;
        }
        if let Err(error) = written {
            tracing::warn!(event = event::ANSWER_NOT_KEPT, %error, "a large answer could not be kept: its operation has ended, and replays of it are refused");
            return StoredBody::Unavailable;
        }
    }
    keep::spooled(bytes)
}

/// The answer that the handler's own commit stored; `None`: it did not commit.
async fn committed(idempotency: &Idempotency, claim: &Claim) -> Result<Option<Replay>, Problem> {
    if let Some(replay) = claim.take_end() {
        return Ok(Some(replay));
    }
    let found = match read(idempotency.engine(), claim).await? {
        Found::Record(found) => found,
        Found::Nothing => return Err(lease_lost()),
        Found::Unreadable { .. } => return Err(unreadable()),
    };
    if found.record.execution != claim.execution() {
        return Err(lease_lost());
    }
    Ok(Replay::of(*found))
}

/// The answer of a record that this very execution has ended already.
fn own_end(claim: &Claim, found: Found) -> Option<Replay> {
    match found {
        Found::Record(stored) if stored.record.execution == claim.execution() => {
            Replay::of(*stored)
        }
        _ => None,
    }
}

/// The answer that this execution has stored; what was not kept of it, or hidden, as it came back.
async fn ended(
    idempotency: &Idempotency,
    claim: &Claim,
    mut replay: Replay,
    captured: Captured,
) -> Result<Response<Body>, Problem> {
    let id = claim.id();
    keep::read_back(idempotency.options(), &mut replay.outcome);
    let status = captured.head().map(|(status, ..)| status.as_u16());
    let is_same = status == Some(replay.outcome.status);
    let is_whole_only_here = replay.outcome.body == StoredBody::Unavailable
        || keep::is_kept_of(idempotency, &captured, &replay.outcome);
    if is_same && is_whole_only_here {
        let mut answer = for_client(captured)?.ok_or_else(lease_lost)?;
        respond::stamp(answer.headers_mut(), id, Some((replay.completed_at, replay.expires_at)));
        return Ok(answer);
    }
    // The room that its bytes take up is needed to read them back.
    drop(captured);
    // Whatever keeps a large answer from being read back, it has run.
    let recalled = recall::recall(idempotency, id, replay, claim.memory().clone());
    let recalled = recalled.await.map_err(|_| not_readable_now())?;
    respond::recalled(idempotency, id, &recalled).await
}

/// Reads the record, with a second of patience: the client's answer depends on it.
async fn read(engine: &Engine, claim: &Claim) -> Result<Found, Problem> {
    let id = claim.id();
    let reading = async {
        loop {
            match engine.read(&id).await {
                Ok(found) => return found,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(Engine::SETTLE_PATIENCE, reading).await.map_err(|_| {
        tracing::warn!(event = event::COMMIT_DOUBTFUL, operation = %id, "the store does not say whether a transaction was committed: the client asks again with the same key");
        not_durable_yet()
    })
}

pub(crate) fn lease_lost() -> Problem {
    let text = "another execution took over, and its answer counts; ask with the same key";
    Problem::new(Code::LeaseLost, text).retry_after(Duration::from_secs(1))
}

/// Damage is not absence.
fn unreadable() -> Problem {
    let text = "the record of the operation is damaged, so that it is not known what became of it; ask with \
                the same key, never with a new one";
    Problem::new(Code::OutcomeUnknown, text)
}

fn not_committed() -> Problem {
    let text = "the service answered but did not commit, so nothing happened; send the same request \
                with the same key";
    Problem::new(Code::NotCommitted, text)
}

/// An answer that is not durable is no answer.
pub(crate) fn not_durable_yet() -> Problem {
    ask_again("the operation has run, but its end is not durable yet; ask with the same key")
}

fn no_room() -> Problem {
    ask_again(
        "the operation has run, but there is no memory for its answer here; ask with the same key",
    )
}

fn not_readable_now() -> Problem {
    ask_again("the operation has run, but its answer cannot be read now; ask with the same key")
}

fn ask_again(text: &'static str) -> Problem {
    Problem::new(Code::OutcomeUnknown, text)
        .status(StatusCode::SERVICE_UNAVAILABLE)
        .retryable()
        .retry_after(Duration::from_secs(1))
}
