//! Onceward makes writes safe to retry.
#![doc = ""]
pub mod clock;
pub mod stores;
pub mod telemetry;

pub use onceward_core as core;
pub use onceward_core::*;
