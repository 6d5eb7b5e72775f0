//! `onceward call`: one request, retried as a careful client retries.

mod document;
mod outcome;
mod pending;
mod screen;
mod sending;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use onceward::{
    Body, Key,
    client::Retry,
    retry::{Priority, Rules},
};

use super::{
    arguments::{self, Line, line, url},
    terminal::{self, BoxError},
};
use crate::config::{BackoffRule, CAP, PATIENT_CAP, duration};
use outcome::Outcome;
use screen::Screen;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Sends one request and retries it safely.
///
/// A POST or PATCH gets an `Idempotency-Key`, the same on every attempt. The command shows attempts, waits
/// and the retry budget on standard error as they happen; the answer's body goes to standard output. With
/// --resume it writes the request down before it sends it, and after a crash the same command sends it
/// again with the same key.
///
/// Exit codes: 0 it succeeded, 3 the server refused it (4xx, a conflict, a stored failure, a redirect), 4 it
/// may have happened, 5 the command gave up; 1 it could not send anything; 2 the command line is wrong.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward call POST http://127.0.0.1:8080/charges -d '{\"cents\": 500}' -H 'X-Api-Key: acme-key'
  onceward call POST http://127.0.0.1:8080/charges -d @charge.json --resume charge.pending
  onceward call --resume charge.pending -H 'X-Api-Key: acme-key'   what was not finished
  onceward call PUT https://api.example/orders/7 -d @order.json --attempts 8 --deadline 2m
  onceward call GET https://api.example/orders/7 --retry-status 404,423 --backoff fixed:500ms
  onceward call POST URL -d @body.json --key 8e03978e-40d5-43dd --json | jq .outcome")]
pub(crate) struct Options {
    /// GET, POST, PUT …
    #[arg(required_unless_present = "resume", requires = "url")]
    method: Option<Method>,
    /// Where the request goes.
    #[arg(required_unless_present = "resume", value_parser = url)]
    url: Option<Uri>,
    /// The body, or `@FILE` with it (`@-`: standard input). JSON goes as `application/json`.
    #[arg(short = 'd', long, value_name = "DATA", requires = "method")]
    data: Option<String>,
    /// A line of the request.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = line)]
    header: Vec<Line>,
    /// The key, for example of a call whose outcome is unknown [default: a new UUID].
    #[arg(long, value_name = "KEY", value_parser = key, requires = "method", conflicts_with = "no_key")]
    key: Option<Key>,
    /// No key: the command then sends a POST or PATCH once, unless it certainly did not arrive.
    #[arg(long, conflicts_with = "resume")]
    no_key: bool,
    /// How many attempts there are in all [default: 3, with --patient 8].
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    /// How long everything may take [default: 10s, with --patient 120s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    /// How long one attempt may take [default: 4s, with --patient 30s, and at most half of --deadline].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    attempt_timeout: Option<Duration>,
    /// How long to wait between attempts: full, equal, decorrelated or additive, with base and cap as in
    /// equal:100ms..10s; fixed:500ms; ranges, or ranges:100ms..200ms,1s..2s; none [default: full].
    #[arg(long, value_name = "KIND")]
    backoff: Option<BackoffRule>,
    /// Statuses after which to try again besides the usual ones, where that is safe, as 404,423.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    retry_status: Vec<u16>,
    /// Statuses after which not to try again, although that is usual, as 500,502.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    no_retry_status: Vec<u16>,
    /// For work that no person waits for: more attempts, and more time for them.
    #[arg(long)]
    patient: bool,
    /// Follows a 202 of Onceward until the operation has ended.
    #[arg(long)]
    until_done: bool,
    /// How important it is, from 0 to 3.
    #[arg(long, value_name = "0-3", value_parser = priority)]
    priority: Option<Priority>,
    /// Writes the request there before it goes out, and forgets it when its outcome is known. A request
    /// that is there already keeps its key. Without METHOD and URL: sends all that are there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Prints what happened as JSON, with the answer in it.
    #[arg(long)]
    json: bool,
}

fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::parse(text).ok_or_else(|| "write 0 (lowest), 1, 2 (normal) or 3 (highest)".to_owned())
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match one_key_each(options).and_then(|()| rules(options)) {
        Ok(rules) => terminal::run(async { Ok(call(options, rules).await?.exit_code()) }),
        Err(error) => terminal::refused(&error, 2),
    }
}

async fn call(options: &Options, rules: Rules) -> Result<Outcome, BoxError> {
    let screen = Screen::default();
    let mut retry = Retry::with(rules).observe(screen.observer()).whole_answers(MOST);
    if options.no_key {
        retry = retry.without_keys();
    }
    if let Some(priority) = options.priority {
        retry = retry.priority(priority);
    }
    match (&options.resume, request(options)?) {
        (None, Some(request)) => send(options, retry, request).await,
        (Some(file), request) => pending::send(options, file, retry, request).await,
        (None, None) => Err("a method and a URL are needed".into()),
    }
}

async fn send(
    options: &Options,
    retry: Retry,
    request: Request<Bytes>,
) -> Result<Outcome, BoxError> {
    // It is in memory anyhow, so that any length can go out again.
    let retry = retry.max_body(request.body().len());
    show(options, &sending::send(&retry, request.map(Body::from)).await?)
}

/// So much of an answer the client reads before it takes the answer for whole.
const MOST: usize = 64 << 20;

/// One key for all that is pending would make one operation of them, and of each a second one.
fn one_key_each(options: &Options) -> Result<(), BoxError> {
    let keyed = options.header.iter().any(|(name, _)| *name == KEY);
    match keyed && options.method.is_none() {
        true => Err("each pending call has its own key: leave out -H 'Idempotency-Key: …'".into()),
        false => Ok(()),
    }
}

fn rules(options: &Options) -> Result<Rules, BoxError> {
    let preset = if options.patient { Rules::patient() } else { Rules::standard() };
    let mut builder = preset.to_builder();
    if let Some(attempts) = options.attempts {
        builder = builder.attempts(attempts);
    }
    if let Some(deadline) = options.deadline {
        builder = builder.deadline(deadline);
    }
    if let Some(timeout) = options.attempt_timeout {
        builder = builder.attempt_timeout(timeout);
    }
    if let Some(backoff) = &options.backoff {
        let cap = if options.patient { PATIENT_CAP } else { CAP };
        builder = builder.backoff(backoff.backoff(cap));
    }
    builder = builder
        .retry_status(options.retry_status.iter().copied())
        .no_retry_status(options.no_retry_status.iter().copied());
    if options.until_done {
        builder = builder.until_done();
    }
    Ok(builder.build()?)
}

fn request(options: &Options) -> Result<Option<Request<Bytes>>, BoxError> {
    let (Some(method), Some(url)) = (&options.method, &options.url) else { return Ok(None) };
    let data = options.data.as_deref().map(arguments::data).transpose()?.map(Bytes::from);
    let mut request = Request::new(data.clone().unwrap_or_default());
    *request.method_mut() = method.clone();
    *request.uri_mut() = url.clone();
    let headers = request.headers_mut();
    for (name, value) in &options.header {
        headers.append(name, value.clone());
    }
    if let Some(key) = &options.key {
        headers.insert(KEY, HeaderValue::from_str(key.as_str())?);
    }
    let is_json = |data: &Bytes| serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
    if data.as_ref().is_some_and(is_json) && !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(Some(request))
}

fn show(options: &Options, ended: &sending::Ended) -> Result<Outcome, BoxError> {
    let outcome = Outcome::of(ended);
    screen::show_end(outcome, ended);
    let written = match options.json {
        true => document::print(outcome, ended),
        false => io::stdout().write_all(ended.body()),
    };
    terminal::read_enough(written)?;
    Ok(outcome)
}
