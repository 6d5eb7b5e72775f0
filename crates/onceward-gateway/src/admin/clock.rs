//! What is suspected of the store's clock, and an operator's word about it.

use onceward::{clock::Suspicion, store::NoteKind};
use serde_json::{Value, json};

use super::{
    access::Operator,
    refusal::Refusal,
    repair::{Repair, bounded, count},
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
        let (kind, reason) = (NoteKind::TrustClock, &word.reason.0);
        let operation = self.write_down(NAME, "clock", kind, operator, reason).await?;
        let suspected = bounded(self.records.trust_clock()).await?;
        count(OperatorChange::TrustClock, operation, operator);
        Ok(json!({
            "suspect": false,
            "was_ahead_seconds": ahead(suspected),
            "operation": operation.to_string(),
        }))
    }
}

fn ahead(suspicion: Option<Suspicion>) -> u64 {
    suspicion.map_or(0, |suspicion| suspicion.ahead.as_secs())
}
