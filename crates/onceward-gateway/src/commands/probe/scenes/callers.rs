//! Whose key it is.

use super::{ALIKE, BoxError, Stage, Verdict, Verdicts, all, fail, pass, skip, unready};
use crate::commands::probe::{answer::Answer, counter::Landed, operation::Attempt};

pub(super) async fn two(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    const IDS: [&str; 2] = ["scope", "unauthenticated"];
    let credentials = &stage.operation.credentials;
    if credentials.is_empty() {
        return Ok(all(&IDS, &skip("give --credential twice, of two callers")));
    }
    let attempt = stage.operation.fresh();
    let first = stage.send(&attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(all(&IDS, &skip(reason)));
    }
    let scope = match credentials.get(1) {
        None => skip("give --credential twice, of two callers"),
        Some(other) => {
            // Other data, because the API may refuse the same twice, for every caller.
            let control = stage.operation.fresh().credential(Some(other));
            let theirs = control.clone().key(&attempt.keys.concat());
            let mark = stage.mark().await?;
            let second = stage.send(&theirs).await?;
            let landed = stage.landed(mark, &[]).await?;
            match apart(&first, &second, landed) {
                Verdict::Fail(_) if !second.is_success() && !is_served(stage, &control).await? => {
                    skip(format!("the second caller is not served at all: {}", second.shown()))
                }
                verdict => verdict,
            }
        }
    };
    Ok(vec![("scope", scope), ("unauthenticated", anonymous(stage, &first, attempt).await?)])
}

async fn is_served(stage: &Stage<'_>, attempt: &Attempt) -> Result<bool, BoxError> {
    Ok(stage.send(attempt).await?.is_success())
}

/// Whether a caller without a credential gets the answer of one who has it.
async fn anonymous(
    stage: &Stage<'_>,
    first: &Answer,
    attempt: Attempt,
) -> Result<Verdict, BoxError> {
    let mark = stage.mark().await?;
    let answer = stage.send(&attempt.credential(None)).await?;
    let landed = stage.landed(mark, &[]).await?;
    let is_stored = match landed {
        Landed::Exactly(times) => times == 0,
        Landed::Seen(_) => answer.is_like(first) || answer.is_marked_after(first),
        Landed::Unclear => answer.is_marked_after(first),
    };
    Ok(match answer.is_success() {
        false => pass(format!("{} without a credential", answer.status.as_u16())),
        true if is_stored => {
            fail(format!("the stored answer was sent without one: {}", answer.shown()))
        }
        true if landed == Landed::Unclear => skip(ALIKE),
        true => skip("the operation needs no credential"),
    })
}

fn apart(first: &Answer, second: &Answer, landed: Landed) -> Verdict {
    let is_replay = second.is_like(first) || second.is_marked_after(first);
    match (second.status.as_u16(), landed) {
        (_, Landed::Exactly(1)) if second.is_success() => pass("each caller has its own"),
        (_, Landed::Exactly(0)) if second.is_success() => {
            fail(format!("the second caller got the answer of the first: {}", second.shown()))
        }
        (_, _) if second.is_success() && is_replay && landed == Landed::Unclear => skip(ALIKE),
        (_, _) if second.is_success() && is_replay => {
            fail(format!("the second caller got the answer of the first: {}", second.shown()))
        }
        (_, _) if second.is_success() => pass("each caller has its own"),
        (401 | 403, _) => skip(format!("the second credential got {}", second.shown())),
        _ => fail(format!(
            "the second caller cannot use a key that the first has used: {}",
            second.shown()
        )),
    }
}

pub(super) async fn gate(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let verdict = if stage.operation.credentials.is_empty() {
        skip("give --credential")
    } else {
        let refused = stage.send(&attempt.clone().credential(None)).await?;
        let let_in = stage.send(&attempt).await?;
        match (refused.status.as_u16(), let_in.is_success()) {
            (401 | 403, true) => pass("the same key works with the credential"),
            (401 | 403, false) => fail(format!(
                "{} without the credential became {} with it",
                refused.status.as_u16(),
                let_in.shown()
            )),
            (other, _) => skip(format!("without a credential it answers {other}")),
        }
    };
    Ok(vec![("gate", verdict)])
}
