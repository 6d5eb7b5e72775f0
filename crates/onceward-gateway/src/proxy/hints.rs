//! What a client says about its request: how long it waits, how important it is, and how often it has
//! tried. Rules 14 and 28: read here, bounded, and written anew for the upstream.

use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use onceward::{AttemptHeaders, retry::Priority};
use tokio::time::Instant;

pub(super) const DEADLINE: HeaderName = AttemptHeaders::DEADLINE;
pub(super) const PRIORITY: HeaderName = AttemptHeaders::PRIORITY;
pub(super) const ATTEMPT: HeaderName = AttemptHeaders::ATTEMPT;

/// What a client says about its request; an unreadable line counts as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHints {
    /// When the client does not wait for the answer any more.
    pub(super) deadline: Option<Instant>,
    pub(super) priority: Option<Priority>,
    /// Which attempt of the client this is, counted from 1.
    pub(super) attempt: u32,
    /// Whether it said so.
    pub(super) counts: bool,
    /// Whether a trusted proxy vouches for it.
    pub(super) is_trusted: bool,
}

impl RequestHints {
    /// Of a request that says nothing.
    pub(super) const NONE: Self =
        Self { deadline: None, priority: None, attempt: 1, counts: false, is_trusted: false };

    /// What a request said that was [taken](Self::take) out of its headers.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::NONE)
    }

    pub(super) fn take(headers: &mut HeaderMap, is_trusted: bool, arrived: Instant) -> Self {
        // Most requests say nothing of it.
        if !headers.keys().any(|name| name.as_str().starts_with("onceward-")) {
            return Self { is_trusted, ..Self::NONE };
        }
        let AttemptHeaders { attempt, time, priority } = AttemptHeaders::of(headers);
        for name in [DEADLINE, PRIORITY, ATTEMPT] {
            headers.remove(name);
        }
        Self {
            deadline: time.map(|time| arrived + time),
            priority,
            attempt: attempt.unwrap_or(1),
            counts: attempt.is_some(),
            is_trusted,
        }
    }

    /// How important it is: clients may ask for less than the route says, trusted proxies for anything.
    pub(super) fn priority(&self, of_route: Priority) -> Priority {
        match self.priority {
            None => of_route,
            Some(asked) if self.is_trusted => asked,
            Some(asked) => asked.min(of_route),
        }
    }

    /// What is left of the client's time; `None`: it did not say.
    pub(super) fn left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    pub(super) fn is_retry(&self) -> bool {
        self.attempt > 1
    }

    /// Tells the upstream: how long the client waits for this attempt, and how important it is.
    pub(super) fn tell(&self, headers: &mut HeaderMap, patience: Duration, of_route: Priority) {
        if let Some(left) = self.left() {
            let millis = u64::try_from(left.min(patience).as_millis()).unwrap_or(u64::MAX);
            headers.insert(DEADLINE, HeaderValue::from(millis));
        }
        if self.priority.is_some() || of_route != Priority::NORMAL {
            let priority = u16::from(self.priority(of_route).number());
            headers.insert(PRIORITY, HeaderValue::from(priority));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pairs: &[(&'static str, &'static str)], is_trusted: bool) -> (RequestHints, Instant) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let now = Instant::now();
        let hints = RequestHints::take(&mut headers, is_trusted, now);
        assert!(headers.is_empty(), "they are made anew: {headers:?}");
        (hints, now)
    }

    #[tokio::test]
    async fn what_a_client_says_is_counted_from_its_arrival() {
        let said = [("onceward-deadline", "250"), ("onceward-attempt", "3")];
        let (hints, arrived) = taken(&said, false);
        assert_eq!(hints.deadline, Some(arrived + Duration::from_millis(250)));
        assert_eq!((hints.attempt, hints.counts), (3, true));
        let (silent, _) = taken(&[("onceward-deadline", "soon"), ("onceward-attempt", "0")], false);
        assert_eq!(silent, RequestHints::NONE);
    }

    #[tokio::test]
    async fn a_client_lowers_its_priority_and_a_trusted_proxy_chooses() {
        for (said, is_trusted, of_route, expected) in [
            ("3", false, Priority::NORMAL, Priority::NORMAL),
            ("0", false, Priority::NORMAL, Priority::LOWEST),
            ("3", true, Priority::NORMAL, Priority::HIGHEST),
            ("1", true, Priority::HIGHEST, Priority::LOW),
            ("9", true, Priority::LOW, Priority::LOW),
        ] {
            let (hints, _) = taken(&[("onceward-priority", said)], is_trusted);
            assert_eq!(hints.priority(of_route), expected, "{said}");
        }
    }
}
