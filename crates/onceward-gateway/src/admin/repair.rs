//! What operators find and change: the same for the listener and for the command line.

use std::{future::Future, sync::Arc, time::Duration};

use http::StatusCode;
use onceward::{
    Digest, Engine, Execution, OperationId, OperationName, Status, StoreError,
    engine::{RepairFailure, RepairRequest},
    protocol::{
        Fence, Force, Found as Stored, Repair as ProposedRepair, RepairError, RepairKind,
        Unreadable,
    },
    store::{Filter, Listed, Note, NoteKind, Page, Purge, Swap},
    telemetry::event,
};
use serde_json::{Value, json};
use tokio::time::{error::Elapsed, timeout};

use super::{
    access::Operator,
    document,
    refusal::Refusal,
    requests::{BulkResolve, ListQuery, ReasonBody, ResolveBody},
    routes::Routes,
};
use crate::{
    config::Config,
    observe::metrics::{OPERATOR_CHANGES, OperatorChange},
    records::Records,
};

/// How long the store may take for one question of an operator.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the store may take to say that it is there.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a change is tried again because another one came first.
pub(super) const MAX_TRIES: u32 = 3;

/// Where the configuration comes from that is in effect now, if there is one.
pub(crate) type InEffect = Arc<dyn Fn() -> Option<Arc<Config>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Repair {
    engine: Engine,
    pub(super) records: Arc<dyn Records>,
    in_effect: InEffect,
}

impl Repair {
    pub(crate) fn new(engine: Engine, records: Arc<dyn Records>, in_effect: InEffect) -> Self {
        Self { engine, records, in_effect }
    }

    pub(super) fn config(&self) -> Option<Arc<Config>> {
        (self.in_effect)()
    }

    pub(super) async fn list(&self, wanted: &ListQuery) -> Result<Value, Refusal> {
        let page = self.page(&wanted.filter()?).await?;
        let operations: Vec<Value> = page.listed.iter().map(document::line).collect();
        Ok(json!({ "operations": operations, "next": page.next.map(|next| next.0) }))
    }

    async fn page(&self, filter: &Filter) -> Result<Page, Refusal> {
        // All three together name one operation, which needs no search.
        if let Filter { scope: Some(scope), operation: Some(name), key: Some(key), .. } = filter {
            let id = OperationId::new(scope.clone(), name.clone(), key.clone()).digest();
            let found = self.read(id).await?;
            let is_wanted = match &found {
                Stored::Nothing => false,
                Stored::Record(stored) => filter.matches(stored),
                Stored::Unreadable { .. } => filter.status.is_none_or(|it| it == Status::Unknown),
            };
            let listed = is_wanted.then_some(Listed { id, found }).into_iter().collect();
            return Ok(Page { listed, next: None });
        }
        match timeout(STORE_TIMEOUT, self.records.list(filter)).await {
            Ok(Err(StoreError::Unusable(text))) if filter.after.is_some() => {
                Err(Refusal::malformed(format!("`after`: {text}")))
            }
            listed => settled(listed),
        }
    }

    pub(super) async fn show(&self, id: Digest) -> Result<Value, Refusal> {
        let found = self.read(id).await?;
        let trail = bounded(self.records.trail(&id)).await?;
        match (&found, trail.is_empty()) {
            (Stored::Nothing, true) => Err(Refusal::not_found()),
            _ => Ok(document::whole(id, &found, &trail)),
        }
    }

    pub(super) async fn resolve(
        &self,
        id: Digest,
        operator: &Operator,
        found: &ResolveBody,
    ) -> Result<Value, Refusal> {
        let kind = RepairKind::Resolve(found.resolution()?);
        let change = Change { operator, reason: &found.reason.0, force: force(found.force) };
        self.repair(id, &kind, &change, found.execution.as_deref()).await?;
        self.show(id).await
    }

    pub(super) async fn release(
        &self,
        id: Digest,
        operator: &Operator,
        why: &ReasonBody,
    ) -> Result<Value, Refusal> {
        let change = Change { operator, reason: &why.reason.0, force: force(why.force) };
        self.repair(id, &RepairKind::Release, &change, why.execution.as_deref()).await?;
        self.show(id).await
    }

