//! What became of an operation, and what is promised here: rule 26 of the contract.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Query, rejection::PathRejection},
    routing::get,
};
use http::{Method, Response, StatusCode, header, request::Parts};
use onceward_core::{
    Digest, Found, Key, OperationId, OperationName, Record, Scope, State, Status, Stored, Terms,
    Timestamp,
};
use serde_json::{Value, json};

use crate::{
    server::{
        Body, Code, Idempotency, Problem, cause_of,
        idempotency::lock,
        options::checked::Options,
        steps::{admit::UNKNOWN_ADVICE, identify, respond, unknown},
    },
    telemetry::event,
};

impl Idempotency {
    /// Routes that show a caller what became of its operations, to be merged into a router.
    ///
    /// `GET /.onceward/operations/{reference}`, `GET /.onceward/operations?operation=&key=` and
    /// `GET /.onceward/capabilities`. Put the same authentication around them as around the routes
    /// that they speak of: a caller sees only operations of its own scope.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # fn main() -> Result<(), OptionsError> {
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// # let idempotency = Idempotency::builder(MemoryStore::not_durable(), scope).build()?;
    /// let app: axum::Router = axum::Router::new().merge(idempotency.status_routes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// They take every caller's scope in the same way. Where routes differ in that, use
    /// [`status`](Self::status).
    pub fn status_routes<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let path = &self.options().chosen.status_path;
        let (by_reference, by_key, capable) = (self.clone(), self.clone(), self.clone());
        let by_reference = async move |reference: Result<Path<String>, PathRejection>,
                                       parts: Parts| {
            let reference = reference.ok().and_then(|Path(text)| text.parse().ok());
            let response = async {
                let id = reference.ok_or_else(not_found)?;
                let scope = scope_of(&by_reference, &parts)?;
                status(&by_reference, id, None, |record| record.scope == scope).await
            };
            by_reference.or_refusal(response.await)
        };
        let by_key = async move |Query(query): Query<HashMap<String, String>>, parts: Parts| {
            let response = async {
                let operation = named(&by_key, &parts, &query)?;
                let owns = |record: &Record| record.scope == *operation.scope();
                status(&by_key, operation.digest(), Some(&operation), owns).await
            };
            by_key.or_refusal(response.await)
        };
        let capable = async move || json_response(&capabilities(&capable));
        Router::new()
            .route(&format!("{path}/operations/{{reference}}"), get(by_reference))
            .route(&format!("{path}/operations"), get(by_key))
            .route(&format!("{path}/capabilities"), get(capable))
    }

    /// What became of an operation, as the status routes show it, if it belongs to the caller.
    ///
    /// `operation` is what the caller named by scope, name and key, if it did: then the answer shows
    /// damage, too.
    pub async fn status(
        &self,
        reference: Digest,
        operation: Option<&OperationId>,
        owns: impl Fn(&Record) -> bool + Send,
    ) -> Response<Body> {
        self.or_refusal(status(self, reference, operation, owns).await)
    }

    fn or_refusal(&self, answer: Result<Response<Body>, Problem>) -> Response<Body> {
        answer.unwrap_or_else(|refusal| refusal.errors(self.options().errors).into_response())
    }

    /// What is promised for each route, as the status routes show it.
    #[must_use]
    pub fn capabilities(&self) -> Response<Body> {
        json_response(&capabilities(self))
    }

    /// Tells in [`capabilities`](Self::capabilities) of a route that takes no keys, which no layer covers:
    /// nothing is promised for it.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let idempotency = Idempotency::builder(MemoryStore::not_durable(), scope).build()?;
    /// idempotency.tell_uncovered("POST /search", &[http::Method::POST]);
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn tell_uncovered(&self, label: &str, methods: &[Method]) {
        let route = Uncovered { label: label.to_owned(), methods: methods.to_vec() };
        lock(&self.shared().uncovered).push(route);
    }

    /// Tells in [`capabilities`](Self::capabilities) how the store may lose what it acknowledged, as it says
    /// itself: `RedisStore::durability`, then `losses`. The store is called relaxed there.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// let idempotency = Idempotency::builder(MemoryStore::not_durable(), scope).build()?;
    /// idempotency.tell_losses(["a process that ends loses every record".to_owned()]);
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn tell_losses(&self, losses: impl IntoIterator<Item = String>) {
        lock(&self.shared().losses).extend(losses);
    }
}

/// A route that takes no keys.
pub(crate) struct Uncovered {
    label: String,
    methods: Vec<Method>,
}

fn scope_of(idempotency: &Idempotency, parts: &Parts) -> Result<Scope, Problem> {
    let options = idempotency.options();
    (options.chosen.scope)(parts)
        .map_err(|reason| identify::scope_missing(options, &reason, "ask again"))
}

/// The operation that a query speaks of, in the caller's own scope.
fn named(
    idempotency: &Idempotency,
    parts: &Parts,
    query: &HashMap<String, String>,
) -> Result<OperationId, Problem> {
    let malformed = |text: String| Problem::new(Code::RequestMalformed, text);
    let part = |name| match query.get(name) {
        Some(value) => Ok(value),
        None => Err(malformed(format!("say `?operation=…&key=…`: `{name}` is missing"))),
    };
    let name =
        OperationName::new(part("operation")?).map_err(|error| malformed(error.to_string()))?;
    let key = Key::new(part("key")?).map_err(|error| malformed(error.to_string()))?;
    Ok(OperationId::new(scope_of(idempotency, parts)?, name, key))
}

