//! Messages that leave with a commit, and messages that came.

mod conformance;
mod lanes;
mod support;
