//! The client: one call that is retried where that is safe and may help, and nowhere else.
//!
//! One call, top to bottom, in `call.rs`: make the key, keep the body, and then, until
//! [`decide`](onceward_core::retry::decide) says that it is enough: ask for leave, send, understand
//! the answer, decide, wait. Everything that a [`Retry`] learns about a target is shared by its
//! clones.
//!
//! * A POST or PATCH gets an `Idempotency-Key` of its own, the same on every attempt. Without a key
//!   such a request is sent once, unless it certainly did not arrive.
//! * The answer has a [`Report`] in its extensions: key, attempts, waits, and why it stopped.
//! * A call that ends without an answer is a [`CallError`], which says whether it may have happened.
//! * When the last attempt was answered, that answer is returned as it is: look at its status, as
//!   always. If another attempt was decided on and is then not allowed (the breaker opened meanwhile,
//!   say), there is no answer but a [`CallError`].
//!
//! With feature `hyper` the failures of hyper-util's client are understood, with `reqwest` there is
//! `send_with`, with `reqwest-middleware` a middleware.

mod adapters;
mod answer_body;
mod answer_head;
mod attempt;
mod call;
mod chance;
mod conditional;
mod credentials;
pub mod driver;
mod error;
mod etag;
mod event;
pub(crate) mod failure;
mod follow;
mod key;
mod remember;
mod report;
#[cfg(feature = "sqlite")]
mod resume;
mod retry;
mod run;

pub use crate::http::hint;
pub(crate) use crate::http::{Body, BoxError, Incoming};
#[cfg(feature = "reqwest-middleware")]
pub use adapters::middleware::RetryMiddleware;
#[cfg(feature = "reqwest")]
pub use adapters::reqwest::{ReqwestService, SendWith, redirects, reqwest_client};
pub use adapters::tower::{RetryLayer, Retrying};
pub use answer_body::AnswerBody;
#[cfg(feature = "relay")]
pub(crate) use answer_head::Head;
pub use conditional::{Conditional, ConditionalError, Current, Next, Updated};
pub use error::CallError;
pub use etag::{ETag, NoETag};
pub use event::Event;
#[cfg(feature = "relay")]
pub(crate) use key::KEY;
pub use report::{Attempt, Report};
#[cfg(feature = "sqlite")]
pub use resume::{Pending, Resume, ResumeError};
pub use retry::{Retry, Route, TargetState, Within};
