//! What the client, the server layer and the gateway share of HTTP: one home for each header and body.

mod attempt_headers;
mod body;
#[cfg(feature = "client")]
mod retry_after;

pub use attempt_headers::{AttemptHeaders, Incoming};
pub use body::{Body, BoxError};
pub(crate) use body::{ByteBody, Read, read};
#[cfg(feature = "client")]
pub use retry_after::hint;
