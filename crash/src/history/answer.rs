//! What an answer says about its operation, by `docs/http-contract.md`.

use std::fmt::{self, Display, Formatter};

use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes; printed as its first eight digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }
}

impl Display for Digest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

/// A complete HTTP answer, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The digest of the header lines that are the same in every replay.
    pub headers: Digest,
    /// The digest of the whole body.
    pub body: Digest,
    /// Whether it says that it is a replay.
    pub replayed: bool,
    /// The `code` of a refusal.
    pub code: Option<String>,
}

impl Reply {
    /// A first answer without a code.
    #[must_use]
    pub fn new(status: u16, headers: Digest, body: Digest) -> Self {
        Self { status, headers, body, replayed: false, code: None }
    }

    /// Whether one may be the replay of the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.status, self.headers, self.body) == (other.status, other.headers, other.body)
    }
}

impl Display for Reply {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.status)?;
        if let Some(code) = &self.code {
            write!(formatter, " `{code}`")?;
        }
        write!(formatter, " (headers {}, body {}", self.headers, self.body)?;
        formatter.write_str(if self.replayed { ", replayed)" } else { ")" })
    }
}

/// What came back from one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It happened. The answer binds: every later one is the same.
    Ok(Reply),
    /// It failed for good. The answer binds; a 4xx says that nothing happened, a 5xx does not.
    BoundFailure(Reply),
    /// A definite failure that binds nothing: the operation did not happen, its key is free.
    NothingHappened(Reply),
    /// This attempt ran nothing; another attempt may have, so about the operation it says nothing.
    NothingRan(Reply),
    /// The system says that nobody knows, or that its answer is gone, and that it has ended.
    OutcomeUnknown(Reply),
    /// An answer that tells nothing about the end: it runs, it was taken over, something failed.
    Unclear(Reply),
    /// No complete answer: the text says what went wrong.
    Lost(String),
}

impl Answer {
    /// The answer that binds, if it is one.
    #[must_use]
    pub fn bound(&self) -> Option<&Reply> {
        match self {
            Self::Ok(reply) | Self::BoundFailure(reply) => Some(reply),
            _ => None,
        }
    }

    /// Whether the attempt may have done anything that its client does not know of.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(_) | Self::Unclear(_) | Self::Lost(_))
    }
}

impl Display for Answer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (word, reply) = match self {
            Self::Ok(reply) => ("ok", reply),
            Self::BoundFailure(reply) => ("bound failure", reply),
            Self::NothingHappened(reply) => ("nothing happened", reply),
            Self::NothingRan(reply) => ("nothing ran", reply),
            Self::OutcomeUnknown(reply) => ("outcome unknown", reply),
            Self::Unclear(reply) => ("unclear", reply),
            Self::Lost(reason) => return write!(formatter, "no answer ({reason})"),
        };
        write!(formatter, "{word} {reply}")
    }
}

/// Reads a complete HTTP answer to a request with a key. What is not complete is [`Answer::Lost`].
///
/// ```
/// use onceward_crash::history::{Answer, classify};
///
/// let ended = [("Idempotency-Completed", "Mon, 16 Nov 2026 00:47:43 GMT")];
/// assert!(matches!(classify(201, ended, b"paid"), Answer::Ok(_)));
/// assert!(matches!(classify(503, [("", ""); 0], b"busy"), Answer::Unclear(_)));
/// ```
pub fn classify<N: AsRef<str>, V: AsRef<[u8]>>(
    status: u16,
    headers: impl IntoIterator<Item = (N, V)>,
    body: &[u8],
) -> Answer {
    let lines = headers.into_iter();
    let lines = lines.map(|(name, value)| (lower(name.as_ref()), value.as_ref().to_vec()));
    let lines: Vec<(String, Vec<u8>)> = lines.collect();
    let value = |wanted: &str| lines.iter().find(|(name, _)| name == wanted).map(|(_, it)| &it[..]);

    let replayed = value("idempotent-replayed") == Some(b"true");
    // Only ended answers carry it, and the layer takes away a service's own line of that name.
    let bound = replayed || value("idempotency-completed").is_some();
    let is_problem = value("content-type").is_some_and(|it| it.starts_with(PROBLEM));
    let code = (is_problem && !bound).then(|| code(body)).flatten();
    let (headers, body) = (end_to_end(&lines), Digest::of(body));
    let reply = Reply { status, headers, body, replayed, code };

    if bound {
        return match status {
            200..400 => Answer::Ok(reply),
            _ => Answer::BoundFailure(reply),
        };
    }
    match reply.code.as_deref() {
        Some(code) => refusal(code, reply.clone()),
        // Without this line it was somebody in front of the layer, who knows nothing.
        None if value("onceward-operation").is_some() && RELEASING.contains(&status) => {
            Answer::NothingHappened(reply)
        }
        None => Answer::Unclear(reply),
    }
}

const PROBLEM: &[u8] = b"application/problem+json";

/// Statuses of a service that free the key: they are believed to mean that nothing was done.
const RELEASING: [u16; 11] = [401, 403, 407, 408, 412, 421, 423, 425, 428, 429, 431];

/// What the codes of the contract say; one that is not known says nothing.
fn refusal(code: &str, reply: Reply) -> Answer {
    match code {
        "not-committed" => Answer::NothingHappened(reply),
        "key-missing" | "key-invalid" | "scope-missing" | "key-reused" | "body-too-large"
        | "request-malformed" | "store-unavailable" | "overloaded" => Answer::NothingRan(reply),
        // A 503 only asks for patience while the end is being made durable.
        "outcome-unknown" if reply.status != 503 => Answer::OutcomeUnknown(reply),
        "result-unavailable" | "key-expired" => Answer::OutcomeUnknown(reply),
        _ => Answer::Unclear(reply),
    }
}

