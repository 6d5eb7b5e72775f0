//! Requests that nobody should send, each with what may become of it.
//!
//! In all of them `c0000` stands for the number of the case, `/c0000/intended` for the request that
//! a strict reader sees, and `/c0000/smuggled` for one that only a careless reader sees.

mod bodies;
mod chunks;
mod frames;
mod heads;
mod lines;
mod targets;

/// What the upstream may see of the intended request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// It is not a request.
    Nothing,
    /// It is one, and it means one thing.
    Once,
    /// The RFC leaves it to the server.
    AtMostOnce,
    /// It does so too, but nothing that follows on the same connection may be believed.
    AtMostOnceAndTheEnd,
}

use Allowed::{AtMostOnce, AtMostOnceAndTheEnd, Nothing, Once};

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) allowed: Allowed,
    pub(crate) bytes: Vec<u8>,
}

/// What a careless reader would take for a request; it stands in bodies and behind them.
const SMUGGLED: &str = "GET /c0000/smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

pub(crate) fn all() -> Vec<Case> {
    let groups =
        [bodies::all(), chunks::all(), frames::all(), heads::all(), lines::all(), targets::all()];
    groups.into_iter().flatten().collect()
}

fn case(name: impl Into<String>, allowed: Allowed, bytes: impl Into<Vec<u8>>) -> Case {
    Case { name: name.into(), allowed, bytes: bytes.into() }
}

/// A request with a key: these lines in its head, and then this.
fn post(lines: &str, rest: &str) -> String {
    format!(
        "POST /c0000/intended HTTP/1.1\r\nHost: h\r\nIdempotency-Key: c0000\r\n{lines}\r\n{rest}"
    )
}

/// A request without a key.
fn unkeyed(lines: &str, rest: &str) -> String {
    format!("POST /c0000/intended HTTP/1.1\r\nHost: h\r\n{lines}\r\n{rest}")
}

/// A request without a body.
fn bare(lines: &str) -> String {
    format!("GET /c0000/intended HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}
