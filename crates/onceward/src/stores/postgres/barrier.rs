//! Before a record is believed it must be where a failover cannot lose it.
//!
//! A commit that waits for its standby is not visible meanwhile. But the wait may be cancelled, and
//! after a restart everything is visible that is on the server's own disk. Whoever reads a record of
//! which it is not known that it is replicated commits an empty transaction: when that is
//! acknowledged, everything before it is on the standby.

use std::sync::{Arc, Mutex as Plain, PoisonError};

use onceward_core::StoreError;
use tokio::sync::Mutex;

use super::{
    error::Trouble,
    link::{How, Line},
    sql,
};

pub(super) struct Barrier {
    line: Line,
    /// One at a time: whoever waited for another one may not need its own.
    running: Mutex<()>,
    known: Plain<Option<Known>>,
}

/// All transactions before this one are replicated, if they are visible on this server.
#[derive(Clone, Copy)]
struct Known {
    server: u64,
    before: u32,
}

impl Known {
    /// Numbers of transactions go round in a circle.
    fn covers(self, server: Option<u64>, xid: u32) -> bool {
        Some(self.server) == server && xid.wrapping_sub(self.before) > u32::MAX / 2
    }
}

impl Barrier {
    pub(super) fn new(how: &Arc<How>) -> Self {
        Self { line: Line::new(how), running: Mutex::new(()), known: Plain::new(None) }
    }

    /// Returns when what this transaction wrote is on the standbys. `server` is where it was read.
    pub(super) async fn pass(&self, server: Option<u64>, xid: u32) -> Result<(), StoreError> {
        if self.is_known(server, xid) {
            return Ok(());
        }
        let _turn = self.running.lock().await;
        if self.is_known(server, xid) {
            return Ok(());
        }
        let link = self.line.link().await?;
        let rows = link.write(&sql::BARRIER, &[]).await.map_err(Trouble::into_error)?;
        let before: i64 = match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(before)) => before,
            _ => return Err(StoreError::Unavailable("the barrier has no answer".to_owned())),
        };
        if link.server != server {
            let text =
                "the records were read from another server than the one that takes writes now";
            return match server {
                Some(_) => Err(StoreError::Unavailable(text.to_owned())),
                None => Ok(()),
            };
        }
        if let Some(server) = server {
            let before = u32::try_from(before & i64::from(u32::MAX)).unwrap_or_default();
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Known { server, before });
        }
        Ok(())
    }

    fn is_known(&self, server: Option<u64>, xid: u32) -> bool {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_some_and(|known| known.covers(server, xid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_a_barrier_is_known_on_the_same_server_only() {
        let known = Known { server: 1, before: 100 };
        assert!(known.covers(Some(1), 99) && !known.covers(Some(1), 100));
        assert!(!known.covers(Some(2), 99) && !known.covers(None, 99));
        let wrapped = Known { server: 1, before: 5 };
        assert!(wrapped.covers(Some(1), u32::MAX - 5) && !wrapped.covers(Some(1), 6));
    }
}
