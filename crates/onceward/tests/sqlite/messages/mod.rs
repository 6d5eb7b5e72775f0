//! Messages that leave with a commit, and messages that came.

mod lanes;
mod support;
