//! What is at stake with a request, and what an attempt has shown: the words of the core for it.

use std::time::Duration;

use http::{HeaderName, Response};
use hyper::body::Incoming;
use onceward::{
    Effect,
    protocol::{Meaning, Policy, Reply},
    retry::{Answer, Class, Method, Observation, Rules},
    server::Claim,
};
use tokio::time::Instant;

use super::{Lane, SendFailure};
use crate::{
    observe::metrics::UpstreamFailure,
    proxy::{
        headers::{self, Outcome},
        hints::RequestHints,
    },
};

pub(crate) enum RetrySafety {
    /// Its method says.
    Unkeyed(Method),
    /// It runs under a claim, and the route says what its answers mean.
    Keyed { claim: Claim, policy: Policy, is_repeatable: bool, is_rerun: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Classified {
    pub(crate) observation: Observation,
    /// It is what counts, though it is a failure.
    pub(crate) is_last: bool,
}

impl Classified {
    /// Whether another attempt could not give a better answer.
    pub(crate) fn is_good(&self) -> bool {
        !self.observation.class.is_failure()
    }
}

impl From<Class> for Classified {
    fn from(class: Class) -> Self {
        Self { observation: class.into(), is_last: false }
    }
}

impl RetrySafety {
    /// Under a claim, for a call that takes at most so long.
    pub(crate) fn keyed(claim: &Claim, policy: &Policy, timeout: Duration) -> Self {
        let is_repeatable = match claim.effect() {
            Effect::External | Effect::Transactional => false,
            // Also its last attempt must come while the service remembers the key.
            Effect::Repeatable { within } => {
                let age = claim.claimed_at().since(claim.started_at());
                age.saturating_add(timeout) <= within
            }
        };
        let is_rerun = claim.is_repeat();
        Self::Keyed { claim: claim.clone(), policy: policy.clone(), is_repeatable, is_rerun }
    }

    /// How long something may still be begun under the claim, if there is one; zero also when it was
    /// lost. Rule 15: asked before every attempt.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        match self {
            Self::Unkeyed(_) => None,
            Self::Keyed { claim, .. } => Some(claim.time_left()),
        }
    }

    /// Whether nothing is changed by it, so that it may be cut off.
    pub(crate) fn is_safe(&self) -> bool {
        matches!(self, Self::Unkeyed(Method::Safe))
    }

