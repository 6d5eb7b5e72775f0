//! The checks: what each asks, what it is worth, who suffers, and how to mend it.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Profile {
    /// The Internet-Draft of the header, where it speaks
    Ietf,
    /// What clients of Stripe rely on
    Stripe,
    /// All that Onceward promises
    Onceward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Good to know; it does not count.
    Info,
    Minor,
    Major,
    Critical,
}

impl Severity {
    /// What a check counts in the score.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::Info => 0,
            Self::Minor => 2,
            Self::Major => 5,
            Self::Critical => 10,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&name(self))
    }
}

#[derive(Serialize)]
pub(super) struct Check {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// For the profiles `ietf`, `stripe` and `onceward`; the probe does not ask what a profile does not speak of.
    #[serde(skip)]
    severity: [Option<Severity>; 3],
    pub(super) harm: &'static str,
    /// What the makers of the API can do.
    pub(super) fix: &'static str,
}

impl Check {
    pub(super) fn severity(&self, profile: Profile) -> Option<Severity> {
        self.severity[profile as usize]
    }
}

/// As the command line and the document have it.
pub(super) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

pub(super) fn check(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

use Severity::{Critical, Info, Major, Minor};

const fn everywhere(severity: Severity) -> [Option<Severity>; 3] {
    [Some(severity), Some(severity), Some(severity)]
}

/// In the order in which the probe asks them.
pub(super) static CHECKS: [Check; 30] = [
    Check {
        id: "once",
        title: "A retry with the same key does not land again",
        severity: everywhere(Critical),
        harm: "A client that retries after a lost answer pays, orders or books twice.",
        fix: "Store a record under the key before the work is done, and answer retries from it.",
    },
    Check {
        id: "replay-status",
        title: "A retry gets the status of the first answer",
        severity: everywhere(Major),
        harm: "A client that retries takes another branch than one whose first answer arrived.",
        fix: "Store the status with the answer, and send it again.",
    },
    Check {
        id: "replay-body",
        title: "A retry gets the bytes of the first answer",
        severity: everywhere(Major),
        harm: "A client that retries sees another result than what was done.",
        fix: "Store the bytes of the answer, not what they were made of.",
    },
    Check {
        id: "replay-headers",
        title: "A retry gets the headers of the first answer",
        severity: everywhere(Minor),
        harm: "A content type, a Location or an ETag is missing or wrong after a retry.",
        fix: "Store the header lines with the answer.",
    },
    Check {
        id: "fidelity-headers",
        title: "Headers that come several times do so again",
        severity: everywhere(Minor),
        harm: "Links or other values get lost in a retry.",
        fix: "Store headers as a list of lines, not as a map with one value for each name.",
    },
    Check {
        id: "fidelity-binary",
        title: "A binary answer is the same again",
        severity: everywhere(Major),
        harm: "A PDF or a picture that comes with a retry cannot be opened.",
        fix: "Store bytes; do not decode them as text on the way.",
    },
    Check {
        id: "marker",
        title: "A replay says that it is one",
        severity: [None, Some(Minor), Some(Minor)],
        harm: "Clients and operators cannot tell replays from first answers.",
        fix: "Send Idempotent-Replayed: true with replays.",
    },
    Check {
        id: "marker-first",
        title: "A first answer does not say that it is a replay",
        severity: everywhere(Minor),
        harm: "Clients that skip what they believe done before lose work.",
        fix: "Send Idempotent-Replayed with replays only.",
    },
    Check {
        id: "expiry",
        title: "Answers say how long a retry is safe, and always the same",
        severity: [None, None, Some(Minor)],
        harm: "A client does not know when its retry becomes a second order.",
        fix: "Send Idempotency-Expires with first answers and replays, from the record.",
    },
    Check {
        id: "concurrent",
        title: "Duplicates at the same time land once",
        severity: everywhere(Critical),
        harm: "A double tap, or a proxy that retries early, lands twice.",
        fix: "Claim the key in one atomic step before the work; looking first and storing later is a race.",
    },
    Check {
        id: "in-flight",
        title: "A duplicate of what is running waits, or gets 409 or 202",
        severity: everywhere(Major),
        harm: "Clients take an error for a failure of the operation, and start another one.",
        fix: "Let duplicates of a running request wait for its answer, or answer them with 409, or with 202 and \
              the Location of its status.",
    },
    Check {
        id: "retry-after",
        title: "A busy answer says when to come back",
        severity: [None, None, Some(Minor)],
        harm: "Clients come back at once and again and again.",
        fix: "Send Retry-After with the 409 or 202 of a running request.",
    },
    Check {
        id: "disconnect",
        title: "A client that vanished and retries gets one result",
        severity: everywhere(Critical),
        harm: "After a lost connection the key is locked for ever, or the operation lands twice.",
        fix: "Let the work end without its client, settle its record, and let claims run out after a crash.",
    },
    Check {
        id: "mismatch",
        title: "The same key for another request is refused",
        severity: everywhere(Critical),
        harm: "A client with a bug believes that its payment of 20 was made, and it was the one of 10.",
        fix: "Store a digest of the request with the key, and compare it first.",
    },
    Check {
        id: "mismatch-status",
        title: "That refusal has the status that clients expect",
        severity: everywhere(Minor),
        harm: "Libraries for clients do not recognise it.",
        fix: "Answer 422 (draft and Onceward) or 400 (Stripe).",
    },
    Check {
        id: "mismatch-query",
        title: "The query is part of the request",
        severity: everywhere(Major),
        harm: "A request for another account or currency gets the answer of the first.",
        fix: "Put the query into the digest of the request.",
    },
    Check {
        id: "mismatch-tail",
        title: "All of a large request counts",
        severity: everywhere(Major),
        harm: "Two uploads that differ at their end are taken for one, and the second is lost.",
        fix: "Digest the whole body, or refuse bodies that are too large for it.",
    },
    Check {
        id: "json-order",
        title: "JSON that means the same is the same request",
        severity: [Some(Info), Some(Minor), Some(Minor)],
        harm: "A client that writes its retry anew, with other spaces or order, is refused.",
        fix: "Digest JSON by its meaning: members sorted, spaces left out.",
    },
    Check {
        id: "chunked",
        title: "The same body in chunks is the same request",
        severity: everywhere(Major),
        harm: "A retry through another proxy or library is refused, or lands again.",
        fix: "Digest the body, not the way it is framed.",
    },
    Check {
        id: "error-status",
        title: "A retry of a request that failed does not succeed by itself",
        severity: everywhere(Major),
        harm: "A client believes that a payment was made which was refused.",
        fix: "Store the status with the answer, or do not store errors.",
    },
    Check {
        id: "scope",
        title: "Two callers may use the same key",
        severity: everywhere(Critical),
        harm: "One customer gets the answer of another, with what is in it, and is not served.",
        fix: "Make the caller's identity part of the key.",
    },
    Check {
        id: "unauthenticated",
        title: "A caller without a credential gets no stored answer",
        severity: everywhere(Critical),
        harm: "A stranger who guesses or reads a key gets the answer.",
        fix: "Authenticate and authorise before the key is looked up.",
    },
    Check {
        id: "gate",
        title: "A request that was not let in does not use up its key",
        severity: everywhere(Major),
        harm: "A client that repairs its credential and retries gets the old refusal for a day.",
        fix: "Check credentials first, and do not store 401 and 403.",
    },
    Check {
        id: "key-case",
        title: "Keys differ by upper and lower case",
        severity: everywhere(Major),
        harm: "Two base64 keys that differ by case are one, and one of two operations is lost.",
        fix: "Compare keys byte by byte.",
    },
    Check {
        id: "key-quoted",
        title: "A key in quotes is the same key",
        severity: [None, None, Some(Minor)],
        harm: "A client that follows the draft in one release and not in the next lands twice.",
        fix: "Read the header as a structured string, and take a bare key for the same.",
    },
    Check {
        id: "key-long",
        title: "Keys that are too long are refused, not cut",
        severity: everywhere(Major),
        harm: "Two keys with the same beginning are one, and one of two operations is lost.",
        fix: "Refuse keys over 255 characters with 400.",
    },
    Check {
        id: "key-empty",
        title: "An empty key is no key that all share",
        severity: everywhere(Major),
        harm: "All callers whose client forgot the key get the answer of the first of them.",
        fix: "Refuse an empty key with 400.",
    },
    Check {
        id: "key-lines",
        title: "Two keys in one request are refused",
        severity: everywhere(Minor),
        harm: "Gateway and service may each take another one of them.",
        fix: "Refuse a request with more than one Idempotency-Key with 400.",
    },
    Check {
        id: "key-missing",
        title: "What happens without a key",
        severity: everywhere(Info),
        harm: "A client that forgets the key has no protection, and its makers do not notice.",
        fix: "Require the key where a second effect costs money: 400 without it.",
    },
    Check {
        id: "problem-json",
        title: "Refusals are problem documents",
        severity: [Some(Minor), None, Some(Minor)],
        harm: "Programs cannot tell the reasons of refusals apart.",
        fix: "Answer application/problem+json with type, title or detail, and status.",
    },
];
