//! Calls that are written down before they are sent, and sent again after a restart.

use std::path::Path;

use anstream::eprintln;
use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use onceward::client::{Pending, Resume, Retry};

use super::{BoxError, KEY, Options, outcome::Outcome};

/// Sends the request of the command line, or without one all that are in the file.
pub(super) async fn send(
    options: &Options,
    file: &Path,
    retry: Retry,
    request: Option<Request<Bytes>>,
) -> Result<Outcome, BoxError> {
    let resume = Resume::open(file)?;
    let pending = resume.pending().await?;
    let requests = match request {
        Some(request) => vec![known(request, &pending)?],
        None => pending.iter().map(|pending| again(pending, options)).collect(),
    };
    if requests.is_empty() {
        eprintln!("nothing in {} is pending", file.display());
    }
    let retry = retry.resumable(&resume);
    let (mut worst, mut trouble) = (Outcome::Ok, None);
    for request in requests {
        match super::send(options, retry.clone(), request).await {
            Ok(outcome) => worst = worst.max(outcome),
            // The other requests go out all the same.
            Err(error) => {
                if let Some(before) = trouble.replace(error) {
                    eprintln!("error: {before}");
                }
            }
        }
    }
    match (trouble, worst) {
        (None, _) => Ok(worst),
        (Some(error), Outcome::Ok | Outcome::Refused) => Err(error),
        (Some(error), _) => {
            eprintln!("error: {error}");
            Ok(worst)
        }
    }
}

/// The request, with the key under which it was sent before, if it was.
fn known(mut request: Request<Bytes>, pending: &[Pending]) -> Result<Request<Bytes>, BoxError> {
    if request.headers().contains_key(KEY) {
        return Ok(request);
    }
    let same = |pending: &&Pending| {
        (pending.method(), pending.uri(), pending.body())
            == (request.method(), request.uri(), request.body())
    };
    match pending.iter().find(same) {
        Some(pending) => {
            eprintln!("this request is pending: it goes out again with its key");
            request.headers_mut().insert(KEY, HeaderValue::from_str(pending.key())?);
        }
        None if [Method::POST, Method::PATCH].contains(request.method()) => {}
        None => return Err("only a call with a key can be resumed: give it one with --key".into()),
    }
    Ok(request)
}

/// What was written down, with the lines of this command line: secrets are not in the file.
fn again(pending: &Pending, options: &Options) -> Request<Bytes> {
    let mut request = pending.request().map(|_| pending.body().clone());
    for (name, _) in &options.header {
        request.headers_mut().remove(name);
    }
    for (name, value) in &options.header {
        request.headers_mut().append(name, value.clone());
    }
    eprintln!("pending    {} {}", pending.method(), pending.uri());
    request
}
