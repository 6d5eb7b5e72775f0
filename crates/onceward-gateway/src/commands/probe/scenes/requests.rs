//! The same key with another request, and the same request in another form.

use super::{BoxError, Stage, Verdict, Verdicts, all, fail, pass, skip, unready};
use crate::commands::probe::{
    answer::Answer, catalogue::Profile, chain, counter::Landed, operation::Attempt, wire::Unasked,
};

pub(super) const IDS: &[&str] = &["mismatch", "mismatch-status"];

/// More than what some take as the whole of a request.
const LARGE: usize = 1_200_000;

pub(super) async fn another(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let first = stage.send(&attempt).await?;
    let refused = match after(stage, &first, &stage.operation.other(&attempt)).await? {
        Ok(refused) => refused,
        Err(verdict) => {
            let status = skip("it was not refused");
            return Ok(vec![("mismatch", verdict), ("mismatch-status", status)]);
        }
    };
    if let Some(verdict) = refused_anyway(stage, &other_alone(stage)).await? {
        return Ok(all(IDS, &verdict));
    }
    let (got, profile) = (refused.status.as_u16(), stage.operation.profile);
    let expected = if profile == Profile::Stripe { 400 } else { 422 };
    let status = match got == expected {
        true => pass(format!("{got}")),
        false => fail(format!("{got} instead of {expected}")),
    };
    Ok(vec![("mismatch", pass(format!("refused with {got}"))), ("mismatch-status", status)])
}

pub(super) async fn query(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    const PAIR: &str = "onceward_probe=1";
    let attempt = stage.operation.fresh();
    let first = stage.send(&attempt).await?;
    let verdict = match after(stage, &first, &attempt.query(PAIR)).await? {
        Ok(refused) => {
            let anyway = refused_anyway(stage, &stage.operation.fresh().query(PAIR)).await?;
            anyway.unwrap_or_else(|| pass(format!("refused with {}", refused.status.as_u16())))
        }
        Err(verdict) => verdict,
    };
    Ok(vec![("mismatch-query", verdict)])
}

pub(super) async fn tail(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let fresh = stage.operation.fresh();
    let padded = |end| fresh.clone().padded(LARGE, end).filter(|_| stage.operation.is_json());
    let (Some(one), Some(other)) = (padded('1'), padded('2')) else {
        return Ok(vec![("mismatch-tail", skip("the data is not a JSON object"))]);
    };
    let first = match stage.send(&one).await {
        // Who refuses a large request may close the connection while it is being sent.
        Err(trouble) if !trouble.is::<Unasked>() => {
            let text = format!("a large request has no answer: {}", chain(&*trouble));
            return Ok(vec![("mismatch-tail", skip(text))]);
        }
        first => first?,
    };
    if first.status == 413 {
        return Ok(vec![("mismatch-tail", pass("large requests are refused with 413"))]);
    }
    let verdict = match after(stage, &first, &other).await? {
        Ok(refused) => pass(format!("refused with {}", refused.status.as_u16())),
        Err(verdict) => verdict,
    };
    Ok(vec![("mismatch-tail", verdict)])
}

/// The refusal of another request after the first, or what is wrong.
async fn after(
    stage: &Stage<'_>,
    first: &Answer,
    other: &Attempt,
) -> Result<Result<Answer, Verdict>, BoxError> {
    if let Some(reason) = unready(first) {
        return Ok(Err(skip(reason)));
    }
    let mark = stage.mark().await?;
    let second = stage.send(other).await?;
    let landed = stage.landed(mark, &[]).await?;
    let is_first =
        second.is_marked_after(first) || second.is_like(first) && landed != Landed::Unclear;
    Ok(match (second.is_refusal(), landed) {
        (_, Landed::Exactly(1..)) => {
            Err(fail(format!("the other request was done: {}", second.shown())))
        }
        (true, _) => Ok(second),
        (false, _) if is_first => {
            Err(fail(format!("it got the answer of the first: {}", second.shown())))
        }
        (false, Landed::Seen(_)) if second.is_success() => {
            Err(fail(format!("the other request was done: {}", second.shown())))
        }
        _ => Err(fail(format!("it was not refused: {}", second.shown()))),
    })
}

