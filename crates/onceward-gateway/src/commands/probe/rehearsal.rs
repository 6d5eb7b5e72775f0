//! The operation of the command line, and whether it can be probed at all.

use std::{net::IpAddr, time::Duration};

use http::{HeaderValue, StatusCode, Uri, header};

use super::{
    BoxError, Options, chain,
    counter::{CountAt, Counter},
    operation::{self, Operation},
    scenes::Stage,
    wire::Wire,
};
use crate::commands::arguments::{self, Line};

pub(super) fn operation(options: &Options) -> Result<Operation, BoxError> {
    let read = |data: &Option<String>| data.as_deref().map(data_of).transpose();
    let data = read(&options.data)?;
    let mut headers = options.header.clone();
    let says_type = headers.iter().any(|(name, _)| name == header::CONTENT_TYPE);
    if let (Some(data), false) = (&data, says_type) {
        let kind = match operation::looks_like_json(data) {
            true => "application/json",
            false => "application/x-www-form-urlencoded",
        };
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static(kind)));
    }
    Ok(Operation {
        url: options.url.clone().ok_or("there is no URL")?,
        method: options.method.clone(),
        headers,
        credentials: credentials(options)?,
        data,
        other_data: read(&options.other_data)?,
        bad_data: read(&options.bad_data)?,
        profile: options.profile,
    })
}

fn credentials(options: &Options) -> Result<Vec<Line>, BoxError> {
    let texts = options.credential.iter();
    let credentials: Vec<Line> = texts.map(|text| credential(text)).collect::<Result<_, _>>()?;
    match &credentials[..] {
        lines if lines.iter().any(|(name, _)| *name == operation::KEY) => {
            Err("a key is no --credential; the probe chooses the keys itself".into())
        }
        [one, other] if one == other => {
            Err("both --credential are the same; give those of two callers".into())
        }
        [_, _, _, ..] => Err("give at most two --credential, of two callers".into()),
        _ => Ok(credentials),
    }
}

fn credential(text: &str) -> Result<Line, BoxError> {
    let wrong = "a --credential is not `Name: value`; it is not repeated here, as it may be secret";
    arguments::line(text).map_err(|_| wrong.into())
}

fn data_of(text: &str) -> Result<String, BoxError> {
    Ok(String::from_utf8(arguments::data(text)?)?)
}

pub(super) async fn is_here(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.is_loopback();
    }
    match tokio::net::lookup_host((host, 80)).await {
        Ok(mut addresses) => addresses.all(|address| address.ip().is_loopback()),
        Err(_) => false,
    }
}

/// Two pieces of work: does it work at all, do answers differ, and how long does it take?
pub(super) async fn rehearse<'a>(
    options: &Options,
    operation: &'a Operation,
    wire: &'a Wire,
) -> Result<Stage<'a>, BoxError> {
    let count_at = options.count_url.clone().zip(options.count_json.clone());
    let api = count_at.map(|(url, pointer)| Counter::Api(CountAt { url, pointer }));
    let before = match &api {
        Some(api) => Some((api, api.mark(wire, operation).await?)),
        None => None,
    };
    let unreachable = |trouble: BoxError| format!("{}: {}", operation.url, chain(&*trouble));
    let one = wire.send(&operation.fresh()).await.map_err(unreachable)?;
    let two = wire.send(&operation.fresh()).await.map_err(unreachable)?;
    for answer in [&one, &two] {
        if !answer.is_success() {
            return Err(format!(
                "the operation itself does not succeed: {}; the probe can say nothing about retries. Does \
                 it need --data, --header or --credential, or {{{{uuid}}}} where each must differ?",
                answer.shown()
            )
            .into());
        }
    }
    if let Some((api, mark)) = before {
        let landed = api.landed(wire, operation, mark, &[]).await?.times();
        if landed != Some(2) && !wire.is_dry() {
            return Err(format!(
                "the count URL counts two requests with two keys as {}; does --count-url count this \
                 operation, and nothing else?",
                landed.unwrap_or_default()
            )
            .into());
        }
    }
    let by_answers = if one.is_like(&two) { Counter::Blind } else { Counter::Answers };
    Ok(Stage {
        operation,
        wire,
        counter: api.unwrap_or(by_answers),
        duplicates: options.duplicates,
        patience: Duration::from_secs(options.patience),
        usual: one.took.min(two.took),
        is_accepting: one.status == StatusCode::ACCEPTED,
    })
}
