//! The store believes a record only when a failover cannot lose it.
//!
//! A commit that waits for its standby is not visible meanwhile. But the wait may be cancelled, and
//! after a restart everything is visible that is on the server's own disk. A process that reads a record
//! which may not be replicated commits an empty transaction on the same server: when the server
//! acknowledges that, everything before it is on the standby.

use std::{
    sync::{
        Arc, Mutex as Plain, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use onceward_core::StoreError;
use tokio::sync::Mutex;

use super::{
    error::{Trouble, store_error},
    link::{ConnectOptions, ReconnectingLink},
    rows::Writer,
    sql,
};

pub(super) struct Barrier {
    how: Arc<ConnectOptions>,
    line: ReconnectingLink,
    /// One at a time: a read that waited for another one may not need its own.
    running: Mutex<()>,
    /// How many have begun.
    begun: AtomicU64,
    passed: Plain<Option<Passed>>,
}

/// The last one that was acknowledged.
#[derive(Clone, Copy)]
struct Passed {
    number: u64,
    /// All transactions before this one are replicated, if they are visible on its server.
    before: Writer,
}

impl Passed {
    /// Whether what this transaction wrote, which was seen when so many barriers had begun, is replicated.
    fn covers(self, writer: Writer, begun: u64) -> bool {
        // Numbers of transactions go round in a circle.
        let is_before = writer.xid.wrapping_sub(self.before.xid) > u32::MAX / 2;
        self.before.server == writer.server && (is_before || self.number > begun)
    }
}

impl Barrier {
    pub(super) fn new(how: &Arc<ConnectOptions>) -> Self {
        Self {
            how: how.clone(),
            line: ReconnectingLink::new(how),
            running: Mutex::new(()),
            begun: AtomicU64::new(0),
            passed: Plain::new(None),
        }
    }

    /// Returns when what this transaction wrote is on the standbys. It was seen just now.
    pub(super) async fn pass(&self, writer: Writer) -> Result<(), StoreError> {
        let begun = self.begun.load(Ordering::SeqCst);
        if self.has_passed(writer, begun) {
            return Ok(());
        }
        let _turn = self.running.lock().await;
        if self.has_passed(writer, begun) {
            return Ok(());
        }
        let link = self.line.link().await?;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let rows = link.write(&sql::BARRIER, &[]).await.map_err(Trouble::into_error)?;
        let Some(row) = rows.first() else {
            return Err(StoreError::Unavailable("the barrier has no answer".to_owned()));
        };
        let before = row.try_get(0).and_then(|xid| Ok((xid, row.try_get::<_, SystemTime>(1)?)));
        let (xid, server) = before.map_err(|error| store_error(&error))?;
        let passed = Passed { number, before: Writer::new(xid, server) };
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner) = Some(passed);
        match passed.covers(writer, begun) {
            true => Ok(()),
            false => {
                self.how.renew_links();
                let text =
                    "the record was read from another server than the one that takes writes now";
                Err(StoreError::Unavailable(text.to_owned()))
            }
        }
    }

    fn has_passed(&self, writer: Writer, begun: u64) -> bool {
        let passed = *self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.is_some_and(|passed| passed.covers(writer, begun))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn writer(xid: u32, server: u64) -> Writer {
        Writer { xid, server: SystemTime::UNIX_EPOCH + Duration::from_secs(server) }
    }

    #[test]
    fn what_was_written_before_a_barrier_is_replicated_on_the_same_server_only() {
        let passed = Passed { number: 1, before: writer(100, 1) };
        assert!(passed.covers(writer(99, 1), 1) && !passed.covers(writer(100, 1), 1));
        assert!(!passed.covers(writer(99, 2), 1));
        let wrapped = Passed { number: 1, before: writer(5, 1) };
        assert!(wrapped.covers(writer(u32::MAX - 5, 1), 1) && !wrapped.covers(writer(6, 1), 1));
    }

    #[test]
    fn what_was_seen_before_a_barrier_began_is_replicated_whoever_still_runs() {
        let passed = Passed { number: 3, before: writer(100, 1) };
        assert!(passed.covers(writer(500, 1), 2), "seen before it began");
        assert!(!passed.covers(writer(500, 1), 3), "seen when it was under way");
        assert!(!passed.covers(writer(500, 2), 2), "on another server");
    }
}
