//! `GET /.onceward/…`: what became of an operation. Rule 26 of the contract.

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderValue, Method, Response, StatusCode, request::Parts};
use onceward::{
    Body, Digest, Key, OperationId, OperationName, Scope,
    protocol::Record,
    server::{Code, Errors, Problem},
};

use super::Routes;
use crate::{
    config::{Names, Route, ScopePart},
    identity::{self, Caller},
};

pub(super) async fn answer(
    routes: &Routes,
    path: &str,
    parts: &Parts,
    caller: &Arc<Caller>,
) -> Response<Body> {
    let errors = routes.config.errors;
    if parts.method != Method::GET {
        let refusal = malformed("the status of operations can only be read");
        return refusal.status(StatusCode::METHOD_NOT_ALLOWED).errors(errors).into_response();
    }
    match path {
        "/capabilities" => routes.root.capabilities(),
        "/operations" => match named(routes, parts, caller) {
            Ok(operations) => {
                let known = first_known(routes, &operations).await;
                let missing = || not_found().errors(errors_of(routes, parts)).into_response();
                known.unwrap_or_else(missing)
            }
            Err(problem) => problem.errors(errors_of(routes, parts)).into_response(),
        },
        _ => {
            let reference = path.strip_prefix("/operations/");
            let reference: Option<Digest> = reference.and_then(|text| text.parse().ok());
            match reference {
                Some(reference) => {
                    let owns = |record: &Record| owns(routes, record, parts, caller);
                    routes.root.status(reference, None, owns).await
                }
                None => not_found().errors(errors).into_response(),
            }
        }
    }
}

/// The shape of refusals of the route that the client means; without such a route, of the configuration.
fn errors_of(routes: &Routes, parts: &Parts) -> Errors {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let name = form_urlencoded::parse(query).find(|(name, _)| name == "operation");
    let mut meant = name.into_iter().flat_map(|(_, name)| routes.config.named(&name).next());
    meant.next().map_or(routes.config.errors, |route| route.errors)
}

/// Whether the caller's scope, by the route of that operation, is the record's. The parts that come
/// from the request's path and body are the record's own.
fn owns(routes: &Routes, record: &Record, parts: &Parts, caller: &Caller) -> bool {
    routes
        .config
        .named(record.operation.as_str())
        .flat_map(|route| route.names.iter().map(move |names| (route, names)))
        .filter(|(route, names)| names.includes(record.operation.as_str(), &route.pattern))
        .any(|named| owns_by(named, record, parts, caller))
}

fn owns_by(
    (route, names): (&Route, &Names),
    record: &Record,
    parts: &Parts,
    caller: &Caller,
) -> bool {
    let of_record = |name: &String| {
        let mut parts = record.scope.parts();
        parts.find_map(|(part, value)| (part == *name).then(|| value.to_owned()))
    };
    let (mut parameters, mut json) = (BTreeMap::new(), BTreeMap::new());
    for (part, stored) in route.scope.iter().zip(&names.parts) {
        match part {
            ScopePart::Path(name) => {
                parameters.extend(of_record(stored).map(|it| (name.clone(), it)));
            }
            ScopePart::Json(pointer) => {
                json.extend(of_record(stored).map(|it| (pointer.clone(), it)));
            }
            _ => {}
        }
    }
    let scope = identity::scope_of(route, names, caller, parts, &parameters, &json);
    scope.is_ok_and(|scope| scope == record.scope)
}

/// The status of the first of these that there is.
async fn first_known(routes: &Routes, operations: &[OperationId]) -> Option<Response<Body>> {
    for operation in operations {
        let owns = |record: &Record| record.scope == *operation.scope();
        let status = routes.root.status(operation.digest(), Some(operation), owns).await;
        if status.status() != StatusCode::NOT_FOUND {
            return Some(status);
        }
    }
    None
}

/// The operations that `?operation=…&key=…` may speak of: one, or one for each scope that routes of
/// this name have.
fn named(routes: &Routes, parts: &Parts, caller: &Caller) -> Result<Vec<OperationId>, Problem> {
    let query: BTreeMap<String, String> =
        form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let (Some(name), Some(key)) = (query.get("operation"), query.get("key")) else {
        return Err(malformed("say `?operation=…&key=…`"));
    };
    let name = OperationName::new(name).map_err(|_| malformed("`operation` is not a name"))?;
    let key = Key::new(key).map_err(|_| malformed("`key` is not a key"))?;
    let meant = routes.config.named(name.as_str()).flat_map(|route| {
        let names = route.names.iter().filter(|names| means(route, names, &name));
        names.map(move |names| (route, names))
    });
    let operations = meant.map(|(route, names)| {
        let scope = plain_scope(route, names, parts, caller)?;
        // A parameter may have another name by now than its records have.
        let kept = names.operation.as_ref().and_then(|kept| OperationName::new(kept).ok());
        Ok(OperationId::new(scope, kept.unwrap_or_else(|| name.clone()), key.clone()))
    });
    let (known, missing): (Vec<_>, Vec<_>) = operations.partition(Result::is_ok);
    if known.is_empty() {
        return Err(missing.into_iter().find_map(Result::err).unwrap_or_else(not_found));
    }
    Ok(known.into_iter().flatten().collect())
}

/// Whether a client that says this name speaks of these records.
fn means(route: &Route, names: &Names, name: &OperationName) -> bool {
    let is_method = |text: &str| text.split(' ').next() == Some(names.method.as_str());
    route.name.is_some() || is_method(name.as_str())
}

fn plain_scope(
    route: &Route,
    names: &Names,
    parts: &Parts,
    caller: &Caller,
) -> Result<Scope, Problem> {
    let nothing = BTreeMap::new();
    let from_request = |part: &ScopePart| matches!(part, ScopePart::Path(_) | ScopePart::Json(_));
    if route.scope.iter().any(from_request) {
        return Err(malformed(
            "the scope of this operation is in its request: ask by its reference instead",
        ));
    }
    identity::scope_of(route, names, caller, parts, &nothing, &nothing).map_err(|missing| {
        let text =
            format!("it is not known whose operation this is ({missing}); sign in and ask again");
        let problem = Problem::new(Code::ScopeMissing, text);
        HeaderValue::try_from(route.challenge()).into_iter().fold(problem, Problem::challenge)
    })
}

fn not_found() -> Problem {
    Problem::new(Code::OperationNotFound, "there is no such operation, or it is not yours")
}

fn malformed(text: &'static str) -> Problem {
    Problem::new(Code::RequestMalformed, text)
}
