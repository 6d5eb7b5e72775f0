//! How long to wait between attempts, in a word: for routes and for `onceward call`.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use onceward::retry::Backoff;

use crate::config::{
    diagnostics::mistake::nearest,
    parse::units::{parse_duration, show_duration},
};

/// What to write, for those who wrote something else.
pub(crate) const HELP: &str = "write full, equal, decorrelated or additive, with a base and a cap if you \
                               like as in equal:100ms..10s; or fixed:500ms, ranges:100ms..200ms,300ms..600ms \
                               or none";

const KINDS: [&str; 7] = ["full", "equal", "decorrelated", "additive", "ranges", "fixed", "none"];

/// The first wait, if nothing was said, and the longest for those who wait and for work in the
/// background: as the presets of the core have them.
const BASE: Duration = Duration::from_millis(50);
pub(crate) const CAP: Duration = Duration::from_secs(20);
pub(crate) const PATIENT_CAP: Duration = Duration::from_secs(30);

/// A kind of back-off, with its numbers if they were said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackoffRule {
    /// It doubles; between which bounds, if that was said.
    Growing(Jitter, Option<(Duration, Duration)>),
    /// One range after the other; the usual three, if none was said.
    Ranges(Vec<(Duration, Duration)>),
    Fixed(Duration),
    None,
}

/// What chance does to a wait that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jitter {
    Full,
    Equal,
    Decorrelated,
    Additive,
}

impl BackoffRule {
    /// The rule of the core; this long is the longest wait if nothing was said.
    pub(crate) fn backoff(&self, usual_cap: Duration) -> Backoff {
        match self {
            Self::Growing(jitter, bounds) => {
                let (base, cap) = bounds.unwrap_or((BASE, usual_cap));
                match jitter {
                    Jitter::Full => Backoff::Full { base, cap },
                    Jitter::Equal => Backoff::Equal { base, cap },
                    Jitter::Decorrelated => Backoff::Decorrelated { base, cap },
                    Jitter::Additive => Backoff::Additive { base, cap, spread: base },
                }
            }
            Self::Ranges(ranges) if ranges.is_empty() => Backoff::ranges(),
            Self::Ranges(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(|(from, to)| *from..=*to).collect();
                Backoff::Ranges(Arc::from(ranges))
            }
            Self::Fixed(wait) => Backoff::Fixed(*wait),
            Self::None => Backoff::None,
        }
    }
}

impl Default for BackoffRule {
    fn default() -> Self {
        Self::Growing(Jitter::Full, None)
    }
}

impl FromStr for BackoffRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, numbers) = match text.split_once(':') {
            Some((kind, numbers)) => (kind.trim(), Some(numbers.trim())),
            None => (text.trim(), None),
        };
        let growing = |jitter| Ok(Self::Growing(jitter, numbers.map(range).transpose()?));
        match (kind, numbers) {
            ("full", _) => growing(Jitter::Full),
            ("equal", _) => growing(Jitter::Equal),
            ("decorrelated", _) => growing(Jitter::Decorrelated),
            ("additive", _) => growing(Jitter::Additive),
            ("ranges", None) => Ok(Self::Ranges(Vec::new())),
            ("ranges", Some(list)) => list
                .split(',')
                .map(|one| range(one.trim()))
                .collect::<Result<_, _>>()
                .map(Self::Ranges),
            ("fixed", Some(wait)) => parse_duration(wait).map(Self::Fixed),
            ("fixed", None) => Err("say how long to wait, as fixed:500ms".to_owned()),
            ("none", None) => Ok(Self::None),
            _ => Err(match nearest(kind, KINDS) {
                Some(near) if near != kind => format!("did you mean \"{near}\"?"),
                _ => HELP.to_owned(),
            }),
        }
    }
}

/// `100ms..10s`
fn range(text: &str) -> Result<(Duration, Duration), String> {
    let Some((from, to)) = text.split_once("..") else {
        return Err(format!("`{text}` is no range of times: write it as 100ms..10s"));
    };
    Ok((parse_duration(from.trim())?, parse_duration(to.trim())?))
}

impl fmt::Display for BackoffRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(from, to): &(Duration, Duration)| {
            format!("{}..{}", show_duration(*from), show_duration(*to))
        };
        match self {
            Self::Growing(jitter, bounds) => {
                formatter.write_str(match jitter {
                    Jitter::Full => "full",
                    Jitter::Equal => "equal",
                    Jitter::Decorrelated => "decorrelated",
                    Jitter::Additive => "additive",
                })?;
                bounds.iter().try_for_each(|bounds| write!(formatter, ":{}", range(bounds)))
            }
            Self::Ranges(ranges) if ranges.is_empty() => formatter.write_str("ranges"),
            Self::Ranges(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(range).collect();
                write!(formatter, "ranges:{}", ranges.join(","))
            }
            Self::Fixed(wait) => write!(formatter, "fixed:{}", show_duration(*wait)),
            Self::None => formatter.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward::retry::Rules;

    #[test]
    fn what_is_not_said_is_as_the_presets_have_it() {
        for (preset, cap) in [(Rules::standard(), CAP), (Rules::patient(), PATIENT_CAP)] {
            let usual = BackoffRule::default().backoff(cap);
            assert_eq!(preset.to_builder().backoff(usual).build().as_ref(), Ok(&preset));
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn every_kind_is_read_and_shown_as_it_was_written() {
        let (base, cap) = (millis(100), millis(10_000));
        for (text, backoff) in [
            ("full", Backoff::Full { base: BASE, cap: CAP }),
            ("full:100ms..10s", Backoff::Full { base, cap }),
            ("equal", Backoff::Equal { base: BASE, cap: CAP }),
            ("decorrelated:100ms..10s", Backoff::Decorrelated { base, cap }),
            ("additive:100ms..10s", Backoff::Additive { base, cap, spread: base }),
            ("ranges", Backoff::ranges()),
            (
                "ranges:10ms..20ms,1s..2s",
                Backoff::Ranges([millis(10)..=millis(20), millis(1_000)..=millis(2_000)].into()),
            ),
            ("fixed:500ms", Backoff::Fixed(millis(500))),
            ("none", Backoff::None),
        ] {
            let rule: BackoffRule = text.parse().expect(text);
            assert_eq!((rule.backoff(CAP), rule.to_string()), (backoff, text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_kind_says_what_to_write() {
        for (text, help) in [
            ("fulll", "did you mean \"full\"?"),
            ("", "write full, equal"),
            ("none:1s", "write full, equal"),
            ("fixed", "as fixed:500ms"),
            ("fixed:5 seconds", "did you mean `5s`?"),
            ("equal:1s", "is no range of times"),
            ("ranges:1s..2s,", "is no range of times"),
        ] {
            let said = text.parse::<BackoffRule>().unwrap_err();
            assert!(said.contains(help), "{text:?}: {said}");
        }
    }
}
