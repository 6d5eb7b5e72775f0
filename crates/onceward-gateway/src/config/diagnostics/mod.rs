//! What does not fit together, and how a person is told.

pub(super) mod fit;
pub(super) mod mistake;
pub(super) mod names;
