//! Answers: the first time, kept, and again.

use axum::{body::Body, response::Response};

use super::{Api, Defect};

/// What a payment is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Bytes that are no text, with repeated headers, and different each time.
    Binary,
    /// JSON with the number of the payment.
    Json,
    /// Always the same.
    Alike,
}

/// An answer as it is kept: lines in order, and bytes.
#[derive(Clone)]
pub(super) struct Kept {
    status: u16,
    lines: Vec<(String, String)>,
    body: Vec<u8>,
    /// When the key is free again; refusals that are not kept have none.
    expires: Option<String>,
}

impl Answers {
    pub(super) fn of(self, number: u64, said: Option<&str>) -> Kept {
        let (kind, body) = match self {
            Self::Binary => {
                ("application/pdf", [&[0xff, 0, 0xc3, 0x28], &number.to_be_bytes()[..]].concat())
            }
            Self::Json => ("application/json", format!("{{\"id\":{number}}}").into_bytes()),
            Self::Alike => ("text/plain", b"done".to_vec()),
        };
        let body = [body, said.unwrap_or_default().into()].concat();
        let kept = Kept { status: 201, lines: Vec::new(), body, expires: None };
        let kept = kept.line("content-type", kind);
        let mut kept = match self {
            Self::Binary => kept
                .line("location", &format!("/payments/{number}"))
                .line("link", "</help>; rel=help")
                .line("link", "</terms>; rel=terms"),
            Self::Json | Self::Alike => kept,
        };
        kept.expires = Some(expiry(number));
        kept
    }
}

/// A refusal.
pub(super) fn problem(api: &Api, status: u16, text: &str) -> Kept {
    let is_plain = api.has(Defect::PlainErrors);
    let document = serde_json::json!({"type": "about:blank", "title": text, "status": status});
    let (kind, body) = match is_plain {
        true => ("text/plain", text.to_owned()),
        false => ("application/problem+json", document.to_string()),
    };
    let kept = Kept { status, lines: Vec::new(), body: body.into_bytes(), expires: None };
    kept.line("content-type", kind)
}

/// What a retry is told whose first request lost its client.
pub(super) fn lost(api: &Api) -> Response {
    let (status, document) = api.nature.lost.unwrap_or((500, ""));
    let is_problem = !document.contains("\"error\"");
    let kind = if is_problem { "application/problem+json" } else { "application/json" };
    let kept = Kept { status, lines: Vec::new(), body: document.into(), expires: None };
    kept.line("content-type", kind).response()
}

impl Kept {
    pub(super) fn line(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// To whom it is the first.
    pub(super) fn first(self, api: &Api) -> Response {
        let is_marked = api.has(Defect::MarkerOnFirst);
        let expires = self.expires.clone();
        let kept = if is_marked { self.line("idempotent-replayed", "true") } else { self };
        kept.until(api, expires).response()
    }

    /// Again.
    pub(super) fn replayed(mut self, api: &Api) -> Response {
        let mut expires = self.expires.clone();
        match api.nature.defect {
            Some(Defect::StatusChanged) if self.status == 201 => self.status = 200,
            Some(Defect::ErrorBecomes200) if self.status >= 400 => self.status = 200,
            Some(Defect::ContentTypeLost) => self.lines.retain(|(name, _)| name != "content-type"),
            Some(Defect::HeadersCollapsed) => {
                let mut known = std::collections::HashSet::new();
                self.lines.retain(|(name, _)| known.insert(name.clone()));
            }
            Some(Defect::BinaryAsText) => {
                self.body = String::from_utf8_lossy(&self.body).into_owned().into_bytes();
            }
            Some(Defect::BodyRebuilt) => self.body.insert(0, b' '),
            Some(Defect::ExpiryMoves) => expires = Some(expiry(58) + " or later"),
            _ => {}
        }
        let is_marked = !api.has(Defect::MarkerMissing);
        let kept = if is_marked { self.line("idempotent-replayed", "true") } else { self };
        kept.until(api, expires).response()
    }

    fn until(self, api: &Api, expires: Option<String>) -> Self {
        match expires.filter(|_| !api.has(Defect::ExpiryMissing)) {
            Some(expires) => self.line("idempotency-expires", &expires),
            None => self,
        }
    }

    pub(super) fn response(self) -> Response {
        let builder = Response::builder().status(self.status);
        let lines = self.lines.iter();
        let builder = lines.fold(builder, |builder, (name, value)| builder.header(name, value));
        builder.body(Body::from(self.body)).unwrap()
    }
}

fn expiry(number: u64) -> String {
    format!("Thu, 01 Jan 2099 00:00:{:02} GMT", number % 59)
}
