//! What an operator gets when something is not done.

use std::{borrow::Cow, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use onceward::StoreError;
use serde_json::json;

use super::document;

/// Sent as `application/problem+json`: what happened, what it means, what to do.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: Cow<'static, str>,
    retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    pub(super) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// The record is not in a state for it; nothing was changed.
    pub(super) fn conflict(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    pub(super) fn not_found() -> Self {
        let text = "nothing is known of this operation: not now, and its trail is empty";
        Self::new(StatusCode::NOT_FOUND, "operation-not-found", text)
    }

    pub(super) fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        // The operator's words, and not the store, are at fault.
        if let StoreError::Refused(_) = error {
            return Self::malformed(format!("{error}; nothing was changed"));
        }
        let doubt = match error.is_definite() {
            true => "nothing was changed",
            false => "look again before you repeat it",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", format!("{error}; {doubt}"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, detail, retry_after } = self;
        let document = json!({
            "type": format!("urn:onceward:problem:{code}"),
            "title": code.replace('-', " "),
            "status": status.as_u16(),
            "code": code,
            "detail": detail,
        });
        let mut response = document::answer(status, &document);
        let lines = response.headers_mut();
        lines.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(pause) = retry_after {
            lines.insert(header::RETRY_AFTER, HeaderValue::from(pause.as_secs().max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            lines.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
