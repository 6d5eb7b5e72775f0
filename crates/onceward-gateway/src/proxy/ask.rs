//! What the gateway asks other services: whether a caller may see a replay, what became of an operation,
//! and how to make an answer again.

use std::{collections::BTreeMap, future::ready, sync::Arc, time::Duration};

use base64ct::Encoding as _;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
    request::Parts,
};
use hyper::body::Incoming;
use onceward::{
    Body, BoxError, Outcome, Resolution,
    protocol::StoredBody,
    server::{Code, IdempotencyBuilder, PeerMemory, Problem, Resource, Unresolved, WholeBody as _},
    telemetry::event,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    RequestContext,
    body::{self, Begun, Unread},
    key::{self, InBody},
    timed::Timed,
    upstream::{Lane, Upstream},
};
use crate::{
    config::{Authorize, KeySource, Rebuild, Route, ScopePart},
    identity,
    observe::Parent,
};

/// How long a service may take to answer a question of the gateway.
const HOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may take to send all of a request that is read whole.
const WHOLE: Duration = Duration::from_secs(300);

/// How much of an answer to a question is read.
const MAX_ANSWER: usize = 8 << 20;

pub(super) fn hooks(
    options: IdempotencyBuilder,
    route: &Arc<Route>,
    upstream: &Upstream,
    memory: &PeerMemory,
) -> IdempotencyBuilder {
    let mut options = match &route.authorize {
        Authorize::None => options,
        Authorize::Jwt | Authorize::Mtls => {
            let route = route.clone();
            options.authorize_replay_or_say(move |parts| {
                let context = parts.extensions.get::<RequestContext>();
                ready(context.map_or_else(
                    || Err(String::new()),
                    |context| identity::may_see(&route.authorize, &context.caller),
                ))
            })
        }
        Authorize::Url(url) => {
            let asked = Arc::new((upstream.clone(), url.clone()));
            options.authorize_replay(move |parts| {
                let (asked, headers) = (asked.clone(), parts.headers.clone());
                let parent = parts.extensions.get::<Parent>().cloned();
                async move { is_allowed(&asked.0, &asked.1, headers, parent).await }
            })
        }
    };
    if let Some(url) = route.reconcile.clone() {
        let asked = Arc::new((upstream.clone(), url, memory.clone()));
        options = options.resolver(move |unresolved| {
            let asked = asked.clone();
            async move { reconcile(&asked, &unresolved).await }
        });
    }
    if let Some(rebuild) = route.rebuild.clone() {
        let asked = Arc::new((upstream.clone(), rebuild, memory.clone()));
        options = options.rebuild(move |resource| {
            let asked = asked.clone();
            async move { make_again(&asked, &resource).await }
        });
    }
    options
}

/// `GET` with the caller's headers: 2xx allows.
async fn is_allowed(
    upstream: &Upstream,
    url: &Uri,
    mut headers: HeaderMap,
    parent: Option<Parent>,
) -> bool {
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::HOST, header::EXPECT] {
        headers.remove(name);
    }
    super::headers::strip_hop_by_hop(&mut headers, &[]);
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = url.clone();
    *request.headers_mut() = headers;
    if let Some(parent) = parent {
        request.extensions_mut().insert(parent);
    }
    match upstream.ask(request, HOOK_TIMEOUT).await {
        Ok(response) => response.status().is_success(),
        Err(failure) => {
            tracing::warn!(event = event::AUTHORIZE_FAILED, %failure, "the authorize URL gave no answer; the replay is not shown, and the client may ask again");
            false
        }
    }
}