fn code(body: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    document.get("code")?.as_str().map(str::to_owned)
}

/// They belong to one connection or exchange, or say how long the body is, which its digest covers.
const NOT_REPLAYED: [&str; 26] = [
    "age",
    "b3",
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "request-id",
    "server-timing",
    "set-cookie",
    "te",
    "traceparent",
    "traceresponse",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
];

/// The same, for whole families.
const NOT_REPLAYED_PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit", "x-b3-"];

/// The digest of the lines that every replay repeats: names in any order, values of one name not.
fn end_to_end(lines: &[(String, Vec<u8>)]) -> Digest {
    let connection = lines.iter().filter(|(name, _)| name == "connection");
    let nominated: Vec<String> = connection
        .flat_map(|(_, value)| {
            String::from_utf8_lossy(value).split(',').map(lower).collect::<Vec<_>>()
        })
        .collect();
    let is_kept = |name: &String| {
        !NOT_REPLAYED.contains(&name.as_str())
            && !NOT_REPLAYED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !nominated.contains(name)
    };
    let mut kept: Vec<_> = lines.iter().filter(|(name, _)| is_kept(name)).collect();
    kept.sort_by_key(|(name, _)| name);
    let mut bytes = Vec::new();
    for (name, value) in kept {
        for part in [name.as_bytes(), value] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part);
        }
    }
    Digest::of(bytes)
}

fn lower(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: (&str, &str) = ("Idempotency-Completed", "Mon, 16 Nov 2026 00:47:43 GMT");
    const OPERATION: (&str, &str) = ("Onceward-Operation", "geQHhO4s");

    fn word(answer: &Answer) -> &'static str {
        match answer {
            Answer::Ok(_) => "ok",
            Answer::BoundFailure(_) => "bound",
            Answer::NothingHappened(_) => "nothing happened",
            Answer::NothingRan(_) => "nothing ran",
            Answer::OutcomeUnknown(_) => "outcome unknown",
            Answer::Unclear(_) => "unclear",
            Answer::Lost(_) => "lost",
        }
    }

    fn refused(status: u16, code: &str) -> &'static str {
        let body = format!("{{\"code\":\"{code}\"}}");
        let lines = [("content-type", "application/problem+json"), OPERATION];
        word(&classify(status, lines, body.as_bytes()))
    }

    #[test]
    fn what_is_ended_binds() {
        let heard =
            |status, lines: &[(&str, &str)]| word(&classify(status, lines.iter().copied(), b"x"));
        assert_eq!(heard(201, &[ENDED]), "ok");
        assert_eq!(heard(303, &[ENDED]), "ok");
        assert_eq!(heard(409, &[ENDED]), "bound", "a service's own 409");
        assert_eq!(heard(500, &[ENDED]), "bound");
        assert_eq!(heard(202, &[OPERATION]), "unclear", "our own 202 is no end");
        assert_eq!(heard(200, &[("Onceward-Unprotected", "store-unavailable")]), "unclear");
        assert_eq!(heard(429, &[OPERATION]), "nothing happened", "it frees the key");
        assert_eq!(heard(429, &[]), "unclear", "it does not come from the layer");
        assert_eq!(heard(500, &[OPERATION]), "unclear");
        assert_eq!(heard(409, &[OPERATION]), "unclear");
    }

    #[test]
    fn a_refusal_says_what_its_code_says() {
        for code in ["key-missing", "key-invalid", "key-reused", "store-unavailable", "overloaded"]
        {
            assert_eq!(refused(503, code), "nothing ran", "{code}");
        }
        for code in ["in-progress", "lease-lost", "upstream-failed", "misconfigured", "new"] {
            assert_eq!(refused(409, code), "unclear", "{code}");
        }
        assert_eq!(refused(500, "not-committed"), "nothing happened");
        assert_eq!(refused(409, "outcome-unknown"), "outcome unknown");
        assert_eq!(refused(504, "outcome-unknown"), "outcome unknown");
        assert_eq!(refused(503, "outcome-unknown"), "unclear", "it is being made durable");
        assert_eq!(refused(409, "result-unavailable"), "outcome unknown");
    }

    #[test]
    fn a_code_that_a_service_has_stored_is_its_own() {
        let lines = [("content-type", "application/problem+json"), ENDED];
        let answer = classify(409, lines, br#"{"code":"in-progress"}"#);
        assert_eq!(word(&answer), "bound");
    }

    #[test]
    fn only_what_every_replay_repeats_is_compared() {
        let reply = |lines: &[(&str, &str)], body: &[u8]| {
            classify(201, lines.iter().copied().chain([ENDED]), body).bound().cloned().unwrap()
        };
        let first = reply(&[("Link", "a"), ("Link", "b"), ("ETag", "1"), ("Date", "now")], b"x");
        let replay = [("idempotent-replayed", "true"), ("etag", "1"), ("link", "a"), ("link", "b")];
        let again = reply(&replay, b"x");
        assert!(first.is_same(&again) && again.replayed && !first.replayed);
        let hop = [("Connection", "close, X-Hop"), ("X-Hop", "1"), ("RateLimit-Limit", "9")];
        assert!(reply(&hop, b"x").is_same(&reply(&[], b"x")));
        assert!(
            !reply(&[("link", "b"), ("link", "a")], b"x")
                .is_same(&reply(&[("link", "a"), ("link", "b")], b"x"))
        );
        assert!(!first.is_same(&reply(&replay, b"y")));
        assert!(!first.is_same(&reply(&replay[..3], b"x")));
    }
}
