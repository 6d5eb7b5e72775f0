//! Changes of no operation, written down in a trail of their own.

use onceward::{
    Digest, Effect, Execution, Fingerprint, Key, OperationId, OperationName, Request, Scope, State,
    StoreError, Terms,
    protocol::{Admission, Fence, Found as Stored},
    store::{Change, Note, NoteKind, Swap},
};
use uuid::Uuid;

use super::{
    access::Operator,
    refusal::Refusal,
    repair::{MAX_TRIES, Repair, bounded, changing},
};

impl Repair {
    /// Writes down what an operator is about to do; returns under which reference its trail can be read.
    pub(super) async fn write_down(
        &self,
        name: &str,
        about: &str,
        kind: NoteKind,
        operator: &Operator,
        reason: &str,
    ) -> Result<Digest, Refusal> {
        let mut change = entry(name, about, kind, operator, reason)?;
        for _ in 0..MAX_TRIES {
            change.expected = match self.read(change.id).await? {
                Stored::Nothing => None,
                Stored::Record(stored) => Some(stored.record.fence),
                Stored::Unreadable { fence, .. } => Some(fence),
            };
            if let Swap::Stored { .. } = bounded(self.records.swap(&change)).await? {
                return Ok(change.id);
            }
        }
        Err(changing())
    }
}

/// A record that binds nothing, so that its trail can be read like that of an operation.
fn entry(
    name: &str,
    about: &str,
    kind: NoteKind,
    operator: &Operator,
    reason: &str,
) -> Result<Change, Refusal> {
    let wrong = |error: &dyn std::error::Error| StoreError::Unusable(error.to_string());
    let name = OperationName::new(name).map_err(|error| wrong(&error))?;
    let key = Key::new(about).map_err(|error| wrong(&error))?;
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
        ..Note::of_protocol(kind, execution)
    });
    Ok(change)
}
