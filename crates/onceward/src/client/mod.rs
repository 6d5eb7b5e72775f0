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
//! * When no attempt is left and the server did answer, its last answer is returned as it is: look at
//!   its status, as always.
//!
//! With feature `hyper` the failures of hyper-util's client are understood, with `reqwest` there is
//! `send_with`, with `reqwest-middleware` a middleware.

mod answer;
mod answer_body;
mod body;
mod call;
mod chance;
mod error;
mod event;
mod exchange;
mod failure;
mod follow;
mod hedge;
mod key;
mod remember;
mod report;
mod retry;
mod retry_after;
mod run;
mod sync;
mod target;
mod tower;
mod wire;

pub use answer_body::AnswerBody;
pub use body::{Body, BoxError};
pub use error::CallError;
pub use event::Event;
pub use report::{Attempt, Report};
pub use retry::{Retry, Route, TargetState, Within};
pub use tower::{RetryLayer, Retrying};
pub use wire::Incoming;
