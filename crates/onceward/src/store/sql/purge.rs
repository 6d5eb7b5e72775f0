//! What an operator may delete.

use onceward_core::{Fence, Found, Purge};

/// What keeps an operator from deleting what was read, if this fence is expected; `None`: nothing does.
pub(in crate::store) fn refusal(found: Found, expected: Fence) -> Option<Purge> {
    match &found {
        Found::Record(stored) if stored.record.fence == expected => stored.refuses_purge(),
        Found::Unreadable { fence, .. } if *fence == expected => None,
        _ => Some(Purge::Conflict(found)),
    }
}
