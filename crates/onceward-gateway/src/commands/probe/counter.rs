//! How often it landed: by the API's own count, or by what the answers say.

use http::Uri;

use super::{
    BoxError,
    answer::Answer,
    chain,
    operation::Operation,
    wire::{Unasked, Wire},
};

#[derive(Clone, Debug)]
pub(super) struct CountAt {
    pub(super) url: Uri,
    /// A JSON pointer to a number, or to a list whose length counts.
    pub(super) pointer: String,
}

/// How the probe knows that there was another effect.
#[derive(Clone, Debug)]
pub(super) enum Counter {
    Api(CountAt),
    /// Two pieces of work have different answers, so answers that are alike are one.
    Answers,
    Blind,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    Exactly(u64),
    Seen(u64),
    Unclear,
}

impl Landed {
    pub(super) fn times(self) -> Option<u64> {
        match self {
            Self::Exactly(times) | Self::Seen(times) => Some(times),
            Self::Unclear => None,
        }
    }
}

impl Counter {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Api(at) => format!("effects counted at {}", at.url),
            Self::Answers => {
                "effects counted by different answers; --count-url is surer".to_owned()
            }
            Self::Blind => {
                "effects cannot be counted: all answers are alike, and there is no --count-url"
                    .into()
            }
        }
    }

    pub(super) async fn mark(&self, wire: &Wire, operation: &Operation) -> Result<Mark, BoxError> {
        Ok(Mark(match self {
            Self::Api(at) => count(wire, operation, at).await?,
            Self::Answers | Self::Blind => 0,
        }))
    }

    pub(super) async fn landed(
        &self,
        wire: &Wire,
        operation: &Operation,
        mark: Mark,
        answers: &[&Answer],
    ) -> Result<Landed, BoxError> {
        match self {
            Self::Api(at) => {
                let now = count(wire, operation, at).await?;
                Ok(Landed::Exactly(now.saturating_sub(mark.0)))
            }
            Self::Answers => Ok(Landed::Seen(distinct(answers))),
            Self::Blind => Ok(Landed::Unclear),
        }
    }
}

/// How many successes speak of different work. A marked replay says itself that it did nothing.
fn distinct(answers: &[&Answer]) -> u64 {
    let successes = answers.iter().copied().filter(|answer| answer.is_success());
    let (marked, plain): (Vec<&Answer>, Vec<&Answer>) =
        successes.partition(|answer| answer.is_marked());
    let mut different: Vec<&Answer> = Vec::new();
    // Where all are marked, the marks say nothing.
    for answer in if plain.is_empty() { marked } else { plain } {
        if !different.iter().any(|known| known.is_like(answer)) {
            different.push(answer);
        }
    }
    different.len() as u64
}

async fn count(wire: &Wire, operation: &Operation, at: &CountAt) -> Result<u64, BoxError> {
    let answer = wire.ask(&operation.question(&at.url)).await;
    let answer =
        answer.map_err(|trouble| Unasked(format!("the count URL failed: {}", chain(&*trouble))))?;
    if wire.is_dry() {
        return Ok(0);
    }
    if !answer.is_success() {
        return Err(Unasked(format!("the count URL answered {}", answer.shown())).into());
    }
    let document: serde_json::Value = serde_json::from_slice(&answer.body)
        .map_err(|error| Unasked(format!("the count URL did not answer with JSON: {error}")))?;
    let found = document.pointer(&at.pointer);
    let number = found.and_then(|found| {
        let length = found.as_array().map(|list| list.len() as u64);
        found.as_u64().or(length)
    });
    number.ok_or_else(|| {
        let (pointer, shown) = (&at.pointer, answer.shown());
        Unasked(format!("`{pointer}` in the count is neither a number nor a list: {shown}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use std::time::Duration;

    fn answer(status: u16, body: &'static str, marked: bool) -> Answer {
        let mut headers = HeaderMap::new();
        if marked {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers, body: body.into(), took: Duration::ZERO }
    }

    #[test]
    fn successes_that_differ_are_different_work() {
        let [one, again, two] = [("a", false), ("a", true), ("b", false)]
            .map(|(body, marked)| answer(201, body, marked));
        let refused = answer(409, "c", false);
        assert_eq!(distinct(&[&one, &again, &refused]), 1);
        assert_eq!(distinct(&[&one, &two]), 2);
        assert_eq!(distinct(&[&refused]), 0);
    }

    #[test]
    fn a_replay_that_was_spoilt_is_no_second_effect() {
        let (one, spoilt) = (answer(201, "a", false), answer(201, "b", true));
        assert_eq!((distinct(&[&one, &spoilt]), distinct(&[&spoilt, &one])), (1, 1));
    }

    #[test]
    fn marks_that_all_answers_have_say_nothing() {
        let (one, two) = (answer(201, "a", true), answer(201, "b", true));
        assert_eq!(distinct(&[&one, &two]), 2);
    }

    #[test]
    fn another_status_is_no_other_work() {
        let (one, again) = (answer(201, "a", false), answer(200, "a", false));
        assert_eq!(distinct(&[&one, &again]), 1);
    }
}