    async fn repair(
        &self,
        id: Digest,
        kind: &RepairKind,
        change: &Change<'_>,
        seen: Option<&str>,
    ) -> Result<(), Refusal> {
        let Change { operator, reason, force } = *change;
        for _ in 0..MAX_TRIES {
            let stored = self.record(id, seen).await?;
            let routes = self.routes(&stored.record.operation);
            let (actor, reason) = (Some(operator.name.as_str()), Some(reason));
            let why = RepairRequest { terms: &routes.terms, actor, reason, force };
            let (counted, repaired) = match routes.repair(&stored.record, kind, force)? {
                RepairKind::Resolve(resolution) => {
                    let resolved = self.engine.resolve(id, &stored, resolution, why).await;
                    (OperatorChange::Resolve, resolved)
                }
                RepairKind::Release => {
                    (OperatorChange::Release, self.engine.release(id, &stored, why).await)
                }
            };
            match repaired {
                Ok(Swap::Stored { .. }) => {
                    count(counted, id, operator);
                    return Ok(());
                }
                Ok(Swap::Conflict(_) | Swap::Held) => {}
                Err(RepairFailure::Store(error)) => return Err(error.into()),
                Err(RepairFailure::Refused(error)) => return Err(refused(error)),
            }
        }
        Err(changing())
    }

    /// One page of unknown outcomes, all with the same end.
    pub(super) async fn resolve_many(
        &self,
        operator: &Operator,
        many: &BulkResolve,
    ) -> Result<Value, Refusal> {
        let found = many.found();
        let kind = RepairKind::Resolve(found.resolution()?);
        let filter = Filter { status: Some(Status::Unknown), ..many.filter.filter()? };
        if many.filter.state.as_deref().is_some_and(|state| state != Status::Unknown.as_str()) {
            return Err(Refusal::malformed("only what is `unknown` is resolved in bulk"));
        }
        let page = self.page(&filter).await?;
        let (mut resolved, mut left) = (Vec::new(), Vec::new());
        for Listed { id, found } in page.listed {
            let done = match many.dry_run {
                true => self.would_repair(id, &found, &kind),
                false => {
                    let change = Change { operator, reason: &many.reason.0, force: Force::No };
                    self.repair(id, &kind, &change, None).await
                }
            };
            match done {
                Ok(()) => resolved.push(id.to_string()),
                Err(Refusal { code, detail, .. }) => {
                    left.push(
                        json!({ "operation": id.to_string(), "code": code, "detail": detail }),
                    );
                }
            }
        }
        Ok(json!({
            "dry_run": many.dry_run,
            "resolved": resolved,
            "left": left,
            "next": page.next.map(|next| next.0),
        }))
    }

    fn would_repair(&self, id: Digest, found: &Stored, kind: &RepairKind) -> Result<(), Refusal> {
        let Stored::Record(stored) = found else { return Err(unresolvable(found)) };
        let routes = self.routes(&stored.record.operation);
        let repair = ProposedRepair {
            id,
            kind: routes.repair(&stored.record, kind, Force::No)?,
            terms: &routes.terms,
            fence: stored.record.fence,
            execution: stored.record.execution,
            actor: None,
            reason: None,
            force: Force::No,
        };
        repair.of(stored).map(drop).map_err(refused)
    }

    /// Deletes what has ended, or what cannot be read if that is forced.
    pub(super) async fn purge(
        &self,
        id: Digest,
        operator: &Operator,
        why: &ReasonBody,
    ) -> Result<Value, Refusal> {
        for _ in 0..MAX_TRIES {
            let (fence, execution) = match self.read(id).await? {
                Stored::Record(stored) => (stored.record.fence, stored.record.execution),
                Stored::Unreadable { fence, why: Unreadable::Damaged } if why.force => {
                    (fence, Execution::from_bytes([0; 16]))
                }
                other => return Err(unresolvable(&other)),
            };
            let note = Note {
                actor: Some(operator.name.clone()),
                reason: Some(why.reason.0.clone()),
                ..Note::of_protocol(NoteKind::Purge, execution)
            };
            match bounded(self.records.purge(&id, fence, &note)).await? {
                Purge::Purged => {
                    count(OperatorChange::Purge, id, operator);
                    return self.show(id).await;
                }
                Purge::Conflict(_) => {}
                Purge::Open => {
                    let text = "it has not ended, and a deleted key would run again: resolve or \
                                release it first; nothing was changed";
                    return Err(Refusal::conflict("open", text));
                }
                Purge::Recent => {
                    let text = "it was changed less than a minute ago, and a claim may still be on \
                                its way: try again in a minute; nothing was changed";
                    let pause = Duration::from_secs(60);
                    return Err(Refusal::conflict("recent", text).retry_after(pause));
                }
            }
        }
        Err(changing())
    }

