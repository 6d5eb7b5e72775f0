//! The scope of a request: the proven values of the parts that its route names.

use std::collections::BTreeMap;
use std::fmt;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use onceward::Scope;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Caller;
use crate::config::{Names, Route, ScopePart};

/// The part of a scope that has no value in a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopeMissing {
    /// As in the configuration: `jwt:sub`.
    pub(crate) part: String,
    /// For the problem and for logs; it never repeats what the request said.
    pub(crate) reason: String,
}

impl fmt::Display for ScopeMissing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the scope part {} is missing: {}", self.part, self.reason)
    }
}

/// To whom the operation of this request belongs.
///
/// The names are those under which the route keeps such records. The JSON parts are values of the body by
/// their pointers, made with [`plain`]. For a status request path parameters and JSON parts are those of
/// the record.
pub(crate) fn scope_of(
    route: &Route,
    names: &Names,
    caller: &Caller,
    parts: &Parts,
    path_parameters: &BTreeMap<String, String>,
    json_parts: &BTreeMap<String, String>,
) -> Result<Scope, ScopeMissing> {
    let known = ScopeSources { caller, headers: &parts.headers, path_parameters, json_parts };
    join(&route.scope, &names.parts, &known)
}

/// A scalar of a body as the text that it is in a scope, if it can be part of one.
///
/// A number must be whole and exact: a rounded one would join two owners. `7` and `"7"` are one value:
/// the caller chose both, and a client that sends the other one under the same key is refused, because the
/// fingerprint tells the bodies apart.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

struct ScopeSources<'a> {
    caller: &'a Caller,
    headers: &'a HeaderMap,
    path_parameters: &'a BTreeMap<String, String>,
    json_parts: &'a BTreeMap<String, String>,
}

/// `names` are those of the parts in records.
fn join(
    scope: &[ScopePart],
    names: &[String],
    known: &ScopeSources<'_>,
) -> Result<Scope, ScopeMissing> {
    if !scope.is_empty() && scope.iter().all(|part| *part == ScopePart::Global) {
        return Ok(Scope::global());
    }
    let mut named = Vec::new();
    let parts = scope.iter().zip(names).filter(|(part, _)| **part != ScopePart::Global);
    for (part, name) in parts {
        match known.value_of(part) {
            Ok(value) => named.push((name.as_str(), value)),
            Err(reason) => return Err(ScopeMissing { part: part.to_string(), reason }),
        }
    }
    Scope::new(named).map_err(|error| {
        let reason = error.to_string();
        let part = match error {
            onceward::protocol::ScopeError::Empty(name)
            | onceward::protocol::ScopeError::TooLong(name)
            | onceward::protocol::ScopeError::Repeated(name) => name.into(),
            _ => "scope".into(),
        };
        ScopeMissing { part, reason }
    })
}

impl ScopeSources<'_> {
    fn value_of(&self, part: &ScopePart) -> Result<String, String> {
        let value = match part {
            ScopePart::Jwt(claim) => match claim_of(self.caller, claim)? {
                Value::String(text) => text.clone(),
                Value::Number(_) => {
                    return Err(format!("it is a number; write `jwt-number:{claim}`"));
                }
                _ => return Err("the claim is not a text".into()),
            },
            ScopePart::JwtNumber(claim) => match claim_of(self.caller, claim)? {
                number @ Value::Number(_) => {
                    plain(number).ok_or("it is not whole, or too large")?
                }
                _ => return Err("the claim is not a number".into()),
            },
            ScopePart::CertificateSubject => {
                let no_name = "the client sent no certificate, or one whose names cannot be read";
                self.caller.certified().ok_or(no_name)?.to_owned()
            }
            ScopePart::Header(name) if self.caller.is_behind_trusted_proxy() => {
                let value = only_line(self.headers, name)?;
                std::str::from_utf8(value).map_err(|_| "the header is not UTF-8 text")?.to_owned()
            }
            ScopePart::Header(_) => {
                return Err("the request did not come from an address in trusted_proxies".into());
            }
            ScopePart::Secret(name) => digest_of_secret(name, only_line(self.headers, name)?),
            ScopePart::Cookie(name) => digest_of_cookie(name, only_cookie(self.headers, name)?),
            ScopePart::Path(name) => {
                self.path_parameters.get(name).ok_or("the path does not have it")?.clone()
            }
            ScopePart::Json(pointer) => {
                let value = self.json_parts.get(pointer);
                let no_value = "the body is not JSON, has two members of one name, or has no text or \
                                whole number there";
                value.ok_or(no_value)?.clone()
            }
            ScopePart::Global => return Err("it is for all callers and has no value".into()),
        };
        if value.is_empty() {
            return Err("it is empty".into());
        }
        // PostgreSQL takes no NUL, and an operator could not read such a value in a list.
        if value.contains(char::is_control) {
            return Err("it has a control character".into());
        }
        Ok(value)
    }
}

fn claim_of<'a>(caller: &'a Caller, claim: &str) -> Result<&'a Value, String> {
    let claims = caller.claims().map_err(ToString::to_string)?;
    let value = if claim.starts_with('/') { claims.pointer(claim) } else { claims.get(claim) };
    Ok(value.ok_or("the token does not have this claim")?)
}

/// The value of a header that has exactly one line with something in it.
fn only_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], String> {
    let mut headers = headers.get_all(name).iter();
    let line = headers.next().ok_or("the request does not have the header")?;
    if headers.next().is_some() {
        return Err("the request has the header twice".into());
    }
    match line.as_bytes().trim_ascii() {
        [] => Err("the header is empty".into()),
        value => Ok(value),
    }
}

/// The value of a cookie. A request may have it several times, as for two paths: then which of them the
/// upstream takes is not known, unless they are the same.
fn only_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a [u8], String> {
    let headers = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    let pairs = headers.flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (left, right) = pair.split_at(at);
        (left.trim_ascii() == name.as_bytes()).then(|| right[1..].trim_ascii())
    });
    let value = values.next().ok_or("the request does not have the cookie")?;
    if values.any(|other| other != value) {
        return Err("the request has the cookie twice, with two values".into());
    }
    if value.is_empty() { Err("the cookie is empty".into()) } else { Ok(value) }
}

/// Stands for a credential without being one. The name of the header is part of it, so that one
/// secret in two places gives two unrelated digests.
fn digest_of_secret(header: &HeaderName, credential: &[u8]) -> String {
    digest(b"onceward secret scope v1\0", header.as_str(), credential)
}

fn digest_of_cookie(name: &str, credential: &[u8]) -> String {
    digest(b"onceward cookie scope v1\0", name, credential)
}

fn digest(domain: &[u8], name: &str, credential: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(domain)
        .chain_update((name.len() as u64).to_be_bytes())
        .chain_update(name)
        .chain_update(credential)
        .finalize();
    hexadecimal(&digest)
}

/// Byte by byte and without formatting: every keyed request comes here.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
#[path = "scope_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
