//! Virtual time: what happens next.

use std::{collections::BTreeMap, time::Duration};

/// Nanoseconds since the run began. Whole numbers, so that a run is the same everywhere.
pub(super) type Nanos = u64;

pub(super) const MILLISECOND: Nanos = 1_000_000;
pub(super) const SECOND: Nanos = 1_000 * MILLISECOND;

pub(super) fn from_ms(ms: f64) -> Nanos {
    (ms * MILLISECOND as f64).round().max(0.0) as Nanos
}

pub(super) fn ms(nanos: Nanos) -> f64 {
    nanos as f64 / MILLISECOND as f64
}

pub(super) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// A time that a library gave, which may be far longer than any run.
pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Events in the order of their time; those of the same time in the order in which they were noted.
pub(super) struct Agenda<E> {
    events: BTreeMap<(Nanos, u64), E>,
    noted: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { events: BTreeMap::new(), noted: 0 }
    }

    pub(super) fn note(&mut self, at: Nanos, event: E) {
        self.noted += 1;
        self.events.insert((at, self.noted), event);
    }

    pub(super) fn next(&mut self) -> Option<(Nanos, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_noting() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b')] {
            agenda.note(at, event);
        }
        let order: Vec<char> =
            std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
