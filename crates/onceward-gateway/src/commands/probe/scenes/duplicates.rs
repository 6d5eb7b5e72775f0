//! The same request while the first is running, and from clients that vanish.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{BoxError, Stage, UNCLEAR, Verdict, Verdicts, fail, pass, skip};
use crate::commands::probe::{answer::Answer, counter::Landed};

pub(super) const IDS: &[&str] = &["concurrent", "in-flight", "retry-after"];

/// A race is not lost every time.
const ROUNDS: u32 = 3;

pub(super) async fn together(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let (mut most, mut unclear, mut others) = (0, None, Vec::new());
    for _ in 0..ROUNDS {
        let attempt = stage.operation.fresh();
        let mark = stage.mark().await?;
        let sent = stage.wire.send_together(&attempt, stage.duplicates).await;
        let mut answers = sent.into_iter().collect::<Result<Vec<Answer>, _>>()?;
        // A client with a busy answer comes back, and the work is certainly over then.
        answers.push(until_settled(stage, &attempt).await?);
        let ended: Vec<&Answer> =
            answers.iter().filter(|answer| !stage.is_pending(answer)).collect();
        let landed = stage.landed(mark, &ended).await?;
        match stage.doubled(landed) {
            Some(Verdict::Skip(reason)) => unclear = Some(reason),
            _ => most = most.max(landed.times().unwrap_or(0)),
        }
        answers.pop();
        let is_other = |answer: &Answer| !answer.is_success() || stage.is_pending(answer);
        others.extend(answers.into_iter().filter(is_other));
    }
    let count = stage.duplicates;
    let is_unclear = unclear.is_some();
    let concurrent = match (most, unclear) {
        (2.., _) => {
            fail(format!("{count} with one key at the same time, and a retry: landed {most} times"))
        }
        (_, Some(reason)) => skip(reason),
        (0, _) => fail(format!("none of {count} at the same time landed")),
        (1, _) => pass(format!("{count} at the same time, {ROUNDS} times, landed once each")),
    };
    let says_so = |answer: &&Answer| answer.status == 409 || stage.is_pending(answer);
    let waiting: Vec<&Answer> = others.iter().filter(says_so).collect();
    let in_flight = match others.iter().find(|answer| !says_so(answer)) {
        _ if most > 1 => skip("they were not taken for duplicates"),
        Some(other) => fail(format!("a duplicate of a running request got {}", other.shown())),
        None if waiting.is_empty() && is_unclear => skip(UNCLEAR),
        None if waiting.is_empty() => pass("all duplicates got the answer"),
        None => pass(format!(
            "{} duplicates got the answer that it is running (409, or 202 with Location), the others got \
             the answer",
            waiting.len()
        )),
    };
    let lacks_time = |answer: &&&Answer| answer.header("retry-after").is_none();
    let retry_after = match waiting.iter().find(lacks_time) {
        _ if waiting.is_empty() => skip("the API asked no duplicate to come back"),
        Some(other) => fail(format!("no Retry-After with {}", other.shown())),
        None => pass("every 409 and 202 says when"),
    };
    Ok(vec![("concurrent", concurrent), ("in-flight", in_flight), ("retry-after", retry_after)])
}

/// The answer when the key is no longer busy, or the last one when patience is at its end.
async fn until_settled(stage: &Stage<'_>, attempt: &super::Attempt) -> Result<Answer, BoxError> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        let answer = stage.send(attempt).await?;
        let is_busy = answer.status == 409
            || answer.status == 425
            || answer.status == 423
            || stage.is_pending(&answer);
        if !is_busy || begun.elapsed() > stage.patience {
            return Ok(answer);
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(4));
    }
}

pub(super) async fn leaving(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let mut is_counted = true;
    for after in [Duration::ZERO, stage.usual / 3, stage.usual * 2 / 3] {
        let attempt = stage.operation.fresh();
        let mark = stage.mark().await?;
        // At least until the request is on its way.
        stage.wire.send_and_leave(&attempt, after.max(Duration::from_millis(2))).await?;
        let answer = until_settled(stage, &attempt).await?;
        let landed = stage.landed(mark, &[&answer]).await?;
        let waited = stage.patience.as_secs();
        is_counted &= matches!(landed, Landed::Exactly(_));
        let bad = match (answer.status.as_u16(), landed.times()) {
            (_, Some(2..)) => stage.doubled(landed),
            // It does not know, and says so: no client is misled, and nothing lands twice.
            (409 | 504, _) if answer.is_unknown() => None,
            _ if stage.is_pending(&answer) => Some(fail(format!(
                "it is still running {waited} s after its client has left: {}",
                answer.shown()
            ))),
            (409 | 423 | 425, _) => Some(fail(format!(
                "the key is still busy {waited} s after its client has left: {}",
                answer.shown()
            ))),
            _ if !answer.is_success() => {
                Some(fail(format!("the retry after a lost connection got {}", answer.shown())))
            }
            (_, Some(0)) => Some(fail("the retry succeeded, and nothing landed")),
            _ => None,
        };
        if let Some(verdict) = bad {
            return Ok(vec![("disconnect", verdict)]);
        }
    }
    let verdict = match is_counted {
        true => pass("three clients left, and their retries got one result each"),
        false => skip("the retries were answered; whether it landed once tells only --count-url"),
    };
    Ok(vec![("disconnect", verdict)])
}
