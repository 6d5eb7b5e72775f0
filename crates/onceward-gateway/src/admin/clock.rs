//! What is suspected of the store's clock, and an operator's word about it.

use onceward::{
    Effect, Execution, Fingerprint, Key, OperationId, OperationName, Request, Scope, State,
    StoreError, Terms,
    clock::Suspicion,
    protocol::{Admission, Fence, Found as Stored},
    store::{Change, Note, NoteKind, Swap},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    access::Operator,
    refusal::Refusal,
    repair::{MAX_TRIES, Repair, bounded, changing, count},
    requests::TrustBody,
};
use crate::observe::metrics::OperatorChange;

/// The name of the operation whose trail keeps such words.
const NAME: &str = "onceward.clock";

impl Repair {
    pub(super) async fn clock(&self) -> Result<Value, Refusal> {
        let suspicion = bounded(self.records.clock_suspicion()).await?;
        Ok(json!({ "suspect": suspicion.is_some(), "ahead_seconds": ahead(suspicion) }))
    }

    /// The word is in the trail before it counts.
    pub(super) async fn trust_clock(
        &self,
        operator: &Operator,
        word: &TrustBody,
    ) -> Result<Value, Refusal> {
        let mut change = entry(operator, &word.reason.0)?;
        for _ in 0..MAX_TRIES {
            change.expected = match self.read(change.id).await? {
                Stored::Nothing => None,
                Stored::Record(stored) => Some(stored.record.fence),
                Stored::Unreadable { fence, .. } => Some(fence),
            };
            if let Swap::Stored { .. } = bounded(self.records.swap(&change)).await? {
                let suspected = bounded(self.records.trust_clock()).await?;
                count(OperatorChange::TrustClock, change.id, operator);
                return Ok(json!({
                    "suspect": false,
                    "was_ahead_seconds": ahead(suspected),
                    "operation": change.id.to_string(),
                }));
            }
        }
        Err(changing())
    }
}

fn ahead(suspicion: Option<Suspicion>) -> u64 {
    suspicion.map_or(0, |suspicion| suspicion.ahead.as_secs())
}

/// A record that binds nothing, so that its trail can be read like that of an operation.
fn entry(operator: &Operator, reason: &str) -> Result<Change, Refusal> {
    let wrong = |error: &dyn std::error::Error| StoreError::Unusable(error.to_string());
    let name = OperationName::new(NAME).map_err(|error| wrong(&error))?;
    let key = Key::new("clock").map_err(|error| wrong(&error))?;
    let request = Request {
        operation: OperationId::new(Scope::global(), name, key),
        fingerprints: Fingerprint::from_parts(1, [0; 32]).into(),
        terms: Terms::of(Effect::External).build().map_err(|error| wrong(&error))?,
    };
    let fence = Fence::from_random(Uuid::new_v4().into_bytes());
    let execution = Execution::from_bytes(Uuid::now_v7().into_bytes());
    let mut change = Admission::new(request, fence, execution).change().clone();
    change.next.state = State::Released;
    change.note = Some(Note {
        actor: Some(operator.name.clone()),
        reason: Some(reason.to_owned()),
        ..Note::of_protocol(NoteKind::TrustClock, execution)
    });
    Ok(change)
}
