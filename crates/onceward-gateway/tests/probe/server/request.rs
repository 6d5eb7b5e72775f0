//! What was asked: who, with which key, and what it means.

use axum::{
    body::{Bytes, to_bytes},
    extract::Request,
};
use http::{HeaderMap, Uri, header};
use serde_json::Value;

use super::{Defect, Nature};
use crate::run::CALLERS;

/// The longest key.
const LONGEST: usize = 255;

pub(super) struct Asked {
    uri: Uri,
    method: String,
    is_chunked: bool,
    /// As they came.
    pub(super) lines: Vec<String>,
    pub(super) caller: Option<String>,
    pub(super) body: Bytes,
}

impl Asked {
    pub(super) async fn read(
        nature: &Nature,
        request: Request,
    ) -> Result<Self, (u16, &'static str)> {
        let (parts, body) = request.into_parts();
        let length = || parts.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        if nature.largest.is_some_and(|largest| length().is_some_and(|size: u64| size > largest)) {
            return Err((413, "it is too large"));
        }
        let body = to_bytes(body, 8 << 20).await.map_err(|_| (400, "it has no end"))?;
        let lines = all(&parts.headers, "idempotency-key");
        let caller = all(&parts.headers, "x-api-key").pop();
        let caller = caller.filter(|caller| CALLERS.contains(&caller.as_str()));
        let is_chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
        Ok(Self {
            uri: parts.uri,
            method: parts.method.to_string(),
            is_chunked,
            lines,
            caller,
            body,
        })
    }

    /// The key by the rules, if there is one.
    pub(super) fn key(&self, nature: &Nature) -> Result<Option<String>, &'static str> {
        let has = |defect| nature.defect == Some(defect);
        let line = match &self.lines[..] {
            [] => return Ok(None),
            [line] => line.as_str(),
            [line, ..] if has(Defect::TwoLinesAccepted) => line,
            _ => return Err("two keys"),
        };
        let bare = line.strip_prefix('"').and_then(|line| line.strip_suffix('"'));
        let bare = if has(Defect::QuotedIsAnotherKey) { line } else { bare.unwrap_or(line) };
        let mut key = bare.to_owned();
        if has(Defect::CaseFolded) {
            key.make_ascii_lowercase();
        }
        if has(Defect::LongKeysCut) {
            key.truncate(LONGEST);
        }
        if has(Defect::ChunkedIsAnotherKey) && self.is_chunked {
            key += " in chunks";
            return Ok(Some(key));
        }
        let is_right = key.len() <= LONGEST && key.bytes().all(|byte| byte.is_ascii_graphic());
        match is_right && (!key.is_empty() || has(Defect::EmptyKeyShared)) {
            true => Ok(Some(key)),
            false => Err("it is no key"),
        }
    }

    /// Whose key it is.
    pub(super) fn scope(&self, nature: &Nature) -> String {
        match nature.defect {
            Some(Defect::NoScope) => String::new(),
            _ => self.caller.clone().unwrap_or_default(),
        }
    }

    /// What the request means.
    pub(super) fn fingerprint(&self, nature: &Nature) -> Vec<u8> {
        let has = |defect| nature.defect == Some(defect);
        let target = match has(Defect::QueryIgnored) {
            true => self.uri.path(),
            false => self.uri.path_and_query().unwrap().as_str(),
        };
        let mut body = self.body.to_vec();
        if let Ok(value) = serde_json::from_slice::<Value>(&body)
            && !has(Defect::RawBytes)
        {
            body = value.to_string().into_bytes();
        }
        if has(Defect::OnlyFirstMegabyte) {
            body.truncate(1 << 20);
        }
        let framing =
            if has(Defect::ChunkedIsMismatch) && self.is_chunked { "chunked" } else { "" };
        [format!("{} {target} {framing}\n", self.method).into_bytes(), body].concat()
    }

    /// Why it cannot be done.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let document: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        (!document["cents"].is_u64()).then_some("how much?")
    }
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}
