//! Durations (`"300ms"`, `"30s"`, `"24h"`, `"7d"`) and sizes (`"64KiB"`, `"8MiB"`) as people write
//! them.

use std::time::Duration;

/// From the smallest; each with the spellings that are not ours and are probably meant.
const TIMES: [(&str, u64, &[&str]); 5] = [
    ("ms", 1, &["msec", "milliseconds", "millis"]),
    ("s", 1_000, &["", "sec", "secs", "second", "seconds"]),
    ("m", 60_000, &["min", "mins", "minute", "minutes"]),
    ("h", 3_600_000, &["hr", "hrs", "hour", "hours"]),
    ("d", 86_400_000, &["day", "days"]),
];

const SIZES: [(&str, u64, &[&str]); 4] = [
    ("B", 1, &["", "b", "bytes", "byte"]),
    ("KiB", 1 << 10, &["kib", "k", "kb", "ki"]),
    ("MiB", 1 << 20, &["mib", "m", "mb", "mi"]),
    ("GiB", 1 << 30, &["gib", "g", "gb", "gi"]),
];

pub(crate) const TIME_HELP: &str =
    "write a whole number and ms, s, m, h or d, in quotes, as \"30s\"";
pub(crate) const SIZE_HELP: &str =
    "write a whole number and B, KiB or MiB, in quotes, as \"64KiB\"";

/// A duration, or what was probably meant.
pub(crate) fn duration(text: &str) -> Result<Duration, Option<String>> {
    number_and_unit(text, &TIMES).map(Duration::from_millis)
}

/// A duration that was said outside of a file, or what to write instead.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|meant| match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "write a whole number and ms, s, m, h or d, as `30s`".to_owned(),
    })
}

/// A number of bytes, or what was probably meant.
pub(crate) fn size(text: &str) -> Result<usize, Option<String>> {
    usize::try_from(number_and_unit(text, &SIZES)?).map_err(|_| None)
}

fn number_and_unit(text: &str, units: &[(&str, u64, &[&str])]) -> Result<u64, Option<String>> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let Ok(number) = number.parse::<u64>() else { return Err(None) };
    if let Some((_, times, _)) = units.iter().find(|(name, ..)| *name == unit) {
        return number.checked_mul(*times).ok_or(None);
    }
    let lower = unit.trim().to_lowercase();
    let meant = |(name, _, other): &&(&str, u64, &[&str])| {
        *name == lower || other.contains(&lower.as_str())
    };
    Err(units.iter().find(meant).map(|(name, ..)| format!("{number}{name}")))
}

/// As it is written in a file: in the largest unit that leaves no rest.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // One day is better known as 24 hours.
    let fits = |times: u64| millis.is_multiple_of(times) && (times < 86_400_000 || millis > times);
    match TIMES.iter().rev().find(|(_, times, _)| millis > 0 && fits(*times)) {
        Some((unit, times, _)) => format!("{}{unit}", millis / times),
        None => "0s".to_owned(),
    }
}

/// As it is written in a file.
pub(crate) fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    match SIZES.iter().rev().find(|(_, times, _)| bytes > 0 && bytes.is_multiple_of(*times)) {
        Some((unit, times, _)) => format!("{}{unit}", bytes / times),
        None => "0B".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, show_duration, show_size, size};

    #[test]
    fn durations_are_read_and_shown_as_they_are_written() {
        for (text, millis) in [
            ("300ms", 300),
            ("30s", 30_000),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("90s", 90_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(show_duration(duration("60s").unwrap()), "1m");
    }

    #[test]
    fn what_is_meant_is_guessed_only_where_it_is_clear() {
        for (text, meant) in [
            ("30", Some("30s")),
            ("30 s", Some("30s")),
            ("30S", Some("30s")),
            ("2 hours", Some("2h")),
            ("5min", Some("5m")),
            ("1.5h", None),
            ("-3s", None),
            ("soon", None),
            ("", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(duration(text), Err(meant.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_shown_as_they_are_written() {
        for (text, bytes) in
            [("512B", 512), ("64KiB", 64 << 10), ("8MiB", 8 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(size(text), Ok(bytes));
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(size("8MB"), Err(Some("8MiB".to_owned())));
        assert_eq!(size("8 mib"), Err(Some("8MiB".to_owned())));
        assert_eq!(size("much"), Err(None));
        assert_eq!(show_size(0), "0B");
    }
}