async fn status(
    idempotency: &Idempotency,
    id: Digest,
    operation: Option<&OperationId>,
    owns: impl Fn(&Record) -> bool,
) -> Result<Response<Body>, Problem> {
    let mut found = read(idempotency, id).await?;
    if let Found::Record(stored) = &found
        && owns(&stored.record)
        && stored.status() == Status::Unknown
        && let Some(options) = idempotency.options_of(&stored.record.operation)
        && unknown::resolve((idempotency, &options), id, operation, stored).await
    {
        found = read(idempotency, id).await?;
    }
    match found {
        Found::Record(stored) if owns(&stored.record) => match stored.status() {
            Status::Expired => Err(not_found().of(id)),
            status => Ok(document(id, &stored, status)),
        },
        // Damage is not absence; but only a caller that names scope and key has shown that it owns it.
        Found::Unreadable { .. } if operation.is_some() => Ok(json_response(&json!({
            "operation": id.to_string(), "name": null, "state": Status::Unknown.as_str(),
            "attempt": null, "started_at": null, "updated_at": null, "expires_at": null,
            "status": null, "cause": "the record is damaged", "advice": UNKNOWN_ADVICE,
        }))),
        Found::Record(_) | Found::Nothing | Found::Unreadable { .. } => Err(not_found().of(id)),
    }
}

async fn read(idempotency: &Idempotency, id: Digest) -> Result<Found, Problem> {
    idempotency.engine().read(&id).await.map_err(|error| {
        tracing::error!(event = event::STORE_FAILED, %error, "a status could not be read");
        let text = "the status cannot be read now; ask again";
        Problem::new(Code::StoreUnavailable, text).retry_after(Duration::from_secs(1))
    })
}

fn document(id: Digest, stored: &Stored, status: Status) -> Response<Body> {
    let record = &stored.record;
    let (answer, expires_at) = match &record.state {
        State::Succeeded(outcome) | State::FailedFinal(outcome) => {
            (Some(outcome.status), stored.expires_at().and_then(rfc3339))
        }
        _ => (None, None),
    };
    let mut response = json_response(&json!({
        "operation": id.to_string(),
        "name": record.operation.as_str(),
        "state": status.as_str(),
        "attempt": record.attempts,
        "started_at": rfc3339(stored.started_at()),
        "updated_at": rfc3339(stored.updated_at),
        "expires_at": expires_at,
        "status": answer,
        "cause": cause_of(stored),
        "advice": (status == Status::Unknown).then_some(UNKNOWN_ADVICE),
    }));
    if status == Status::InProgress {
        let pause = respond::whole_seconds(Duration::from_secs(1));
        response.headers_mut().insert(header::RETRY_AFTER, pause);
    }
    response
}

/// What is promised for each route: the tiers of docs/guarantees.md.
fn capabilities(idempotency: &Idempotency) -> Value {
    let shared = idempotency.shared();
    let mut all: Vec<Value> = shared
        .routes()
        .iter()
        .map(|route| capability(route.label.as_deref(), &route.chosen.methods, Some(route)))
        .collect();
    let uncovered = lock(&shared.uncovered);
    all.extend(uncovered.iter().map(|route| capability(Some(&route.label), &route.methods, None)));
    let losses = lock(&shared.losses);
    match losses.is_empty() {
        true => json!({ "routes": all }),
        false => json!({ "store": "relaxed", "losses": *losses, "routes": all }),
    }
}

/// Without options no layer covers the route.
fn capability(name: Option<&str>, methods: &[Method], options: Option<&Arc<Options>>) -> Value {
    let (key, effect, tier) = match options {
        None => ("off", None, "none"),
        Some(options) => {
            let effect = options.terms.effect();
            let key = if options.chosen.key_required { "required" } else { "optional" };
            (key, Some(effect.as_str()), effect.tier())
        }
    };
    let millis = |time: fn(&Terms) -> Duration| {
        options.and_then(|options| u64::try_from(time(&options.terms).as_millis()).ok())
    };
    let passes = options.map(|options| options.chosen.pass_when_store_is_down);
    json!({
        "name": name,
        "methods": methods.iter().map(Method::as_str).collect::<Vec<_>>(),
        "key": key,
        "effect": effect,
        "tier": tier,
        "lease_ms": millis(Terms::lease),
        "retain_ms": millis(Terms::retain),
        "on_store_down": passes.map(|passes| if passes { "pass" } else { "refuse" }),
    })
}

fn json_response(document: &Value) -> Response<Body> {
    respond::json(StatusCode::OK, document)
}

fn rfc3339(time: Timestamp) -> Option<String> {
    Some(jiff::Timestamp::from_microsecond(time.unix_micros()).ok()?.to_string())
}

fn not_found() -> Problem {
    Problem::new(Code::OperationNotFound, "there is no such operation, or it is not yours")
}
