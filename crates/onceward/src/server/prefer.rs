//! How long a client is ready to wait, and whether it would rather ask later: RFC 7240.

use std::time::Duration;

use http::HeaderMap;

use super::{IdempotencyBuilder, InFlight, headers, options::checked::Options};

/// What a request does while its operation is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    pub(super) wait: Duration,
    /// What it gets after that.
    pub(super) after: AfterWait,
    /// Whether the client itself asked for that.
    pub(super) is_preferred: bool,
}

/// What the layer answers when the patience of a request is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterWait {
    /// 409, if it is a duplicate; the first one waits for its answer.
    Conflict,
    /// 202, if it is a duplicate; the first one waits for its answer.
    Accepted,
    /// 202, also the first one.
    Async,
}

impl Patience {
    pub(super) fn of(options: &Options, headers: &HeaderMap) -> Self {
        let plain = Self { wait: Duration::ZERO, after: AfterWait::Conflict, is_preferred: false };
        let route = match options.in_flight {
            InFlight::Conflict => plain,
            InFlight::Wait(wait) => Self { wait, ..plain },
            InFlight::Accepted => Self { after: AfterWait::Accepted, ..plain },
            InFlight::Async => Self { after: AfterWait::Async, ..plain },
        };
        match options.chosen.prefer {
            true => route.preferring(headers),
            false => route,
        }
    }

    /// The first preference of a name counts; a malformed one is no preference.
    fn preferring(mut self, headers: &HeaderMap) -> Self {
        let (mut wait, mut asynchronous) = (None, false);
        let headers = headers.get_all(headers::PREFER).iter().filter_map(|line| line.to_str().ok());
        for preference in headers.flat_map(|line| split_unquoted(line, ',')) {
            let token = split_unquoted(preference, ';').next().unwrap_or_default().trim();
            let (name, value) = token.split_once('=').unwrap_or((token, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "wait" if wait.is_none() => wait = value.trim().trim_matches('"').parse().ok(),
                "respond-async" => asynchronous = true,
                _ => {}
            }
        }
        if let Some(seconds) = wait {
            self.wait = Duration::from_secs(seconds).min(IdempotencyBuilder::MAX_WAIT);
        } else if asynchronous {
            self.wait = Duration::ZERO;
        }
        if asynchronous {
            self.after = AfterWait::Async;
        }
        self.is_preferred = asynchronous;
        self
    }
}

/// The pieces between separators that are not inside of a quoted string.
fn split_unquoted(line: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    line.split(move |character| {
        let escapes = quoted && !escaped && character == '\\';
        quoted ^= character == '"' && !escaped;
        escaped = escapes;
        character == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_leniently_and_bounded() {
        let plain = Patience {
            wait: Duration::from_secs(2),
            after: AfterWait::Conflict,
            is_preferred: false,
        };
        for (prefers, wait, asynchronous) in [
            (&[][..], 2, false),
            (&["wait=5"], 5, false),
            (&["Wait = \"5\"; x=1"], 5, false),
            (&["wait=0"], 0, false),
            (&["wait=99999"], 30, false),
            (&["wait=-1"], 2, false),
            (&["wait=soon"], 2, false),
            (&["wait=5, wait=9"], 5, false),
            (&["respond-async"], 0, true),
            (&["respond-async, wait=10"], 10, true),
            (&["return=minimal", "wait=3"], 3, false),
            (&["note=\"so, wait=5, please\""], 2, false),
            (&["note=\"a\\\", respond-async\", wait=4"], 4, false),
        ] {
            let mut headers = HeaderMap::new();
            for line in prefers {
                headers.append(headers::PREFER, line.parse().unwrap());
            }
            let wait = Duration::from_secs(wait);
            let after = if asynchronous { AfterWait::Async } else { AfterWait::Conflict };
            let expected = Patience { wait, after, is_preferred: asynchronous };
            assert_eq!(plain.preferring(&headers), expected, "{prefers:?}");
        }
    }
}
