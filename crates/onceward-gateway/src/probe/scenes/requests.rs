//! The same key with another request, and the same request in another form.

use super::{Stage, Verdict, Verdicts, all, fail, pass, skip, unready};
use crate::probe::{answer::Answer, catalogue::Profile, operation::Attempt, wire::Trouble};

pub(super) const IDS: &[&str] = &["mismatch", "mismatch-status"];

/// More than what some take as the whole of a request.
const LARGE: usize = 1_200_000;

pub(super) async fn another(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.fresh();
    let other = stage.operation.other(&attempt);
    let refused = match refused(stage, &attempt, &other).await? {
        Ok(refused) => refused,
        Err(verdict) => {
            let status = skip("it was not refused");
            return Ok(vec![("mismatch", verdict), ("mismatch-status", status)]);
        }
    };
    let (got, profile) = (refused.status.as_u16(), stage.operation.profile);
    let expected = if profile == Profile::Stripe { 400 } else { 422 };
    let status = match got == expected {
        true => pass(format!("{got}")),
        false => fail(format!("{got} instead of {expected}")),
    };
    Ok(vec![("mismatch", pass(format!("refused with {got}"))), ("mismatch-status", status)])
}

pub(super) async fn query(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.fresh();
    let other = attempt.clone().query("onceward_probe=1");
    let verdict = match refused(stage, &attempt, &other).await? {
        Ok(refused) => pass(format!("refused with {}", refused.status.as_u16())),
        Err(verdict) => verdict,
    };
    Ok(vec![("mismatch-query", verdict)])
}

pub(super) async fn tail(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let fresh = stage.operation.fresh();
    let padded = |end| fresh.clone().padded(LARGE, end).filter(|_| stage.operation.is_json());
    let (Some(one), Some(other)) = (padded('1'), padded('2')) else {
        return Ok(vec![("mismatch-tail", skip("the data is not a JSON object"))]);
    };
    let first = stage.send(&one).await?;
    if first.is_refusal() {
        let text = format!("large requests are refused: {}", first.status.as_u16());
        return Ok(vec![("mismatch-tail", pass(text))]);
    }
    let verdict = match after(stage, &first, &other).await? {
        Ok(refused) => pass(format!("refused with {}", refused.status.as_u16())),
        Err(verdict) => verdict,
    };
    Ok(vec![("mismatch-tail", verdict)])
}

/// The refusal of the second after the first, or what is wrong.
async fn refused(
    stage: &Stage<'_>,
    attempt: &Attempt,
    other: &Attempt,
) -> Result<Result<Answer, Verdict>, Trouble> {
    let first = stage.send(attempt).await?;
    after(stage, &first, other).await
}

async fn after(
    stage: &Stage<'_>,
    first: &Answer,
    other: &Attempt,
) -> Result<Result<Answer, Verdict>, Trouble> {
    if let Some(reason) = unready(first) {
        return Ok(Err(skip(reason)));
    }
    let mark = stage.mark().await?;
    let second = stage.send(other).await?;
    let landed = stage.landed(mark, &[]).await?;
    Ok(match (second.is_refusal(), landed.times()) {
        (_, Some(1..)) => Err(fail(format!("the other request was done: {}", second.shown()))),
        (true, _) => Ok(second),
        (false, _) if second.is_like(first) || second.is_marked() => {
            Err(fail(format!("it got the answer of the first: {}", second.shown())))
        }
        (false, _) if second.is_success() => {
            Err(fail(format!("the other request was done: {}", second.shown())))
        }
        _ => Err(fail(format!("it was not refused: {}", second.shown()))),
    })
}

pub(super) async fn respelled(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.fresh();
    let respelled = attempt.clone().respelled().filter(|_| stage.operation.is_json());
    let Some(respelled) = respelled else {
        return Ok(vec![("json-order", skip("the data is not a JSON object"))]);
    };
    let verdict = same(stage, &attempt, &respelled).await?;
    Ok(vec![("json-order", verdict)])
}

pub(super) async fn chunked(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.fresh();
    if attempt.body.is_none() {
        return Ok(vec![("chunked", skip("the operation has no data"))]);
    }
    let verdict = same(stage, &attempt, &attempt.clone().in_chunks()).await?;
    Ok(vec![("chunked", verdict)])
}

/// Whether the second is taken for a retry of the first.
pub(super) async fn same(
    stage: &Stage<'_>,
    attempt: &Attempt,
    second: &Attempt,
) -> Result<Verdict, Trouble> {
    let mark = stage.mark().await?;
    let first = stage.send(attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(skip(reason));
    }
    let again = stage.send(second).await?;
    let landed = stage.landed(mark, &[&first, &again]).await?;
    if let Some(verdict) = stage.doubled(landed) {
        return Ok(verdict);
    }
    Ok(match again.status.as_u16() {
        _ if again.is_success() => pass("it is taken for a retry"),
        411 => pass("it asks for a length, and does nothing: 411"),
        _ => fail(format!("it was answered {}", again.shown())),
    })
}

pub(super) async fn failing(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.bad();
    let first = stage.send(&attempt).await?;
    let verdict = if first.is_success() {
        skip("no request is known that fails; give --bad-data")
    } else {
        let again = stage.send(&attempt).await?;
        match again.is_success() {
            true => fail(format!("{} became {}", first.shown(), again.shown())),
            false => pass(format!("{}, then {}", first.status.as_u16(), again.status.as_u16())),
        }
    };
    Ok(vec![("error-status", verdict)])
}

pub(super) async fn contract(stage: &Stage<'_>) -> Result<Verdicts, Trouble> {
    let attempt = stage.operation.fresh();
    let first = stage.send(&attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(all(&["problem-json"], &skip(reason)));
    }
    let mismatch = stage.send(&stage.operation.other(&attempt)).await?;
    let invalid = stage.send(&stage.operation.fresh().key("")).await?;
    let refusals: Vec<Answer> =
        [mismatch, invalid].into_iter().filter(Answer::is_refusal).collect();
    let verdict = match refusals.iter().find(|refusal| !refusal.is_problem()) {
        _ if refusals.is_empty() => skip("nothing was refused"),
        None => pass("they are"),
        Some(plain) => fail(format!("a refusal is none: {}", plain.shown())),
    };
    Ok(vec![("problem-json", verdict)])
}
