//! Figures that the gateway does not count as they happen: it looks into the store for them.

use std::time::Duration;

use onceward::telemetry::event;
use tokio::time::timeout;

use crate::{
    observe::metrics::{self, OpenState},
    records::Records,
};

/// How long it may take: a collector of figures does not wait for long.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks into the store; if that fails, the figures of before stay, and the store's own calls tell why.
pub(super) async fn take(store: &dyn Records) {
    let census = match timeout(SCRAPE_TIMEOUT, store.census()).await {
        Ok(Ok(census)) => census,
        Ok(Err(error)) => {
            return tracing::warn!(event = event::STORE_FAILED, %error, "the records in the store were not counted: the figures of before stay");
        }
        Err(_) => {
            return tracing::warn!(
                event = event::STORE_FAILED,
                "the store took too long to count its records: the figures of before stay"
            );
        }
    };
    for (state, count) in [
        (OpenState::InProgress, census.in_progress),
        (OpenState::Interrupted, census.interrupted),
        (OpenState::Unknown, census.unknown),
    ] {
        metrics::OPEN_OPERATIONS.set_of(state, count);
    }
    metrics::OLDEST_OPEN.set(census.oldest_open.unwrap_or_default().as_secs());
    metrics::STORE_FILE_BYTES.set(census.file_bytes);
    metrics::STORE_LOG_BYTES.set(census.log_bytes);
    if let Some(free) = census.free_bytes {
        metrics::STORE_FREE_BYTES.set(free);
    }
}
