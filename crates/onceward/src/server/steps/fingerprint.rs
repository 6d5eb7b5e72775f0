//! Step 2: read the request to its end and hash what it means. Rule 7 of the contract.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, Uri, header, request::Parts};
use onceward_core::{Fingerprint, OperationId, Request, RequestHead};

use crate::server::{
    Code, Idempotency, Problem, WholeBody,
    body::{self, ReadBody, Unread},
    memory::{self, Reservation},
};

/// A request that was read to its end, with the memory that it takes up.
pub(crate) struct ReadRequest {
    whole: ReadBody,
    reserved: Reservation,
}

impl ReadRequest {
    /// The body for the service; the memory stays taken until what comes with it is dropped.
    pub(crate) fn open<B: WholeBody>(self) -> (B, Reservation) {
        (
            B::from_whole(self.whole.bytes, self.whole.trailers.map(|headers| *headers)),
            self.reserved,
        )
    }
}

pub(crate) async fn read<B: WholeBody>(
    idempotency: &Idempotency,
    operation: OperationId,
    parts: &Parts,
    body: B,
) -> Result<(Request, ReadRequest), Problem> {
    let options = idempotency.options();
    let most = options.chosen.max_request;
    if body::declared_length(&parts.headers).is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    let mut reserved = idempotency.memory_for(parts).nothing();
    let mut full = false;
    let read = body::read_whole(body, &parts.headers, |length| {
        full = length <= most && !reserved.grow_to(length);
        length <= most && !full
    });
    let whole = match read.await {
        Ok(whole) => whole,
        Err(Unread::TooLarge(..)) if full => return Err(memory::full()),
        Err(Unread::TooLarge(..)) => return Err(too_large(most)),
        Err(Unread::Truncated) => {
            let text = "the body ended before all of it was there, and nothing was run: a request has to \
                        be sent whole";
            return Err(Problem::new(Code::RequestMalformed, text));
        }
    };
    let plain = fingerprint(parts, &options.fingerprint_headers, &whole.bytes);
    let fingerprints =
        options.chosen.fingerprints.as_ref().map_or_else(|| plain.into(), |by| by(plain));
    let request = Request { operation, fingerprints, terms: options.terms };
    Ok((request, ReadRequest { whole, reserved }))
}

fn fingerprint(parts: &Parts, extra: &[HeaderName], body: &[u8]) -> Fingerprint {
    let uri = original_uri(parts);
    let content_type = joined(&parts.headers, &header::CONTENT_TYPE);
    let content_encoding = joined(&parts.headers, &header::CONTENT_ENCODING);
    let mut head = RequestHead::new(parts.method.as_str(), uri.path())
        .query(uri.query())
        .content_type(content_type.as_deref())
        .content_encoding(content_encoding.as_deref());
    for name in extra {
        for value in parts.headers.get_all(name) {
            head = head.header(name.as_str(), value.as_bytes());
        }
    }
    Fingerprint::v1(&head, body)
}

/// The path that the client sent: a nested router sees only the rest of it.
pub(crate) fn original_uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

/// All lines of a name, as one list.
fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut headers = headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
    let first = headers.next()?;
    Some(headers.fold(Cow::Borrowed(first), |all, line| [&all, &b", "[..], line].concat().into()))
}

fn too_large(most: usize) -> Problem {
    let text = format!("the request has more than {most} bytes; nothing was run");
    Problem::new(Code::BodyTooLarge, text)
}
