//! How records become rows and rows become records: answers are hidden on their way in and opened on their
//! way out, and times mean what the watch over the clock says.

use std::{borrow::Cow, sync::Arc};

use onceward_core::{
    Digest, Record, Seal, SpoolId, State, Stored, Timestamp,
    wire::{self, Plain, WireError},
};

use crate::clock::Watch;

/// The seal of a store, if it has one, and what watches its clock. The caller that asks for a record opens it, not the
/// reading thread.
#[derive(Clone)]
pub(crate) struct Codec {
    seal: Option<Arc<dyn Seal>>,
    watch: Arc<Watch>,
}

impl Codec {
    pub(crate) fn new(watch: Watch) -> Self {
        Self { seal: None, watch: Arc::new(watch) }
    }

    pub(crate) fn set_seal(&mut self, seal: Arc<dyn Seal>) {
        self.seal = Some(seal);
    }

    pub(crate) fn set_watch(&mut self, watch: Watch) {
        self.watch = Arc::new(watch);
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether a jump of the store's clock, which showed this when it was read, may explain the times of a
    /// record. What lives and has ended is not asked about: that is most of what is read.
    pub(crate) fn is_suspect(
        &self,
        state: &State,
        ends_at: Option<Timestamp>,
        updated_at: Timestamp,
        read_at: Timestamp,
    ) -> bool {
        let is_over = ends_at.is_some_and(|end| end <= read_at);
        let binds = matches!(state, State::Succeeded(_) | State::FailedFinal(_));
        let is_asked = is_over || !binds;
        let ahead = || self.watch.ahead(read_at);
        is_asked && Stored::is_suspect(state, ends_at, updated_at, read_at, &ahead())
    }

    pub(crate) fn encode(&self, id: &Digest, record: &Record) -> Vec<u8> {
        wire::encode_with(id, record, self.seal.as_deref())
    }

    pub(crate) fn decode(
        &self,
        id: &Digest,
        bytes: &[u8],
        plain: Plain,
    ) -> Result<Record, WireError> {
        wire::decode_with(id, bytes, plain, self.seal.as_deref())
    }

    pub(crate) fn seal_chunk<'a>(
        &self,
        id: &SpoolId,
        index: u32,
        chunk: &'a [u8],
    ) -> Cow<'a, [u8]> {
        match &self.seal {
            Some(seal) => wire::seal_chunk(&**seal, id, index, chunk).into(),
            None => chunk.into(),
        }
    }

    pub(crate) fn open_chunk(&self, id: &SpoolId, index: u32, chunk: Vec<u8>) -> Vec<u8> {
        match &self.seal {
            Some(seal) => wire::open_chunk(&**seal, id, index, chunk),
            None => chunk,
        }
    }
}
