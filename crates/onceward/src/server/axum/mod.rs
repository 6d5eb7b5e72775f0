//! What axum adds: the claim as an extractor, and the status routes.

pub(super) mod extract;
pub(super) mod status;
