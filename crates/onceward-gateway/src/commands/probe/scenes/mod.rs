//! What is sent, in which order, and what the answers mean.
//!
//! A scene sends some requests and answers the checks that they tell about.

mod callers;
mod duplicates;
mod keys;
mod requests;
mod retry;

use std::{future::Future, pin::Pin, time::Duration};

use serde::Serialize;

use super::{
    BoxError,
    answer::Answer,
    counter::{Counter, Landed, Mark},
    operation::{Attempt, Operation},
    wire::Wire,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "detail", rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass(String),
    Fail(String),
    Skip(String),
}

impl Verdict {
    pub(super) fn with_text(&self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Pass(text) => Self::Pass(change(text)),
            Self::Fail(text) => Self::Fail(change(text)),
            Self::Skip(text) => Self::Skip(change(text)),
        }
    }
}

pub(super) fn pass(text: impl Into<String>) -> Verdict {
    Verdict::Pass(text.into())
}

pub(super) fn fail(text: impl Into<String>) -> Verdict {
    Verdict::Fail(text.into())
}

pub(super) fn skip(text: impl Into<String>) -> Verdict {
    Verdict::Skip(text.into())
}

const UNCLEAR: &str =
    "the answers are alike, whatever the API does, so they prove nothing; give --count-url";
const ALIKE: &str = "the answers are alike, so they prove nothing; give --count-url";

pub(super) struct Stage<'a> {
    pub(super) operation: &'a Operation,
    pub(super) wire: &'a Wire,
    pub(super) counter: Counter,
    pub(super) duplicates: u32,
    /// How long a key may be busy after its client has left.
    pub(super) patience: Duration,
    pub(super) usual: Duration,
    pub(super) is_accepting: bool,
}

pub(super) type Verdicts = Vec<(&'static str, Verdict)>;
type Playing<'a> = Pin<Box<dyn Future<Output = Result<Verdicts, BoxError>> + Send + 'a>>;

pub(super) struct Scene {
    pub(super) ids: &'static [&'static str],
    pub(super) play: for<'a> fn(&'a Stage<'a>) -> Playing<'a>,
}

pub(super) static SCENES: [Scene; 18] = [
    Scene { ids: retry::IDS, play: |stage| Box::pin(retry::retry(stage)) },
    Scene { ids: duplicates::IDS, play: |stage| Box::pin(duplicates::together(stage)) },
    Scene { ids: &["disconnect"], play: |stage| Box::pin(duplicates::leaving(stage)) },
    Scene { ids: requests::IDS, play: |stage| Box::pin(requests::another(stage)) },
    Scene { ids: &["mismatch-query"], play: |stage| Box::pin(requests::query(stage)) },
    Scene { ids: &["mismatch-tail"], play: |stage| Box::pin(requests::tail(stage)) },
    Scene { ids: &["json-order"], play: |stage| Box::pin(requests::respelled(stage)) },
    Scene { ids: &["chunked"], play: |stage| Box::pin(requests::chunked(stage)) },
    Scene { ids: &["error-status"], play: |stage| Box::pin(requests::failing(stage)) },
    Scene { ids: &["scope", "unauthenticated"], play: |stage| Box::pin(callers::two(stage)) },
    Scene { ids: &["gate"], play: |stage| Box::pin(callers::gate(stage)) },
    Scene { ids: &["key-case"], play: |stage| Box::pin(keys::case(stage)) },
    Scene { ids: &["key-quoted"], play: |stage| Box::pin(keys::quoted(stage)) },
    Scene { ids: &["key-long"], play: |stage| Box::pin(keys::long(stage)) },
    Scene { ids: &["key-empty"], play: |stage| Box::pin(keys::empty(stage)) },
    Scene { ids: &["key-lines"], play: |stage| Box::pin(keys::lines(stage)) },
    Scene { ids: &["key-missing"], play: |stage| Box::pin(keys::missing(stage)) },
    Scene { ids: &["problem-json"], play: |stage| Box::pin(requests::contract(stage)) },
];

impl Stage<'_> {
    async fn send(&self, attempt: &Attempt) -> Result<Answer, BoxError> {
        self.wire.send(attempt).await
    }

    async fn mark(&self) -> Result<Mark, BoxError> {
        self.counter.mark(self.wire, self.operation).await
    }

    async fn landed(&self, mark: Mark, answers: &[&Answer]) -> Result<Landed, BoxError> {
        self.counter.landed(self.wire, self.operation, mark, answers).await
    }

    /// Whether a duplicate gets the answer that the first request is running and where to ask for its end.
    fn is_pending(&self, answer: &Answer) -> bool {
        answer.is_accepted() && !self.is_accepting
    }

    /// What became of two attempts at the same work: `Some` if it is bad.
    fn doubled(&self, landed: Landed) -> Option<Verdict> {
        match landed.times() {
            Some(0 | 1) => None,
            Some(times) => Some(fail(format!("it landed {times} times"))),
            None => Some(skip(UNCLEAR)),
        }
    }
}

/// That a first request did not succeed, as a reason not to ask.
fn unready(answer: &Answer) -> Option<String> {
    match answer.is_success() {
        true => None,
        false => Some(format!("a first request was answered {}", answer.shown())),
    }
}

fn all(ids: &[&'static str], verdict: &Verdict) -> Verdicts {
    ids.iter().map(|id| (*id, verdict.clone())).collect()
}
