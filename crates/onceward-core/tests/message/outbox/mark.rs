//! Where a lane is: between two snapshots.

use std::collections::BTreeSet;

use onceward_core::message::{Cursor, Place};

use super::Row;

/// Which transactions had ended at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    /// Transactions from this number on had not begun.
    pub(crate) xmax: u64,
    /// Of those before it, these had not ended.
    pub(crate) open: BTreeSet<u64>,
    /// The last number that a message had. What has a higher one is newer, or of another cluster.
    pub(crate) floor: i64,
}

impl Snapshot {
    pub(crate) fn nothing() -> Self {
        Self { xmax: 0, open: BTreeSet::new(), floor: 0 }
    }

    pub(crate) fn sees(&self, xid: u64) -> bool {
        xid < self.xmax && !self.open.contains(&xid)
    }

    fn write(&self) -> String {
        let open: Vec<_> = self.open.iter().map(u64::to_string).collect();
        format!("{}:{}:{}", self.xmax, self.floor, open.join(","))
    }

    fn read(text: &str) -> Self {
        let mut parts = text.split(':');
        let mut next = || parts.next().expect("a snapshot has three parts");
        let (xmax, floor, open) = (number(next()), number(next()), next());
        let open = open.split(',').filter(|xid| !xid.is_empty()).map(number).collect();
        Self { xmax, open, floor }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().expect("a number of this outbox")
}

/// Everything that `base` sees was dealt with, and of what `target` sees besides, the places up to `done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    pub(crate) base: Snapshot,
    pub(crate) target: Option<Snapshot>,
    pub(crate) done: i64,
}

impl Mark {
    pub(crate) fn at(base: Snapshot) -> Self {
        Self { base, target: None, done: 0 }
    }

    pub(crate) fn has_passed(&self, row: &Row, place: Place) -> bool {
        let is_in = |target: &Snapshot| target.sees(row.xid) && place.0 <= self.done;
        self.base.sees(row.xid) || self.target.as_ref().is_some_and(is_in)
    }

    pub(crate) fn cursor(&self) -> Cursor {
        let target = self.target.as_ref().map(Snapshot::write).unwrap_or_default();
        Cursor::new(&format!("{};{target};{}", self.base.write(), self.done))
    }

    pub(crate) fn of(cursor: &Cursor) -> Self {
        let mut parts = cursor.as_str().split(';');
        let mut next = || parts.next().expect("a cursor has three parts");
        let (base, target, done) = (next(), next(), next());
        let target = (!target.is_empty()).then(|| Snapshot::read(target));
        Self { base: Snapshot::read(base), target, done: number(done) }
    }
}
