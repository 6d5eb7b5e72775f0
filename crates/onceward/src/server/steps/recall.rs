//! A stored answer on its way back to memory: read once, also for ten thousand waiters.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use onceward_core::{Digest, Replay, Spool, SpoolId, StoredBody, Timestamp};
use sha2::{Digest as _, Sha256};

use super::keep;
use crate::{
    Engine,
    server::{
        Code, Idempotency, Problem, Resource,
        body::Trailers,
        headers,
        memory::{self, PeerMemory},
    },
    telemetry::{self, Call, event},
};

/// The length of the pieces in which large answers are kept.
pub(crate) const CHUNK: usize = 256 << 10;

pub(crate) struct Recalled {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RecalledBody,
    pub(crate) completed_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    /// Something was hidden in it before it was stored.
    pub(crate) is_redacted: bool,
    /// The memory for an answer that a hook rebuilds.
    pub(crate) memory: PeerMemory,
}

pub(crate) enum RecalledBody {
    Bytes { bytes: Bytes, trailers: Trailers },
    Resource(Resource),
    Unavailable,
}

pub(crate) async fn recall(
    idempotency: &Idempotency,
    id: Digest,
    replay: Replay,
    memory: PeerMemory,
) -> Result<Recalled, Problem> {
    let Replay { mut outcome, fence, completed_at, expires_at } = replay;
    keep::read_back(idempotency.options(), &mut outcome);
    let is_redacted = keep::is_redacted(&outcome.headers);
    let mut headers = headers::restore(&outcome.headers);
    idempotency.options().kept.strip(&mut headers);
    let has_trailers = !outcome.trailers.is_empty();
    let trailers = has_trailers.then(|| headers::restore(&outcome.trailers).into());
    let status = StatusCode::from_u16(outcome.status);
    let body = match (&status, outcome.body) {
        (Err(_), _) => RecalledBody::Unavailable,
        (_, StoredBody::Inline(bytes)) => {
            let bytes = memory.hold(bytes.into()).ok_or_else(memory::full)?;
            RecalledBody::Bytes { bytes, trailers }
        }
        (_, StoredBody::Spooled { length, digest }) => {
            let id = SpoolId { operation: id, fence };
            match unspool(idempotency, (id, length, digest), &memory).await? {
                Some(bytes) => RecalledBody::Bytes { bytes, trailers },
                None => RecalledBody::Unavailable,
            }
        }
        (_, StoredBody::Reference { kind, id }) => RecalledBody::Resource(Resource::new(kind, id)),
        (_, StoredBody::Unavailable) => RecalledBody::Unavailable,
    };
    let status = status.unwrap_or(StatusCode::CONFLICT);
    Ok(Recalled { status, headers, body, completed_at, expires_at, is_redacted, memory })
}

/// Reads a large answer and checks it; `None`: it is damaged or missing.
async fn unspool(
    idempotency: &Idempotency,
    (id, length, digest): (SpoolId, u64, [u8; 32]),
    memory: &PeerMemory,
) -> Result<Option<Bytes>, Problem> {
    let mut room = memory.nothing();
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !room.grow_to(length) {
        return Err(memory::full());
    }
    let options = idempotency.options();
    for spool in [&options.beside, &options.chosen.spool].into_iter().flatten() {
        let bytes = read(idempotency.engine(), &**spool, id, length).await?;
        if bytes.len() == length && digest == *Sha256::digest(&bytes) {
            return Ok(Some(room.hold(bytes)));
        }
    }
    if options.chosen.spool.is_some() {
        telemetry::RECORD_UNREADABLE
            .raise(format_args!("the answer of {} is damaged", id.operation));
    }
    Ok(None)
}

/// The chunks of an answer, as many as there are.
async fn read(
    engine: &Engine,
    spool: &dyn Spool,
    id: SpoolId,
    length: usize,
) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    for index in 0.. {
        if bytes.len() >= length {
            break;
        }
        let chunk = engine.bounded(Call::GetChunk, spool.chunk(&id, index)).await.map_err(|error| {
            tracing::warn!(event = event::ANSWER_NOT_READ, %error, "a large answer could not be read");
            let text = "the stored answer cannot be read now; ask again with the same key";
            Problem::new(Code::StoreUnavailable, text).retry_after(Duration::from_secs(1))
        })?;
        let Some(chunk) = chunk else { break };
        bytes.reserve(length - bytes.len());
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
