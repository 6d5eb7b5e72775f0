//! The header lines that tell the server about this attempt, and those of a request that we serve.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward_core::retry::Priority;
use tokio::time::Instant;

const ATTEMPT: HeaderName = HeaderName::from_static("onceward-attempt");
const DEADLINE: HeaderName = HeaderName::from_static("onceward-deadline");
const PRIORITY: HeaderName = HeaderName::from_static("onceward-priority");

/// Says which attempt this is, how long anybody waits for it, and how important it is.
pub(super) fn tell(headers: &mut HeaderMap, attempt: u32, timeout: Duration, priority: Priority) {
    let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    headers.insert(ATTEMPT, attempt.into());
    headers.insert(DEADLINE, millis.max(1).into());
    headers.insert(PRIORITY, u16::from(priority.number()).into());
}

/// What a request that is being served says about itself, for the calls that it leads to.
///
/// A call on behalf of it has no more time than is left of its deadline, is as important, and is not
/// retried here if it is itself a retry: whoever sent it tries again, and five layers that each try
/// three times would be 243 attempts.
///
/// ```
/// use http::HeaderMap;
/// use onceward::client::{Incoming, Retry};
///
/// # fn handler(headers: &HeaderMap, retry: &Retry) {
/// let retry = retry.serving(Incoming::from(headers));
/// // … calls with `retry`, or with `Incoming` in the extensions of a request.
/// # let _ = retry;
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// Which attempt it is: 1 is the first.
    pub attempt: u32,
    /// When nobody waits for its answer any more.
    pub deadline: Option<Instant>,
    /// How important it is.
    pub priority: Option<Priority>,
}

impl Incoming {
    /// What is left of its time.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

impl From<&HeaderMap> for Incoming {
    /// Reads the lines now: the time that is left counts from here. What cannot be read is left out.
    fn from(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|line: &HeaderValue| line.to_str().ok());
        let number = |name| text(name).and_then(|text| text.trim().parse::<u64>().ok());
        let deadline = number(DEADLINE).map(Duration::from_millis);
        Self {
            attempt: number(ATTEMPT).map_or(1, |number| u32::try_from(number).unwrap_or(u32::MAX)),
            deadline: deadline.and_then(|left| Instant::now().checked_add(left)),
            priority: text(PRIORITY).and_then(Priority::parse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_told_is_understood() {
        let mut headers = HeaderMap::new();
        tell(&mut headers, 3, Duration::from_millis(1_500), Priority::LOW);
        let incoming = Incoming::from(&headers);
        assert_eq!((incoming.attempt, incoming.priority), (3, Some(Priority::LOW)));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(incoming.remaining(), Some(Duration::from_secs(1)), "it counts on");
    }

    #[test]
    fn garbage_says_nothing() {
        for garbage in ["", "-1", "1e9", "x", "99999999999999999999999"] {
            let mut headers = HeaderMap::new();
            for name in [ATTEMPT, DEADLINE, PRIORITY] {
                headers.insert(name, HeaderValue::from_static(garbage));
            }
            let incoming = Incoming::from(&headers);
            assert_eq!((incoming.attempt, incoming.priority), (1, None), "{garbage:?}");
            assert_eq!(incoming.deadline, None, "{garbage:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(DEADLINE, u64::MAX.into());
        let _ = Incoming::from(&headers).remaining();
    }
}
