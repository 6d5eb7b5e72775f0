//! `Retry-After`: what the server asks for, whatever it has written there.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, header};

/// After which time an answer asks to come back: its `Retry-After`, in seconds or as a date.
///
/// The longest, if there are several lines; what cannot be read says nothing. A date counts from the
/// server's own `Date`, if there is one.
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderMap, HeaderValue, header::RETRY_AFTER};
///
/// let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("120"))]);
/// assert_eq!(onceward::client::hint(&headers), Some(Duration::from_secs(120)));
/// ```
#[must_use]
pub fn hint(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(header::RETRY_AFTER).iter();
    lines.filter_map(|line| one(line, headers)).max()
}

fn one(line: &HeaderValue, headers: &HeaderMap) -> Option<Duration> {
    let text = line.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has is still "not for a very long time".
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    // By the server's own clock where it says what that is: ours may be set at any time.
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    Some(then.duration_since(date.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&'static str, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        hint(&headers)
    }

    fn after(value: &str) -> Option<Duration> {
        of(&[("retry-after", value)])
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("1000000000000000000"), Some(Duration::from_secs(10_u64.pow(18))));
        assert_eq!(after(&"9".repeat(400)), Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn dates_count_from_the_servers_own_clock() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        let at = |value| of(&[date, ("retry-after", value)]);
        assert_eq!(at("Wed, 21 Oct 2015 07:28:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(at("Wed, 21 Oct 2015 07:27:00 GMT"), Some(Duration::ZERO), "past");
        assert_eq!(after("Wed, 21 Oct 2015 07:28:30 GMT"), Some(Duration::ZERO), "long past");
        assert!(after("Fri, 31 Dec 9999 23:59:59 GMT") > Some(Duration::from_secs(1 << 32)));
        let broken = of(&[("date", "yesterday"), ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]);
        assert!(broken > Some(Duration::from_secs(1 << 32)), "a broken date is no date");
    }

    #[test]
    fn garbage_says_nothing() {
        for value in [
            "",
            " ",
            "-5",
            "+5",
            "1.5",
            "1e3",
            "soon",
            "0x10",
            "٣",
            "Wed, 99 Foo 2015",
            "\u{ff}",
            "Sun, 99 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(after(value), None, "{value:?}");
        }
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("retry-after", "soon"), ("retry-after", "3"), ("retry-after", "2")]),
            Some(Duration::from_secs(3))
        );
    }
}
