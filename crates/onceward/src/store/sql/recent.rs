//! Which records are probably there, so that a duplicate need not wait for the writer.

use std::sync::atomic::{AtomicU64, Ordering};

use onceward_core::Digest;

/// How many are remembered, in half a megabyte.
const PLACES: usize = 1 << 16;

/// A guess and nothing more: each place remembers the last record that came by, and a duplicate that finds
/// nothing where something was expected asks the writer.
pub(crate) struct RecentRecords(Box<[AtomicU64]>);

impl RecentRecords {
    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn note(&self, id: &Digest) {
        let (place, mark) = split(id);
        self.0[place].store(mark, Ordering::Relaxed);
    }

    pub(crate) fn expects(&self, id: &Digest) -> bool {
        let (place, mark) = split(id);
        self.0[place].load(Ordering::Relaxed) == mark
    }
}

/// Digests are evenly spread, so any of their bits will do.
fn split(id: &Digest) -> (usize, u64) {
    let [first, second, third, mark @ ..] = &id.0;
    let place = u32::from_be_bytes([0, *first, *second, *third]) as usize % PLACES;
    let (mark, _) = mark.split_at(8);
    (place, u64::from_be_bytes(mark.try_into().unwrap_or_default()) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_by_is_expected_until_another_takes_its_place() {
        let known = RecentRecords::new();
        let [one, other, elsewhere] = [[7; 32], [8; 32], [9; 32]].map(Digest);
        assert!(!known.expects(&one));
        known.note(&one);
        known.note(&elsewhere);
        assert!(known.expects(&one) && !known.expects(&other));
        let mut rival = one;
        rival.0[10] = 0;
        known.note(&rival);
        assert!(!known.expects(&one) && known.expects(&rival));
    }
}
