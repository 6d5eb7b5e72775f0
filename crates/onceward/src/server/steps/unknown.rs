//! Asks a resolver what became of an unknown outcome: rule 15 of the contract.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use onceward_core::{
    Digest, Force, OperationId, RepairKind, Resolution, SpoolId, Stored, StoredBody,
};
use tokio::time::{Instant, timeout};

use super::{keep, settle};
use crate::{
    engine::{RepairRequest, fresh_fence},
    server::{Idempotency, Unresolved, options::checked::Options},
    telemetry::{self, Resolved, event},
};

/// How often one operation is asked about, and how long an answer may take.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// How many operations are remembered as asked about; more are not asked about meanwhile.
const MAX_ASKED: usize = 10_000;

/// When operations were last asked about.
#[derive(Default)]
pub(crate) struct LastAsked {
    at: Mutex<HashMap<Digest, Instant>>,
}

impl LastAsked {
    fn may_ask(&self, id: Digest, now: Instant) -> bool {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.len() >= MAX_ASKED {
            at.retain(|_, last| now.saturating_duration_since(*last) < ASK_INTERVAL);
        }
        let recently =
            at.get(&id).is_some_and(|last| now.saturating_duration_since(*last) < ASK_INTERVAL);
        let may_ask = !recently && at.len() < MAX_ASKED;
        if may_ask {
            at.insert(id, now);
        }
        may_ask
    }
}

/// Asks the resolver, if there is one and it is time; whether the record was changed.
pub(crate) async fn resolve(
    (idempotency, route): (&Idempotency, &Options),
    id: Digest,
    operation: Option<&OperationId>,
    stored: &Stored,
) -> bool {
    let Some(resolver) = &route.chosen.resolver else { return false };
    if !idempotency.engine().common().asked.may_ask(id, Instant::now()) {
        return false;
    }
    let unresolved = Unresolved {
        reference: id,
        operation: operation.cloned(),
        scope: stored.record.scope.clone(),
        name: stored.record.operation.clone(),
        execution: stored.record.execution,
        attempt: stored.record.attempts,
        started_at: stored.started_at(),
    };
    let resolution = match timeout(ASK_INTERVAL, resolver(unresolved)).await {
        Ok(Ok(Some(resolution))) => {
            telemetry::RESOLVER_ANSWERS.add(match &resolution {
                Resolution::Applied(_) => Resolved::Applied,
                Resolution::Never => Resolved::Never,
            });
            resolution
        }
        Ok(Ok(None)) => {
            telemetry::RESOLVER_ANSWERS.add(Resolved::Nothing);
            return false;
        }
        Ok(Err(error)) => {
            telemetry::RESOLVER_ANSWERS.add(Resolved::Failed);
            tracing::warn!(event = event::NOT_RESOLVED, %error, operation = %id, "a resolver failed: the outcome stays unknown, and the next request asks again");
            return false;
        }
        Err(_) => {
            telemetry::RESOLVER_ANSWERS.add(Resolved::TimedOut);
            tracing::warn!(event = event::NOT_RESOLVED, operation = %id, "a resolver did not answer within {ASK_INTERVAL:?}: the outcome stays unknown, and the next request asks again");
            return false;
        }
    };
    let (fence, mut held) = (fresh_fence(), idempotency.memory_of(None).nothing());
    let resolution = match resolution {
        Resolution::Applied(outcome) => {
            let mut outcome = keep::found_out(route, outcome);
            if let StoredBody::Inline(bytes) = &outcome.body {
                if !held.grow_to(bytes.len()) {
                    tracing::warn!(event = event::NOT_RESOLVED, operation = %id, "there is no memory for the answer that a resolver found: the outcome stays unknown, and a later request asks again");
                    return false;
                }
                // As other answers: beside the record, if it is too large for that.
                if bytes.len() > route.chosen.max_inline && route.chosen.spool.is_some() {
                    let spooled = SpoolId { operation: id, fence };
                    outcome.body = settle::spool((idempotency, route), spooled, bytes).await;
                }
            }
            telemetry::count_answer(&outcome.body);
            Resolution::Applied(outcome)
        }
        never => never,
    };
    let terms = &route.terms;
    let (actor, reason, force) = (None, Some("resolver"), Force::No);
    let (kind, why) =
        (RepairKind::Resolve(resolution), RepairRequest { terms, actor, reason, force });
    match idempotency.engine().repair(fence, id, stored, kind, why).await {
        // After a conflict, too: another process has changed it, and there is something new to read.
        Ok(_) => true,
        Err(error) => {
            tracing::info!(event = event::NOT_RESOLVED, %error, operation = %id, "an unknown outcome was not resolved");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_is_asked_about_once_in_five_seconds() {
        let (asked, now) = (LastAsked::default(), Instant::now());
        let (one, other) = (Digest([1; 32]), Digest([2; 32]));
        assert!(asked.may_ask(one, now) && asked.may_ask(other, now));
        assert!(!asked.may_ask(one, now + Duration::from_millis(4999)));
        assert!(asked.may_ask(one, now + ASK_INTERVAL));
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let (asked, now) = (LastAsked::default(), Instant::now());
        let id = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Digest(bytes)
        };
        assert!((0..MAX_ASKED).all(|number| asked.may_ask(id(number), now)));
        assert!(!asked.may_ask(id(MAX_ASKED), now));
        assert!(asked.may_ask(id(MAX_ASKED), now + ASK_INTERVAL));
    }
}