async fn reconcile(
    (upstream, url, memory): &(Upstream, Uri, PeerMemory),
    unresolved: &Unresolved,
) -> Result<Option<Resolution>, BoxError> {
    let (reference, execution) = (unresolved.reference(), unresolved.execution());
    let started = jiff::Timestamp::from_microsecond(unresolved.started_at().unix_micros());
    let started = started.map_err(|error| error.to_string())?;
    let question = json!({
        "operation": reference.to_string(),
        "execution": format!("{reference}.{execution}"),
        "attempt": unresolved.attempt(),
        "started_at": started.to_string(),
    });
    let mut request = Request::new(Body::from(question.to_string().into_bytes()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::CONTENT_TYPE, json);
    let response =
        upstream.ask(request, HOOK_TIMEOUT).await.map_err(|failure| failure.to_string())?;
    if !response.status().is_success() {
        return Err(format!("the reconcile URL answered {}", response.status()).into());
    }
    let text = whole(response, memory).await?;
    // For its parts, and for the answer in it; the layer counts what it becomes.
    let mut parsed = memory.nothing();
    if !parsed.grow_to(2 * text.len()) {
        return Err("too many bytes are held in memory here".into());
    }
    let answer: Value = serde_json::from_slice(&text)?;
    match answer["outcome"].as_str() {
        Some("applied") => Ok(Some(Resolution::Applied(outcome(&answer["response"])?))),
        Some("never") => Ok(Some(Resolution::Never)),
        Some("unknown") => Ok(None),
        _ => Err("the reconcile URL said neither applied, never nor unknown".into()),
    }
}

/// The answer that a reconcile URL gives; without one it counts as ended, but not kept.
fn outcome(response: &Value) -> Result<Outcome, BoxError> {
    let Some(status) = response["status"].as_u64() else {
        let mut outcome = Outcome::inline(200, Vec::new());
        outcome.body = StoredBody::Unavailable;
        return Ok(outcome);
    };
    let body = match response["body_base64"].as_str() {
        Some(text) => base64ct::Base64::decode_vec(text).map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    let mut outcome = Outcome::inline(u16::try_from(status)?, body);
    for line in response["headers"].as_array().into_iter().flatten() {
        let (Some(name), Some(value)) = (line[0].as_str(), line[1].as_str()) else {
            return Err("a header of the reconciled response is not a pair of texts".into());
        };
        let name: HeaderName = name.parse()?;
        outcome = outcome.header(name.as_str(), value.as_bytes());
    }
    Ok(outcome)
}

/// Rebuilds an answer that the record keeps as a reference.
async fn make_again(
    (upstream, rebuild, memory): &(Upstream, Rebuild, PeerMemory),
    resource: &Resource,
) -> Result<Option<Response<Bytes>>, BoxError> {
    let path = rebuild.template.replace("{id}", &escaped(resource.id()));
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse()?;
    let response = upstream
        .send(Lane::Other, request, HOOK_TIMEOUT)
        .await
        .map_err(|failure| failure.to_string())?;
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    if !response.status().is_success() {
        return Err(format!("the rebuild URL answered {}", response.status()).into());
    }
    let (parts, body) = response.into_parts();
    let bytes = whole(Response::new(body), memory).await?;
    Ok(Some(Response::from_parts(parts, bytes)))
}

fn escaped(id: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    id.bytes().fold(String::new(), |mut text, byte| {
        match plain(&byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

async fn whole(response: Response<Incoming>, memory: &PeerMemory) -> Result<Bytes, BoxError> {
    let body = Body::new(Timed::whole(response.into_body(), Instant::now() + HOOK_TIMEOUT));
    match body::begin(body, MAX_ANSWER, None, memory).await {
        Ok(Begun::All(bytes, _, reserved)) => Ok(reserved.hold(bytes)),
        Ok(Begun::Some(..)) => Err("the answer is too large".into()),
        Err(Unread::BrokenOff(error)) => Err(error),
        Err(Unread::Full) => Err("too many bytes are held in memory here".into()),
    }
}

/// What a route takes from a body, and the body again.
pub(super) struct ReadBody {
    /// The values of the `json:` parts of its scope.
    pub(super) json: BTreeMap<String, String>,
    pub(super) key: InBody,
    pub(super) body: Body,
}

/// Reads what a route takes from a body. Only for such a route the body is read here.
pub(super) async fn read(
    route: &Route,
    parts: &Parts,
    body: Body,
    memory: &PeerMemory,
) -> Result<ReadBody, Problem> {
    let nothing = |body| ReadBody { json: BTreeMap::new(), key: Ok(None), body };
    if !key::may_be_there(&route.key_source, &parts.headers) {
        return Ok(nothing(body));
    }
    let pointers: Vec<&String> = route
        .scope
        .iter()
        .filter_map(|part| match part {
            ScopePart::Json(pointer) => Some(pointer),
            _ => None,
        })
        .collect();
    let of_key = match &route.key_source {
        KeySource::Json(pointer) => Some(pointer),
        KeySource::Headers(_) | KeySource::EventHeader(_) => None,
    };
    let body = Timed::whole(body, Instant::now() + WHOLE);
    if pointers.is_empty() && of_key.is_none() {
        return Ok(nothing(Body::new(body)));
    }
    let begun = body::begin(Body::new(body), route.max_request, None, memory).await;
    let (bytes, trailers, reserved) = match begun.map_err(Unread::into_problem)? {
        Begun::All(bytes, trailers, reserved) => (bytes, trailers, reserved),
        Begun::Some(..) => {
            let text = "the request is larger than this route allows; nothing was run";
            return Err(Problem::new(Code::BodyTooLarge, text));
        }
    };
    let wanted = pointers.iter().copied().chain(of_key).map(String::as_str);
    let document = identity::document(&bytes, wanted);
    let key = of_key.map_or(Ok(None), |pointer| {
        key::in_body(pointer, &parts.headers, &bytes, document.as_ref())
    });
    let value = |pointer: &String| {
        let value = identity::plain(document.as_ref()?.at(pointer)?)?;
        Some((pointer.clone(), value))
    };
    let json = pointers.into_iter().filter_map(value).collect();
    let body = match of_key.is_some() && key == Ok(None) {
        // The gateway may pass it on, and its memory counts until it has left.
        true => Body::from_whole(reserved.hold(bytes), trailers),
        // Given back here: the layer counts the body as it reads it, which it does at once.
        false => Body::from_whole(bytes, trailers),
    };
    Ok(ReadBody { json, key, body })
}
