//! Hides answers on their way into the file, and opens them on their way out.

use std::{borrow::Cow, sync::Arc};

use onceward_core::{
    Digest, Record, Seal, SpoolId,
    wire::{self, Plain, WireError},
};

/// The seal of a store, if it has one. Whoever asks for a record opens it, not the reading thread.
#[derive(Clone, Default)]
pub(super) struct Sealing(Option<Arc<dyn Seal>>);

impl Sealing {
    pub(super) fn with(seal: Arc<dyn Seal>) -> Self {
        Self(Some(seal))
    }

    pub(super) fn encode(&self, id: &Digest, record: &Record) -> Vec<u8> {
        wire::encode_with(id, record, self.0.as_deref())
    }

    pub(super) fn decode(
        &self,
        id: &Digest,
        bytes: &[u8],
        plain: Plain,
    ) -> Result<Record, WireError> {
        wire::decode_with(id, bytes, plain, self.0.as_deref())
    }

    pub(super) fn seal_chunk<'a>(
        &self,
        id: &SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> Cow<'a, [u8]> {
        match &self.0 {
            Some(seal) => wire::seal_chunk(&**seal, id, index, chunk).into(),
            None => chunk.into(),
        }
    }

    pub(super) fn open_chunk(&self, id: &SpoolId, index: u32, chunk: Vec<u8>) -> Vec<u8> {
        match &self.0 {
            Some(seal) => wire::open_chunk(&**seal, id, index, chunk),
            None => chunk,
        }
    }
}
