//! How keys are read.

use super::{ALIKE, BoxError, Stage, Verdict, Verdicts, fail, pass, requests::same, skip};
use crate::commands::probe::{answer::Answer, counter::Landed, operation::Attempt};

/// Over the 255 that a key may have.
const LONG: usize = 300;

pub(super) async fn case(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let start = bare(&stage.operation.fresh());
    let with = |end: &str| {
        let key = stage.operation.spelled(&format!("{start}-{end}"));
        stage.operation.fresh().key(&key)
    };
    let verdict = separate(stage, &with("abc"), &with("ABC")).await?;
    let unready = |answer: Answer| skip(format!("a first request got {}", answer.shown()));
    Ok(vec![("key-case", verdict.unwrap_or_else(unready))])
}

pub(super) async fn quoted(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let key = bare(&attempt);
    let (plain, quoted) = (attempt.clone().key(&key), attempt.key(&format!("\"{key}\"")));
    Ok(vec![("key-quoted", same(stage, &plain, &quoted).await?)])
}

pub(super) async fn long(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let start = bare(&stage.operation.fresh());
    let with = |end: char| {
        let key = stage.operation.spelled(&format!("{start:x<LONG$}{end}"));
        stage.operation.fresh().key(&key)
    };
    let verdict = separate(stage, &with('1'), &with('2')).await?;
    Ok(vec![("key-long", verdict.unwrap_or_else(|answer| refused(&answer)))])
}

pub(super) async fn empty(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let (one, two) = (stage.operation.fresh().key(""), stage.operation.fresh().key(""));
    let verdict = separate(stage, &one, &two).await?;
    Ok(vec![("key-empty", verdict.unwrap_or_else(|answer| refused(&answer)))])
}

pub(super) async fn lines(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let (key, other) = (attempt.keys.concat(), stage.operation.fresh().keys.concat());
    let both = stage.send(&attempt.keys(&[&key, &other])).await?;
    Ok(vec![("key-lines", refused(&both))])
}

pub(super) async fn missing(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let without = stage.send(&stage.operation.fresh().keys(&[])).await?;
    let verdict = match without.status.as_u16() {
        status @ 400..500 => pass(format!("refused with {status}: the key is required")),
        _ if without.is_success() => pass("the request is done, unprotected"),
        _ => fail(format!("it was answered {}", without.shown())),
    };
    Ok(vec![("key-missing", verdict)])
}

fn refused(answer: &Answer) -> Verdict {
    match answer.is_refusal() {
        true => pass(format!("refused with {}", answer.status.as_u16())),
        false => fail(format!("it was answered {}", answer.shown())),
    }
}

async fn separate(
    stage: &Stage<'_>,
    one: &Attempt,
    two: &Attempt,
) -> Result<Result<Verdict, Answer>, BoxError> {
    let mark = stage.mark().await?;
    let first = stage.send(one).await?;
    if !first.is_success() {
        return Ok(Err(first));
    }
    let second = stage.send(two).await?;
    if !second.is_success() {
        let control = stage.send(&stage.operation.fresh()).await?;
        return Ok(Ok(match control.is_success() {
            true => fail(format!("the second key was refused after the first: {}", second.shown())),
            false => skip(format!("another request got {}", control.shown())),
        }));
    }
    let landed = stage.landed(mark, &[&first, &second]).await?;
    Ok(Ok(match landed {
        Landed::Unclear => skip(ALIKE),
        Landed::Exactly(0 | 1) | Landed::Seen(0 | 1) => {
            fail(format!("the second key got the answer of the first: {}", second.shown()))
        }
        _ => pass("each was done for itself"),
    }))
}

fn bare(attempt: &Attempt) -> String {
    attempt.keys.concat().trim_matches('"').to_owned()
}
