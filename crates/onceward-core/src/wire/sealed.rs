//! What is sealed, and what it is about.

use alloc::vec::Vec;

use minicbor::Encoder;

use super::{
    EncodeError, FAILED_FINAL, Infallible, Members, SUCCEEDED, WireError, put_answer, take_members,
};
use crate::{Digest, Execution, Outcome, Seal, SpoolId};

/// Sealed bytes of the one kind can never be opened as the other.
const ANSWER: &[u8] = b"onceward/answer/1";
const CHUNK: &[u8] = b"onceward/chunk/1";

/// Everything of an outcome but its status: a map with the same keys as the record's own.
pub(super) fn answer(outcome: &Outcome) -> Result<Vec<u8>, EncodeError<Infallible>> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    encoder.begin_map()?;
    put_answer(&mut encoder, outcome)?;
    encoder.end()?;
    Ok(bytes)
}

/// Every part has a fixed length, so no two answers are about the same bytes.
pub(super) fn about_answer(id: &Digest, execution: &Execution, state: u8, status: u16) -> Vec<u8> {
    [ANSWER, &id.0, execution.as_bytes(), &[state], &status.to_be_bytes()].concat()
}

fn about_chunk(id: &SpoolId, index: u32) -> Vec<u8> {
    [CHUNK, &id.operation.0, id.fence.as_bytes(), &index.to_be_bytes()].concat()
}

impl Members {
    /// Opens what is sealed, in place of what may lie beside it.
    pub(super) fn open(&mut self, id: &Digest, seal: Option<&dyn Seal>) -> Result<(), WireError> {
        let Some(sealed) = self.sealed.take() else { return Ok(()) };
        let (Some(execution), Some(state @ (SUCCEEDED | FAILED_FINAL)), Some(status)) =
            (self.execution, self.state, self.status)
        else {
            return Err(WireError::Damaged);
        };
        let about = about_answer(id, &Execution::from_bytes(execution), state, status);
        let opened = seal.and_then(|seal| seal.open(&sealed, &about)).ok_or(WireError::Sealed)?;
        let answer = take_members(&opened).map_err(|_| WireError::Damaged)?;
        (self.headers, self.body, self.trailers) = (answer.headers, answer.body, answer.trailers);
        Ok(())
    }
}

/// Seals one chunk of a large answer, bound to its record and its place: see
/// [`Spool`](crate::Spool).
///
/// ```
/// use onceward_core::{Seal, SpoolId, wire::{open_chunk, seal_chunk}};
///
/// fn comes_back(seal: &dyn Seal, id: &SpoolId, chunk: &[u8]) -> bool {
///     let stored = seal_chunk(seal, id, 0, chunk);
///     open_chunk(seal, id, 0, stored) == chunk
/// }
/// ```
#[must_use]
pub fn seal_chunk(seal: &dyn Seal, id: &SpoolId, index: u32, chunk: &[u8]) -> Vec<u8> {
    seal.seal(chunk, &about_chunk(id, index))
}

/// Opens one chunk of a large answer; one that cannot be opened comes back as it is.
///
/// It may have been written before there was a seal. Whether the chunks are the answer is decided by
/// the digest in the record, in any case.
///
/// ```
/// use onceward_core::{Seal, SpoolId, wire::open_chunk};
///
/// fn answer(seal: &dyn Seal, id: &SpoolId, chunks: Vec<Vec<u8>>) -> Vec<u8> {
///     let opened = (0..).zip(chunks).map(|(index, chunk)| open_chunk(seal, id, index, chunk));
///     opened.collect::<Vec<_>>().concat()
/// }
/// ```
#[must_use]
pub fn open_chunk(seal: &dyn Seal, id: &SpoolId, index: u32, chunk: Vec<u8>) -> Vec<u8> {
    seal.open(&chunk, &about_chunk(id, index)).unwrap_or(chunk)
}
