//! How much memory a record takes, with everything that belongs to it.

use std::sync::Arc;

use testbed::{RedisInstallation, RedisServer};
use tokio::runtime::Runtime;

use crate::{
    Failure, load,
    redis::site::{info, open},
};

/// What the records of one server took.
pub(crate) struct Memory {
    pub(crate) records: u64,
    /// Bytes for each record.
    pub(crate) each: f64,
}

/// Fills a server of its own, without a log: buffers of a log are no part of a record.
pub(crate) fn measure(runtime: &Runtime, records: u64) -> Result<Memory, Failure> {
    let settings = [("appendonly", "no")];
    let server = RedisServer::start_on_disk(&RedisInstallation::preferred()?, &settings)?;
    let store: Arc<dyn onceward::Store> = Arc::new(open(runtime, &server)?);
    // Connections and scripts are there before.
    load::fill(runtime, &store, 0..1, "the first record")?;
    let used = || info(&server, "memory", "used_memory");
    let before = used()?;
    load::fill(runtime, &store, 1..records + 1, &format!("{records} records"))?;
    let each = (used()? - before) as f64 / records as f64;
    Ok(Memory { records, each })
}
