//! What does not fit together, and how the command tells the operator.

pub(super) mod fit;
pub(super) mod mistake;
pub(super) mod names;
