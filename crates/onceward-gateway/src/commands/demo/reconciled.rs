//! Which outcomes stayed unknown until a gateway asked the upstream, by the store's own trail.

use std::time::{Duration, SystemTime};

use onceward::{Digest, store::NoteKind};
use serde::Serialize;
use uuid::Uuid;

use super::{BoxError, kill::Kill, ledger::Asked};
use crate::records::Records;

/// How many outcomes were open, and ended because a gateway asked the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Reconciled {
    pub(super) left_by_the_kill: u64,
    pub(super) broken_off: u64,
    /// Anything else, as a computer so busy that a lease was over before it was renewed.
    pub(super) otherwise: u64,
}

impl Reconciled {
    pub(super) async fn read(
        records: &dyn Records,
        asked: &[Asked],
        kill: &Kill,
    ) -> Result<Self, BoxError> {
        let mut reconciled = Self::default();
        for asked in asked {
            let (operation, execution) =
                asked.execution.split_once('.').ok_or("an execution without an operation")?;
            let operation: Digest = operation.parse().map_err(|_| "no reference")?;
            let trail = records.trail(&operation).await?;
            let is_resolved = trail.iter().any(|entry| {
                entry.note.kind == NoteKind::Resolve
                    && entry.note.execution.to_string() == execution
            });
            if is_resolved {
                reconciled.count(asked, execution, kill);
            }
        }
        Ok(reconciled)
    }

    pub(super) fn total(&self) -> u64 {
        self.left_by_the_kill + self.broken_off + self.otherwise
    }

    fn count(&mut self, asked: &Asked, execution: &str, kill: &Kill) {
        match &asked.run {
            Some(run) if run.broke_off => self.broken_off += 1,
            _ if is_left_by(kill, asked, execution) => self.left_by_the_kill += 1,
            _ => self.otherwise += 1,
        }
    }
}

/// Claimed before the kill and asked about after it; and if it had arrived, then through that
/// gateway.
fn is_left_by(kill: &Kill, asked: &Asked, execution: &str) -> bool {
    let came_through_it = match &asked.run {
        Some(run) => run.via.as_ref() == Some(&kill.address),
        None => true,
    };
    let is_older = claimed_at(execution).is_some_and(|claimed| claimed <= kill.at);
    came_through_it && is_older && asked.first_at >= kill.at
}

/// An execution is named by a `UUIDv7`.
fn claimed_at(execution: &str) -> Option<SystemTime> {
    let (seconds, nanos) = Uuid::try_parse(execution).ok()?.get_timestamp()?.to_unix();
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Asker, Ledger};
    use super::*;

    const BEFORE: &str = "01900000-0000-7000-8000-000000000000";

    fn counted(via: Option<&str>, kill: &Kill) -> Reconciled {
        let ledger = Ledger::default();
        if via.is_some() {
            let via = via.map(str::to_owned);
            ledger.enter(Asker { execution: Some(BEFORE.into()), via, ..Asker::default() });
        }
        ledger.end_of(BEFORE);
        let mut reconciled = Reconciled::default();
        reconciled.count(&ledger.asked()[0], BEFORE, kill);
        reconciled
    }

    #[test]
    fn only_what_went_through_the_killed_gateway_before_is_counted_as_left_by_the_kill() {
        let killed = Kill::example(SystemTime::now() - Duration::from_secs(1));
        for via in [None, Some("127.0.0.1:2")] {
            assert_eq!(counted(via, &killed).left_by_the_kill, 1, "{via:?}");
        }
        assert_eq!(counted(Some("127.0.0.1:1"), &killed).otherwise, 1);
        let later = Kill::example(SystemTime::now() + Duration::from_secs(1));
        assert_eq!(counted(None, &later).otherwise, 1, "it was asked about before the kill");
    }
}
