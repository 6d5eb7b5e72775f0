//! A message as a request.

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use onceward_core::message::Message;

use crate::{
    AttemptHeaders,
    client::{Body, KEY},
    outbox::Attempt,
};

const TOPIC: HeaderName = HeaderName::from_static("onceward-topic");
const AGGREGATE: HeaderName = HeaderName::from_static("onceward-aggregate");
const TRACE: HeaderName = HeaderName::from_static("traceparent");

/// What the sink or HTTP itself sets, whatever a message or an operator says.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    const OF_HTTP: [HeaderName; 8] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    *name == KEY
        || *name == TRACE
        || OF_HTTP.contains(name)
        || name.as_str().starts_with("onceward-")
        || name.as_str().starts_with("proxy-")
        || name.as_str() == "keep-alive"
        || name.as_str() == "http2-settings"
}

pub(super) fn of(
    url: &Uri,
    lines: &[(HeaderName, HeaderValue)],
    message: &Message,
    attempt: &Attempt,
) -> Request<Body> {
    let mut request = Request::new(Body::from(message.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    let headers = request.headers_mut();
    for (name, value) in &message.headers {
        // The queue has checked them, but other software may have written them.
        let name = HeaderName::try_from(name.as_str()).ok();
        let value = HeaderValue::from_bytes(value.as_bytes()).ok();
        if let (Some(name), Some(value)) = (name, value)
            && !is_ours(&name)
        {
            headers.append(name, value);
        }
    }
    for (name, _) in lines {
        headers.remove(name);
    }
    for (name, value) in lines {
        headers.append(name.clone(), value.clone());
    }
    let json = HeaderValue::from_static("application/json");
    headers.entry(header::CONTENT_TYPE).or_insert(json);
    let mut set = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.insert(name, value);
        }
    };
    set(KEY, &message.id.to_string());
    set(TOPIC, message.topic.as_str());
    set(AGGREGATE, message.aggregate.as_str());
    if let Some(trace) = &attempt.traceparent {
        set(TRACE, trace);
    }
    let (number, time) = (Some(attempt.number), Some(attempt.timeout));
    AttemptHeaders { attempt: number, time, priority: None }.write(headers);
    request
}