fn other_alone(stage: &Stage<'_>) -> Attempt {
    stage.operation.other(&stage.operation.fresh())
}

/// A refusal says nothing about the key if the request is refused with a new key too.
async fn refused_anyway(stage: &Stage<'_>, alone: &Attempt) -> Result<Option<Verdict>, BoxError> {
    let answer = stage.send(alone).await?;
    Ok((!answer.is_success()).then(|| {
        let shown = answer.shown();
        skip(format!(
            "the other request is refused also with a new key: {shown}; give --other-data"
        ))
    }))
}

pub(super) async fn respelled(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let respelled = attempt.clone().respelled().filter(|_| stage.operation.is_json());
    let Some(respelled) = respelled else {
        return Ok(vec![("json-order", skip("the data is not a JSON object"))]);
    };
    let verdict = same(stage, &attempt, &respelled).await?;
    Ok(vec![("json-order", verdict)])
}

pub(super) async fn chunked(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    if attempt.body.is_none() {
        return Ok(vec![("chunked", skip("the operation has no data"))]);
    }
    let verdict = match same(stage, &attempt, &attempt.clone().in_chunks()).await? {
        Verdict::Fail(text) => {
            let alone = stage.send(&stage.operation.fresh().in_chunks()).await?;
            match alone.is_success() {
                true => fail(text),
                false => skip(format!("chunks are refused also with a new key: {}", alone.shown())),
            }
        }
        verdict => verdict,
    };
    Ok(vec![("chunked", verdict)])
}

pub(super) async fn same(
    stage: &Stage<'_>,
    attempt: &Attempt,
    second: &Attempt,
) -> Result<Verdict, BoxError> {
    let mark = stage.mark().await?;
    let first = stage.send(attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(skip(reason));
    }
    let again = stage.send(second).await?;
    let landed = stage.landed(mark, &[&first, &again]).await?;
    Ok(match (again.status.as_u16(), stage.doubled(landed)) {
        (_, Some(Verdict::Fail(text))) => fail(text),
        (411, _) => pass("it asks for a length, and does nothing: 411"),
        _ if !again.is_success() => fail(format!("it was answered {}", again.shown())),
        (_, Some(verdict)) => verdict,
        _ => pass("it is taken for a retry"),
    })
}

pub(super) async fn failing(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.bad();
    let first = stage.send(&attempt).await?;
    let verdict = match first.status.as_u16() {
        _ if first.is_success() => skip("no request is known that fails; give --bad-data"),
        // They are about the moment, so that a retry may well succeed.
        401 | 403 | 408 | 425 | 502..=504 => {
            skip(format!("a request that should fail by itself got {}", first.shown()))
        }
        status => {
            let again = stage.send(&attempt).await?;
            match again.is_success() {
                true => fail(format!("{} became {}", first.shown(), again.shown())),
                false => pass(format!("{status}, then {}", again.status.as_u16())),
            }
        }
    };
    Ok(vec![("error-status", verdict)])
}

pub(super) async fn contract(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let first = stage.send(&attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(all(&["problem-json"], &skip(reason)));
    }
    let mismatch = stage.send(&stage.operation.other(&attempt)).await?;
    let is_about_key =
        !mismatch.is_refusal() || refused_anyway(stage, &other_alone(stage)).await?.is_none();
    let invalid = stage.send(&stage.operation.fresh().key("")).await?;
    let answers = [Some(mismatch).filter(|_| is_about_key), Some(invalid)];
    let refusals: Vec<Answer> = answers.into_iter().flatten().filter(Answer::is_refusal).collect();
    let verdict = match refusals.iter().find(|refusal| !refusal.is_problem()) {
        _ if refusals.is_empty() => skip("nothing was refused"),
        None => pass("they are"),
        Some(plain) => fail(format!("a refusal is none: {}", plain.shown())),
    };
    Ok(vec![("problem-json", verdict)])
}