    /// With a key the method promises nothing: a second PUT may undo what came between.
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Unkeyed(method) => *method,
            Self::Keyed { .. } => Method::Other,
        }
    }

    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Unkeyed(_) => Lane::Other,
            Self::Keyed { claim, .. } => {
                Lane::Keyed { deadline: claim.deadline(), listens: self.listens() }
            }
        }
    }

    /// Whether an answer that comes late is worth listening for: without it the outcome stays unknown.
    pub(crate) fn listens(&self) -> bool {
        let Self::Keyed { claim, policy, .. } = self else { return false };
        claim.effect() == Effect::External && policy.meaning(Reply::Incomplete) == Meaning::Unknown
    }

    /// Whether the upstream knows a repeat by its key.
    pub(crate) fn is_repeatable(&self) -> bool {
        matches!(self, Self::Keyed { is_repeatable: true, .. })
    }

    /// Whether it has been tried before, as the client or the record counts.
    pub(crate) fn is_retry(&self, hints: &RequestHints) -> bool {
        hints.is_retry() || matches!(self, Self::Keyed { is_rerun: true, .. })
    }

    /// How long the gateway waits for one attempt. It cuts off no write because the client is in a hurry:
    /// the outcome would be unknown though the answer would be there in a moment.
    pub(crate) fn patience(&self, of_attempt: Duration, one: Duration, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        match self {
            Self::Unkeyed(Method::Safe) => of_attempt.min(left),
            Self::Keyed { is_repeatable: true, .. } | Self::Unkeyed(Method::Idempotent) => {
                one.min(left)
            }
            Self::Keyed { .. } | Self::Unkeyed(Method::Other) => left,
        }
    }

    /// `may_wait`: an earlier attempt may be running still, and there is one left to ask for its answer.
    pub(crate) fn classify(
        &self,
        result: &Result<Response<Incoming>, SendFailure>,
        rules: &Rules,
        may_wait: bool,
    ) -> Classified {
        match result {
            Ok(response) => self.classify_answer(response, rules, may_wait),
            // It is the request that cannot be sent, and its client that broke off.
            Err(
                SendFailure::NotSent(UpstreamFailure::Malformed, _) | SendFailure::BrokenOff(_),
            ) => Class::Final.into(),
            Err(SendFailure::NotSent(..)) => Class::NeverSent { reused: false }.into(),
            Err(SendFailure::MaybeSent(_) | SendFailure::TimedOut(_)) => Class::Ambiguous.into(),
        }
    }

    fn classify_answer(
        &self,
        response: &Response<Incoming>,
        rules: &Rules,
        may_wait: bool,
    ) -> Classified {
        let (status, headers) = (response.status().as_u16(), response.headers());
        let hint = onceward::client::hint(headers);
        let has = |name: &'static str| headers.contains_key(HeaderName::from_static(name));
        let bound = has("idempotent-replayed") || has("idempotency-expires");
        let answer = Answer { hinted: hint.is_some(), bound, ..Answer::of(status) };
        let (observation, is_named) =
            (rules.observation(&answer, hint), rules.names_retry_status(status));
        let class = match observation.class {
            // Too many requests, say: that is between the upstream and one client. A lock is not.
            class if class.is_failure() && status < 500 && status != 423 && !is_named => {
                Class::Final
            }
            // Otherwise no attempt of ours keeps the upstream busy, and the client gets the answer.
            Class::InProgress
                if !may_wait || !self.is_repeatable() || headers::outcome(headers).is_some() =>
            {
                Class::Conflict
            }
            class => class,
        };
        let observation = Observation { class, ..observation };
        match self {
            Self::Keyed { policy, claim, .. } if class.is_failure() => {
                let said = headers::outcome(headers);
                let by_policy = policy.meaning(Reply::Complete(status));
                let classified = classify_failure(observation, said, by_policy, claim.effect());
                // A status that the route names is stored only when no attempt is left.
                Classified {
                    is_last: classified.is_last && (said.is_some() || !is_named),
                    ..classified
                }
            }
            _ => Classified { observation, is_last: false },
        }
    }
}

/// A server error under a claim: what its route makes of it decides whether it is the end.
fn classify_failure(
    observation: Observation,
    said: Option<Outcome>,
    by_policy: Meaning,
    effect: Effect,
) -> Classified {
    let nothing_was_done = Observation { class: Class::NeverSent { reused: false }, ..observation };
    let once_more = Classified { observation, is_last: false };
    match said {
        // The commit says more than any answer.
        _ if effect == Effect::Transactional => once_more,
        Some(Outcome::Retryable) => Classified { observation: nothing_was_done, is_last: false },
        Some(Outcome::Final | Outcome::Unknown) => Classified { observation, is_last: true },
        Some(Outcome::NoStore) | None => match by_policy {
            Meaning::Released => Classified { observation: nothing_was_done, is_last: false },
            Meaning::Succeeded | Meaning::FailedFinal => Classified { observation, is_last: true },
            Meaning::FailedRetryable | Meaning::Unknown => once_more,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_error_under_a_claim_means_decides_whether_it_is_the_end() {
        let observation = Observation::from(Class::ServerFault);
        let never_sent = Class::NeverSent { reused: false };
        let (external, repeatable) =
            (Effect::External, Effect::Repeatable { within: Duration::from_secs(60) });
        for (said, by_policy, effect, class, is_last) in [
            (None, Meaning::FailedFinal, external, Class::ServerFault, true),
            (None, Meaning::Unknown, external, Class::ServerFault, false),
            (None, Meaning::Released, external, never_sent, false),
            (Some(Outcome::Retryable), Meaning::Unknown, external, never_sent, false),
            (Some(Outcome::Unknown), Meaning::Released, external, Class::ServerFault, true),
            (None, Meaning::FailedRetryable, repeatable, Class::ServerFault, false),
            (None, Meaning::FailedFinal, repeatable, Class::ServerFault, true),
            (
                Some(Outcome::Retryable),
                Meaning::FailedRetryable,
                Effect::Transactional,
                Class::ServerFault,
                false,
            ),
        ] {
            let classified = classify_failure(observation, said, by_policy, effect);
            assert_eq!(
                (classified.observation.class, classified.is_last),
                (class, is_last),
                "{said:?} {by_policy:?}"
            );
        }
    }
}