    /// Whether the store reads and takes changes: the gateway asks it to delete a record that cannot exist.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let (nothing, no_execution) = (Digest([0; 32]), Execution::from_bytes([0; 16]));
        let (fence, note) =
            (Fence::from_random([0; 16]), Note::of_protocol(NoteKind::Purge, no_execution));
        let asked = async {
            self.records.get(&nothing).await?;
            self.records.purge(&nothing, fence, &note).await
        };
        let asked = timeout(PING_TIMEOUT, asked).await;
        let late = |_| Err(StoreError::Unavailable(format!("no answer within {PING_TIMEOUT:?}")));
        asked.unwrap_or_else(late)?;
        self.records.check_room()
    }

    pub(super) async fn read(&self, id: Digest) -> Result<Stored, Refusal> {
        bounded(self.records.get(&id)).await
    }

    /// The record, if it is still of the execution that the operator saw.
    async fn record(
        &self,
        id: Digest,
        seen: Option<&str>,
    ) -> Result<Box<onceward::protocol::Stored>, Refusal> {
        let stored = match self.read(id).await? {
            Stored::Record(stored) => stored,
            other => return Err(unresolvable(&other)),
        };
        let is_same = |seen: &str| seen == format!("{id}.{}", stored.record.execution);
        match seen.is_none_or(is_same) {
            true => Ok(stored),
            false => {
                let text = "another execution has it by now: look at it again; nothing was changed";
                Err(Refusal::conflict("changed", text))
            }
        }
    }

    fn routes(&self, name: &OperationName) -> Routes {
        Routes::of(self.config(), name)
    }
}

/// By whom and why something is changed.
#[derive(Clone, Copy)]
struct Change<'a> {
    operator: &'a Operator,
    reason: &'a str,
    force: Force,
}

pub(super) async fn bounded<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Refusal> {
    settled(timeout(STORE_TIMEOUT, call).await)
}

fn settled<T>(answer: Result<Result<T, StoreError>, Elapsed>) -> Result<T, Refusal> {
    let late = |_| Err(StoreError::Unavailable(format!("no answer within {STORE_TIMEOUT:?}")));
    answer.unwrap_or_else(late).map_err(Refusal::from)
}

/// The trail has the reason; the log shows that an operator was here.
pub(super) fn count(change: OperatorChange, id: Digest, operator: &Operator) {
    OPERATOR_CHANGES.add(change);
    let (action, name) = (change.as_str(), operator.name.as_str());
    tracing::warn!(event = event::OPERATOR_CHANGE, action, operation = %id, operator = name, "a change");
}

fn force(is_forced: bool) -> Force {
    match is_forced {
        true => Force::Yes,
        false => Force::No,
    }
}

fn refused(error: RepairError) -> Refusal {
    match error {
        RepairError::NotUnknown(_) => Refusal::conflict("not-unknown", error.to_string()),
        RepairError::ClockSuspect => Refusal::conflict("clock-suspect", error.to_string()),
        RepairError::TooEarly { left } => {
            Refusal::conflict("too-early", error.to_string()).retry_after(left)
        }
        _ => Refusal::conflict("not-releasable", error.to_string()),
    }
}

/// Why there is no record to change.
fn unresolvable(found: &Stored) -> Refusal {
    match found {
        Stored::Unreadable { why: Unreadable::Sealed, .. } => {
            let text = "its answer was sealed with a key that this process does not have, or it was \
                        tampered with: nothing is lost while the key exists; give this process all keys \
                        of [encryption] (`--config`, not `--store`); nothing was changed";
            Refusal::conflict("sealed", text)
        }
        Stored::Unreadable { .. } => {
            let text = "its record cannot be read, so that it cannot be ended with an answer: find \
                        out by business data what became of it; only `purge` with `force` frees the \
                        key, and then it may run again; nothing was changed";
            Refusal::conflict("unreadable", text)
        }
        _ => Refusal::not_found(),
    }
}

pub(super) fn changing() -> Refusal {
    let text =
        "other changes came first each time, and nothing was changed by this one; look at it again";
    Refusal::new(StatusCode::CONFLICT, "changed", text).retry_after(Duration::from_secs(1))
}
