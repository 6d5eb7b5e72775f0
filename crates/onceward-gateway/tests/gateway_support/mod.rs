//! `onceward serve` as a process, upstreams in Python and Node, and clients: for tests of the gateway.
//!
//! ```ignore
//! #[path = "../gateway_support/mod.rs"]
//! mod gateway_support;
//!
//! let upstream = Upstream::any();
//! let gateway = Gateway::start(&upstream, &route("in_flight = \"wait\""));
//! let reply = gateway.send(&Call::post("/pay").key("k").header("x-api-key", "alice")).await;
//! assert_eq!((reply.status, upstream.count().await), (201, 1));
//! ```
//!
//! The upstreams do what the JSON in the request header `x-do` says ([`Call::told`]); it is not part of
//! the fingerprint, so a retry may say something else. Who cannot send a header writes it as `?do=`, escaped ([`told_url`]).
//! Its words, all optional:
//!
//! | word | meaning |
//! |---|---|
//! | `status`, `headers: [[name, value]]`, `body` | the answer; `receipt N` with status 201 if not said. Text is Latin-1 |
//! | `size` | a body of so many bytes, [`pattern`] |
//! | `pad` | so many spaces behind the body |
//! | `echo` | the body is JSON: what was received, as in `GET /seen` |
//! | `framing` | `length`, `chunked` or `close`; with `chunked` also `trailers: [[name, value]]` |
//! | `delay` | so many seconds before the answer, after it was counted |
//! | `gate` | waits, after it was counted, until [`Upstream::open`] |
//! | `pause` | so many seconds between the two halves of the body |
//! | `hang_up` | closes the connection instead of an answer, after it was counted |
//! | `cut` | closes the connection after so many bytes of the body |
//! | `early` | answers with this status without reading the body; is not counted |
//! | `stream` | sends each piece of the request back at once; is not counted |
//!
//! `GET /count` is `{"total", "by_key", "by_path"}`, and `GET /seen` a list of `{"method", "path", "key",
//! "headers", "trailers", "size", "body"}`.

#![allow(dead_code, unused_imports, reason = "each file of tests uses its part")]

mod certificates;
mod client;
mod command;
mod gateway;
mod reply;
mod upstream;

use std::time::Duration;

pub(crate) use certificates::{Certificates, element};
pub(crate) use client::{Call, Link, Pipe, Version, raw, read_until};
pub(crate) use command::{Finished, command, run};
pub(crate) use gateway::{Gateway, Plan, route, route_for};
pub(crate) use reply::Reply;
pub(crate) use testbed::{Signal, TEST_TIMEOUT, free_address};
pub(crate) use upstream::{Kind, Upstream, upstreams};

/// The body that an upstream sends when it is told a `size`.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251 * 31 % 251) as u8).collect()
}

/// A URL of this upstream that does this.
pub(crate) fn told_url(upstream: &Upstream, path: &str, what: &serde_json::Value) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("do", &what.to_string())
        .finish();
    format!("{}{path}?{}", upstream.url(), query.replace('+', "%20"))
}

/// Asks again and again until it is so.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + TEST_TIMEOUT;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < end, "it never was so: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
