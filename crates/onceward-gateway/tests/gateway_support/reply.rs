//! The answer that a client of a test has received.
#![allow(dead_code, reason = "each program of tests uses its part")]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) async fn read(response: Response<Incoming>) -> Result<Self, hyper::Error> {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Ok(Self { status, headers, body: collected.to_bytes(), trailers })
    }

    /// The first answer in these bytes and how many bytes it takes, if all of it is there.
    ///
    /// A body in chunks has no trailers here.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..end]);
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let lines = head.lines().skip(1).filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let name: HeaderName = name.parse().ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        let (body, length) = if headers.contains_key("transfer-encoding") {
            chunks(&bytes[end..])?
        } else {
            let length = headers.get("content-length").map(|length| length.to_str().ok());
            let length = length.map_or(Some(0), |length| length?.parse().ok())?;
            (bytes.get(end..end + length)?.to_vec(), length)
        };
        Some((Self { status, headers, body: body.into(), trailers: None }, end + length))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().expect("a header is not text"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The status and the code of the problem document, or nothing as the code of other answers.
    pub(crate) fn problem(&self) -> (u16, String) {
        (self.status, self.code().unwrap_or_default())
    }

    /// The code of the problem document, if it is one.
    pub(crate) fn code(&self) -> Option<String> {
        self.is_problem().then(|| self.json()["code"].as_str().unwrap().into())
    }

    /// Whether it says that the same request may have another answer soon.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_problem() && self.json()["retryable"] == true
    }

    fn is_problem(&self) -> bool {
        self.header("content-type") == Some("application/problem+json")
    }
}

/// A body in chunks without trailers and how many bytes it takes, if its end is there.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let end = at + bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..end]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = bytes.get(end + 2..end + 4 + size)?;
        body.extend_from_slice(&chunk[..size]);
        at = end + 4 + size;
        if size == 0 {
            return Some((body, at));
        }
    }
}
