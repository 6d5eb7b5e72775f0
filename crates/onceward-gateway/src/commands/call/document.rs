//! The same for programs: one JSON document on standard output.

use std::io::{self, Write as _};

use base64ct::{Base64, Encoding as _};
use onceward::client::Attempt;
use serde::Serialize;

use super::{outcome::Outcome, sending::Ended};
use crate::commands::terminal::millis;

#[derive(Serialize)]
struct Document<'a> {
    outcome: Outcome,
    exit_code: u8,
    status: Option<u16>,
    headers: Vec<(&'a str, String)>,
    body: Option<&'a str>,
    body_base64: Option<String>,
    key: Option<&'a str>,
    /// The server has said that it does not keep the key.
    unprotected: bool,
    stop: Option<&'static str>,
    error: Option<&'a str>,
    retry_after_ms: Option<u64>,
    total_ms: u64,
    polls: u32,
    attempts: Vec<Try>,
}

#[derive(Serialize)]
struct Try {
    attempt: u32,
    hedge: bool,
    started_ms: u64,
    took_ms: u64,
    class: &'static str,
    status: Option<u16>,
    failure: Option<String>,
    retry_after_ms: Option<u64>,
    wait_ms: Option<u64>,
}

pub(super) fn print(outcome: Outcome, ended: &Ended) -> io::Result<()> {
    let report = ended.report();
    let text = std::str::from_utf8(ended.body()).ok().filter(|_| ended.answer().is_some());
    let base64 = || Base64::encode_string(ended.body());
    let headers = ended.answer().map(|answer| {
        let line = |(name, value)| lossy_line(name, value);
        answer.headers.iter().map(line).collect()
    });
    let document = Document {
        outcome,
        exit_code: outcome.code(),
        status: ended.answer().map(|answer| answer.status.as_u16()),
        headers: headers.unwrap_or_default(),
        body: text,
        body_base64: (text.is_none() && ended.answer().is_some()).then(base64),
        key: report.key(),
        unprotected: report.unprotected,
        stop: report.stop.map(|stop| stop.reason().as_str()),
        error: ended.error.as_deref(),
        retry_after_ms: report.hint.map(millis),
        total_ms: millis(report.total),
        polls: report.polls,
        attempts: report.attempts.iter().map(Try::from).collect(),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)
}

fn lossy_line<'a>(name: &'a http::HeaderName, value: &http::HeaderValue) -> (&'a str, String) {
    (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned())
}

impl From<&Attempt> for Try {
    fn from(attempt: &Attempt) -> Self {
        Self {
            attempt: attempt.number,
            hedge: attempt.hedge,
            started_ms: millis(attempt.started),
            took_ms: millis(attempt.took),
            class: attempt.class.as_str(),
            status: attempt.status.map(|status| status.as_u16()),
            failure: attempt.failure.clone(),
            retry_after_ms: attempt.hint.map(millis),
            wait_ms: attempt.wait.map(millis),
        }
    }
}
