//! The figures that have to be reached, and whether they were.

use std::time::Duration;

use crate::{
    measure::median,
    pairs,
    report::{Report, thousands},
};

/// The conditions of the figures: what was measured under others is not held against them.
const RECORDS: u64 = 1_000_000;
const MANY_RECORDS: u64 = 5_000_000;
const SWEPT_RECORDS: u64 = 200_000;
const IN_FLIGHT: usize = 128;

/// One figure: what was measured and what is asked for.
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) measured: Option<f64>,
    pub(crate) bound: Bound,
    pub(crate) goal: Option<f64>,
    pub(crate) unit: Unit,
}

/// What has to be reached.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn is_nothing(self) -> bool {
        matches!(self, Self::AtLeast(bound) if bound == 0.0)
    }
}

/// What a figure is counted in.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Ratio,
    Each(&'static str),
}

impl Figure {
    /// The figures of the `SQLite` store in the order of the design.
    pub(crate) fn all(report: &Report) -> Vec<Self> {
        use Bound::{AtLeast, AtMost};
        use Unit::{Each, Ratio};

        let row = |records| {
            let same =
                move |row: &&pairs::Row| (row.records, row.in_flight) == (records, IN_FLIGHT);
            report.pairs.iter().find(same)
        };
        let usual = row(RECORDS);
        let of_turns = |figure: fn(&pairs::Turn) -> Option<f64>| {
            usual.and_then(|row| median(row.sqlite.iter().filter_map(figure)))
        };
        let grown = usual.zip(row(MANY_RECORDS)).and_then(|(usual, many)| many.sqlite_to(usual));
        let lookups = |in_flight| {
            let rows = report.lookups.iter().filter(|lookups| lookups.one_core);
            let mut rows = rows.flat_map(|lookups| &lookups.rows);
            rows.find(|row| (row.records, row.in_flight) == (RECORDS, in_flight))?.sqlite()
        };
        let sweep = report.sweep.as_ref().filter(|sweep| sweep.records >= SWEPT_RECORDS);
        let held_up = sweep.map(|sweep| sweep.disturbed.longest);
        let reopen = report.reopen.as_ref().filter(|reopen| reopen.records == RECORDS);
        let reopen = reopen.and_then(|reopen| reopen.took.iter().max()).copied();
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;

        let figure = |what, measured, bound, goal, unit| Self { what, measured, bound, goal, unit };
        vec![
            figure(
                "SQLite ÷ log, 128 in flight, 1 M records",
                usual.and_then(pairs::Row::ratio),
                AtLeast(0.33),
                Some(0.60),
                Ratio,
            ),
            figure(
                "CPU for each pair, 128 in flight, 1 M records",
                of_turns(|turn| Some(turn.cpu_micros)),
                AtMost(60.0),
                Some(25.0),
                Each("µs"),
            ),
            figure(
                "written for each pair, 128 in flight, 1 M records",
                of_turns(|turn| turn.written.map(|bytes| bytes / 1e3)),
                AtMost(16.0),
                Some(8.0),
                Each("kB"),
            ),
            figure("5 M ÷ 1 M records, 128 in flight", grown, AtLeast(0.75), Some(0.95), Ratio),
            figure(
                "look-ups on one core, 1 in flight, 1 M records",
                lookups(1),
                AtLeast(20_000.0),
                None,
                Each("/s"),
            ),
            figure(
                "look-ups on one core, 16 in flight, 1 M records",
                lookups(16),
                AtLeast(20_000.0),
                None,
                Each("/s"),
            ),
            figure(
                "records swept, nothing else to do",
                sweep.map(|sweep| sweep.alone),
                AtLeast(40_000.0),
                Some(80_000.0),
                Each("/s"),
            ),
            figure(
                "records swept while claims are made",
                sweep.map(|sweep| sweep.beside_claims),
                AtLeast(40_000.0),
                Some(80_000.0),
                Each("/s"),
            ),
            figure(
                "longest claim during a sweep",
                held_up.map(millis),
                AtMost(50.0),
                None,
                Each("ms"),
            ),
            figure(
                "opening 1 M records after kill -9, slowest",
                reopen.map(millis),
                AtMost(1_000.0),
                None,
                Each("ms"),
            ),
        ]
    }

    /// The cells of the figure's line: what, measured, must, goal, verdict.
    pub(crate) fn cells(&self) -> [String; 5] {
        let shown = |value| match self.unit {
            Unit::Ratio => format!("{value:.2}"),
            Unit::Each("/s") => format!("{}/s", thousands(value)),
            Unit::Each(unit) => format!("{value:.1} {unit}"),
        };
        let (sign, must) = match self.bound {
            Bound::AtLeast(bound) => ("≥", bound),
            Bound::AtMost(bound) => ("≤", bound),
        };
        [
            self.what.into(),
            self.measured.map_or_else(|| "–".into(), shown),
            format!("{sign} {}", shown(must)),
            self.goal.map_or_else(|| "–".into(), |goal| format!("{sign} {}", shown(goal))),
            self.verdict().into(),
        ]
    }

    fn verdict(&self) -> &'static str {
        let Some(measured) = self.measured else { return "not measured" };
        let (reached, goal) = match self.bound {
            Bound::AtLeast(bound) => (measured >= bound, self.goal.map(|goal| measured >= goal)),
            Bound::AtMost(bound) => (measured <= bound, self.goal.map(|goal| measured <= goal)),
        };
        match (reached, goal) {
            // Zero is asked for where only the figure is wanted.
            (true, None) if self.bound.is_nothing() => "–",
            (false, _) => "**missed**",
            (true, Some(true)) => "reached, and the goal",
            (true, _) => "reached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let verdict = |measured, bound, goal| {
            Figure { what: "", measured, bound, goal, unit: Unit::Ratio }.verdict()
        };
        let at_least = Bound::AtLeast(0.33);
        assert_eq!(verdict(None, at_least, Some(0.6)), "not measured");
        assert_eq!(verdict(Some(0.32), at_least, Some(0.6)), "**missed**");
        assert_eq!(verdict(Some(0.33), at_least, Some(0.6)), "reached");
        assert_eq!(verdict(Some(0.61), at_least, Some(0.6)), "reached, and the goal");
        assert_eq!(verdict(Some(61.0), Bound::AtMost(60.0), Some(25.0)), "**missed**");
        assert_eq!(verdict(Some(24.0), Bound::AtMost(60.0), Some(25.0)), "reached, and the goal");
        assert_eq!(verdict(Some(1.0), Bound::AtMost(50.0), None), "reached");
        assert_eq!(verdict(Some(1.0), Bound::AtLeast(0.0), None), "–");
    }
}
