//! Where keyed calls are persisted before they are first sent.

use bytes::Bytes;
use http::request::Parts;
use onceward_core::{BoxFuture, Key};

use super::BoxError;

pub(super) trait Remember: Send + Sync {
    /// Makes a call durable before it is sent. `false`: an earlier call has done so already.
    fn keep(
        &self,
        key: &Key,
        parts: &Parts,
        body: &Bytes,
    ) -> BoxFuture<'static, Result<bool, BoxError>>;

    /// Its outcome is known.
    fn forget(&self, key: &Key, parts: &Parts) -> BoxFuture<'static, ()>;
}
