//! The steps of one request, in the order of `layer.rs`, and what they share.

pub(super) mod admit;
pub(super) mod capture;
pub(super) mod deferred;
pub(super) mod execute;
pub(super) mod fingerprint;
pub(super) mod identify;
pub(super) mod keep;
pub(super) mod late;
pub(super) mod recall;
pub(super) mod respond;
pub(super) mod settle;
pub(super) mod shed;
pub(super) mod unknown;
pub(super) mod wait;
