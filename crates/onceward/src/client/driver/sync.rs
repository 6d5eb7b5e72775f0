//! The one lock of the client, so that tests can put one in its place that explores every order.

pub(super) use std::sync::Mutex;
