//! The same request again, after the first answer.

use http::HeaderName;

use super::{BoxError, Stage, UNCLEAR, Verdict, Verdicts, all, fail, pass, skip, unready};
use crate::commands::probe::{answer::Answer, counter::Landed};

pub(super) const IDS: &[&str] = &[
    "once",
    "replay-status",
    "replay-body",
    "replay-headers",
    "fidelity-headers",
    "fidelity-binary",
    "marker",
    "marker-first",
    "expiry",
];

pub(super) async fn retry(stage: &Stage<'_>) -> Result<Verdicts, BoxError> {
    let attempt = stage.operation.fresh();
    let mark = stage.mark().await?;
    let first = stage.send(&attempt).await?;
    if let Some(reason) = unready(&first) {
        return Ok(all(IDS, &skip(reason)));
    }
    let again = stage.send(&attempt).await?;
    let landed = stage.landed(mark, &[&first, &again]).await?;
    let once = stage.doubled(landed).unwrap_or_else(|| pass("it landed once"));
    let is_done_again = matches!(once, Verdict::Fail(_));
    let mut verdicts = vec![("once", once)];
    // What is not a replay cannot be a bad one.
    let replayed = |check: fn(&Answer, &Answer) -> Verdict| match is_done_again {
        true => skip("the retry was done again"),
        false => check(&first, &again),
    };
    // Where all answers are alike, two that are do not show that the second is a replay.
    let compared = |check| match replayed(check) {
        Verdict::Pass(_) if landed == Landed::Unclear => skip(UNCLEAR),
        verdict => verdict,
    };
    verdicts.push(("replay-status", compared(status)));
    verdicts.push(("replay-body", compared(body)));
    verdicts.push(("replay-headers", compared(headers)));
    verdicts.push(("fidelity-headers", compared(repeated)));
    verdicts.push(("fidelity-binary", compared(binary)));
    verdicts.push(("marker", replayed(marker)));
    verdicts.push(("marker-first", marker_first(&first)));
    verdicts.push(("expiry", replayed(expiry)));
    Ok(verdicts)
}

fn status(first: &Answer, again: &Answer) -> Verdict {
    let [first, again] = [first.status.as_u16(), again.status.as_u16()];
    match first == again {
        true => pass(format!("{first} both times")),
        false => fail(format!("{first} became {again}")),
    }
}

fn body(first: &Answer, again: &Answer) -> Verdict {
    match first.body == again.body {
        true => pass(format!("the same {} bytes", first.body.len())),
        false => fail(format!("{} became {}", first.shown(), again.shown())),
    }
}

fn headers(first: &Answer, again: &Answer) -> Verdict {
    let repeated = first.repeated();
    let lost = first.lost_in(again);
    let lost: Vec<&str> =
        lost.iter().filter(|name| !repeated.contains(name)).map(HeaderName::as_str).collect();
    match lost[..] {
        [] => pass("nothing is lost or changed"),
        _ => fail(format!("lost or changed: {}", lost.join(", "))),
    }
}

fn repeated(first: &Answer, again: &Answer) -> Verdict {
    let repeated = first.repeated();
    let lost = first.lost_in(again);
    let lost: Vec<&str> =
        lost.iter().filter(|name| repeated.contains(name)).map(HeaderName::as_str).collect();
    match (&repeated[..], &lost[..]) {
        ([], _) => skip("no header of the answer comes several times"),
        (_, []) => pass("they are as they were"),
        _ => fail(format!("lost or changed: {}", lost.join(", "))),
    }
}

fn binary(first: &Answer, again: &Answer) -> Verdict {
    if std::str::from_utf8(&first.body).is_ok() {
        return skip("the answer is text");
    }
    let same = first.body.iter().zip(&again.body).take_while(|(one, other)| one == other).count();
    match first.body == again.body {
        true => pass(format!("the same {} bytes", first.body.len())),
        false => fail(format!(
            "{} bytes became {}, different from byte {same} on",
            first.body.len(),
            again.body.len()
        )),
    }
}

fn marker(_: &Answer, again: &Answer) -> Verdict {
    match again.header("idempotent-replayed") {
        Some("true") => pass("Idempotent-Replayed: true"),
        Some(other) => fail(format!("Idempotent-Replayed is `{other}`")),
        None => fail("the replay has no Idempotent-Replayed"),
    }
}

fn marker_first(first: &Answer) -> Verdict {
    match first.is_marked() {
        true => fail("the very first answer says that it is a replay"),
        false => pass("the first answer does not"),
    }
}

fn expiry(first: &Answer, again: &Answer) -> Verdict {
    let expires = |answer: &Answer| answer.header("idempotency-expires").map(str::to_owned);
    match (expires(first), expires(again)) {
        (Some(first), Some(again)) if first == again => pass(format!("until {first}")),
        (Some(first), Some(again)) => fail(format!("`{first}` became `{again}`")),
        (None, None) => fail("no answer has Idempotency-Expires"),
        _ => fail("only one of the two answers has Idempotency-Expires"),
    }
}
