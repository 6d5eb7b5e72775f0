//! Who changed a record in an exceptional way: a list of entries for each operation, the latest ones.

use onceward_core::{
    Digest, Execution, Note, NoteKind, StoreError, StoreFuture, Timestamp, Trail, TrailEntry,
};
use redis::Value;
use serde::{Deserialize, Serialize};

use super::{RedisStore, keys::partition, link::Question, rows, servers::Line};

/// How an entry is written; the script puts its time before it, 8 bytes, big-endian.
#[derive(Serialize, Deserialize)]
struct Written {
    kind: String,
    execution: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// An entry without its time.
pub(super) fn note(note: &Note) -> Result<Vec<u8>, StoreError> {
    let written = Written {
        kind: note.kind.as_str().to_owned(),
        execution: note.execution.to_string(),
        actor: note.actor.clone(),
        reason: note.reason.clone(),
    };
    serde_json::to_vec(&written).map_err(|error| StoreError::Refused(error.to_string()))
}

fn entry(value: Value) -> Result<TrailEntry, StoreError> {
    let damaged = || StoreError::Unusable("an entry of the trail cannot be read".to_owned());
    let bytes = rows::bytes(value)?.ok_or_else(damaged)?;
    let (at, written) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    let at = i64::try_from(u64::from_be_bytes(*at)).map_err(|_| damaged())?;
    let written: Written = serde_json::from_slice(written).map_err(|_| damaged())?;
    let kind = NoteKind::ALL.into_iter().find(|known| known.as_str() == written.kind);
    let kind = kind.ok_or_else(|| {
        StoreError::Newer(format!(
            "the trail has an entry of kind {:?}; finish the upgrade of this process",
            written.kind
        ))
    })?;
    let execution = uuid::Uuid::parse_str(&written.execution).map_err(|_| damaged())?;
    let execution = Execution::from_bytes(execution.into_bytes());
    let Written { actor, reason, .. } = written;
    Ok(TrailEntry {
        at: Timestamp::from_unix_micros(at),
        note: Note { kind, execution, actor, reason },
    })
}

impl Trail for RedisStore {
    fn trail<'a>(&'a self, id: &'a Digest) -> StoreFuture<'a, Vec<TrailEntry>> {
        Box::pin(async move {
            let mut command = redis::cmd("LRANGE");
            command.arg(self.keys().trail(id)).arg(0).arg(-1);
            let servers = &self.inner.servers;
            let asked = servers.ask(partition(id), Line::Operators, Question::One(&command)).await;
            let entries = rows::several(asked?.pop().unwrap_or_default())?;
            entries.into_iter().map(entry).collect()
        })
    }
}
