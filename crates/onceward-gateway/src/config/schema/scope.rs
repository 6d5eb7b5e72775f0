//! To whom a key belongs, and who may see a replay: rules 5 and 23. Neither has a default.

use http::HeaderName;
use onceward::Scope;

use super::addresses;
use crate::config::{
    Authorize, Pattern, Route, ScopePart, SourceLocation,
    diagnostics::mistake::{Mistakes, nearest},
    parse::reader::{Placed, Value},
};

pub(crate) const SCOPE_CHOICES: &str = "choose of \"jwt:<claim>\" (of a verified token; \
    \"jwt-number:<claim>\" if it is a number), \"cert:subject\" (of the client's certificate), \"header:<name>\" (set by a trusted proxy), \
    \"secret:<header>\" (an API key that never changes), \"cookie:<name>\" (a session that keeps its cookie) and \"global\" (all callers share their \
    keys), as in scope = [\"secret:x-api-key\"]";

pub(crate) const AUTHORIZE_CHOICES: &str = "choose of \"jwt\" (a valid token is enough), \"mtls\" \
    (a valid certificate is enough), a URL that is asked with the caller's headers, and \"none\" \
    (each caller with the scope and the key may see the answer again)";

pub(crate) const NONE_NOTE: &str = "`authorize = \"none\"`: nothing is checked again before a \
    stored answer is sent to a caller with the scope and the key";

const KINDS: [&str; 9] =
    ["jwt", "jwt-number", "cert", "header", "secret", "cookie", "global", "path", "json"];

/// They hold credentials that are refreshed.
const REFRESHED: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// One part, as `secret:x-api-key`. What is not understood is not quoted: it may be a credential.
pub(crate) fn part(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<ScopePart> {
    let mut refuse = |message: &str, help: &str| {
        mistakes.error(place, message, help);
        None
    };
    let Value::Text(text) = value else {
        return refuse("`scope` has a part that is not a text", SCOPE_CHOICES);
    };
    let (kind, argument) = match text.split_once(':') {
        Some((kind, argument)) => (kind, Some(argument)),
        None => (text.as_str(), None),
    };
    match (kind, argument) {
        ("global", None) => Some(ScopePart::Global),
        ("cert", Some("subject")) => Some(ScopePart::CertificateSubject),
        ("cert", _) => {
            refuse("`scope`: of a certificate only its subject", "write \"cert:subject\"")
        }
        ("jwt", Some(claim)) if !claim.is_empty() => Some(ScopePart::Jwt(claim.to_owned())),
        ("jwt", _) => refuse("`scope`: `jwt:` names no claim", "write \"jwt:sub\""),
        ("jwt-number", Some(claim)) if !claim.is_empty() => {
            Some(ScopePart::JwtNumber(claim.to_owned()))
        }
        ("jwt-number", _) => {
            refuse("`scope`: `jwt-number:` names no claim", "write \"jwt-number:tenant\"")
        }
        ("header" | "secret", Some(name)) => header(kind, name, place, mistakes),
        ("header", None) => refuse("`scope` names no header", "write \"header:x-tenant\""),
        ("secret", None) => refuse("`scope` names no header", "write \"secret:x-api-key\""),
        ("cookie", Some(name)) if is_token(name) => {
            let message = format!(
                "`cookie:{name}` is right only if that cookie keeps its value for as long as clients \
                 retry: with a new one a retry would execute again"
            );
            mistakes.note(place, message);
            Some(ScopePart::Cookie(name.to_owned()))
        }
        ("cookie", _) => refuse("`scope`: `cookie:` names no cookie", "write \"cookie:session\""),
        ("path", Some(name)) if !name.is_empty() => Some(ScopePart::Path(name.to_owned())),
        ("path", _) => refuse("`scope`: `path:` names nothing", "write \"path:tenant\""),
        ("json", Some(pointer)) if is_pointer(pointer) => Some(ScopePart::Json(pointer.to_owned())),
        ("json", _) => refuse(
            "`scope`: behind `json:` there is no JSON pointer",
            "start it with a slash, as \"json:/account/id\"; in names `~` is `~0` and `/` is `~1`",
        ),
        _ => match nearest(kind, KINDS) {
            Some(near) => {
                let help = format!("did you mean `{near}`? Else {SCOPE_CHOICES}");
                refuse("`scope` has a part of an unknown kind", &help)
            }
            None => refuse("`scope` has a part of an unknown kind", SCOPE_CHOICES),
        },
    }
}

fn header(
    kind: &str,
    name: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<ScopePart> {
    let Ok(name) = HeaderName::try_from(name) else {
        let help = format!("write a header's name, as \"{kind}:x-api-key\"");
        mistakes.error(place, format!("`scope`: behind `{kind}:` is no header name"), help);
        return None;
    };
    let is_refreshed = REFRESHED.contains(&name.as_str());
    match (kind, is_refreshed) {
        ("header", true) => {
            let message = format!(
                "`header:{name}` cannot be a scope: a refreshed token would be a new scope, and \
                 the retry would execute again"
            );
            let help = match name == http::header::COOKIE {
                true => {
                    "write \"cookie:session\" with the name of a cookie that keeps its value, or \
                         \"jwt:sub\" for a token"
                        .to_owned()
                }
                false => format!(
                    "write \"jwt:sub\" for a token; \"secret:{name}\" only if it is an API key that \
                     never changes"
                ),
            };
            mistakes.error(place, message, help);
            None
        }
        ("header", false) => Some(ScopePart::Header(name)),
        (_, true) => {
            let message = format!("`secret:{name}` is right only if that credential never changes");
            let help = "for tokens that are refreshed write \"jwt:sub\": with a new token a retry \
                        would execute again";
            mistakes.warning(place, message, help);
            Some(ScopePart::Secret(name))
        }
        (_, false) => Some(ScopePart::Secret(name)),
    }
}

/// What a cookie may be called: RFC 6265 takes the tokens of HTTP.
fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

/// RFC 6901, without the pointer to the whole document.
pub(crate) fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1);
    text.starts_with('/') && escapes.into_iter().all(|after| after.starts_with(['0', '1']))
}

/// Who checks: `jwt`, `mtls`, `none` or a URL.
pub(crate) fn authorize(
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Authorize> {
    match text {
        "jwt" => Some(Authorize::Jwt),
        "mtls" => Some(Authorize::Mtls),
        "none" => Some(Authorize::None),
        text if text.contains("://") => {
            addresses::url("authorize", text, place, mistakes).map(Authorize::Url)
        }
        text => {
            let help = match nearest(text, ["jwt", "mtls", "none"]) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => AUTHORIZE_CHOICES.to_owned(),
            };
            mistakes.error(place, "`authorize` is none of the choices", help);
            None
        }
    }
}

/// What the rest of the configuration offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) jwt: bool,
    pub(crate) client_certificates: bool,
    pub(crate) trusted_proxies: bool,
    pub(crate) commits: Commits,
}

/// Whether the service behind the gateway can end an operation in its own transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// With its answer.
    Whole,
    /// With its status alone: answers are sealed, and the service has no key for it.
    WithoutAnswer,
    /// The server has no functions that the service could call.
    NoFunctions,
    /// The server has no transactions that the service could write in.
    NoTransactions,
    /// The records are where no other program writes.
    No,
}

/// Whether the parts make a scope together, on such a route.
pub(crate) fn check_scope(
    parts: &Placed<Vec<Placed<ScopePart>>>,
    pattern: Option<&Pattern>,
    offered: Offered,
    mistakes: &mut Mistakes,
) {
    check_whole(parts, mistakes);
    for (index, Placed { value, place }) in parts.value.iter().enumerate() {
        let is_same =
            |earlier: &&Placed<ScopePart>| earlier.value.stored_name() == value.stored_name();
        if let Some(earlier) = parts.value[..index].iter().find(is_same) {
            let message = match earlier.value == *value {
                true => format!("`scope` has `{value}` twice"),
                false => {
                    format!("`scope` has `{}` and `{value}`: a claim has one type", earlier.value)
                }
            };
            mistakes.error(place, message, "remove one of them");
        }
        let (lacks, message, help) = match value {
            ScopePart::Jwt(_) | ScopePart::JwtNumber(_) => (!offered.jwt, NEEDS_JWT, JWT_HELP),
            ScopePart::CertificateSubject => {
                (!offered.client_certificates, NEEDS_CERTIFICATES, CERTIFICATES_HELP)
            }
            ScopePart::Header(_) => (
                !offered.trusted_proxies,
                "a `header:` scope needs `trusted_proxies`: else any client could send that header",
                "add trusted_proxies = [\"127.0.0.1/32\"] at the top, with your proxy's address",
            ),
            ScopePart::Path(name) => {
                check_path(name, pattern, place, mistakes);
                continue;
            }
            ScopePart::Secret(_)
            | ScopePart::Cookie(_)
            | ScopePart::Global
            | ScopePart::Json(_) => continue,
        };
        if lacks {
            mistakes.error(place, message, help);
        }
    }
}

/// Two routes that share their keys read a claim in one way: else the number 7 and the text "7" would be one.
pub(crate) fn check_types(
    route: &Route,
    other: &Route,
    at: &SourceLocation,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) {
    let is_other = |part: &&ScopePart, theirs: &ScopePart| {
        theirs != *part && theirs.stored_name() == part.stored_name()
    };
    let differs = |part: &&ScopePart| other.scope.iter().any(|theirs| is_other(part, theirs));
    if let Some(part) = route.scope.iter().find(differs) {
        let message = format!(
            "`{part}`: the route at {at} has the same name and reads this claim as another type"
        );
        mistakes.error(place, message, "write the same in both routes, or give them two names");
    }
}

const NEEDS_JWT: &str = "a token can be verified only with [jwt]";
const JWT_HELP: &str = "add [jwt] with jwks = \"keys.json\" or secret_env = \"NAME\"";
const NEEDS_CERTIFICATES: &str = "clients show certificates only with `client_ca` of [tls]";
const CERTIFICATES_HELP: &str = "add [tls] with cert, key and client_ca = \"clients.pem\"";

fn check_whole(parts: &Placed<Vec<Placed<ScopePart>>>, mistakes: &mut Mistakes) {
    let Placed { value: parts, place } = parts;
    let is_additional = |part: &ScopePart| matches!(part, ScopePart::Path(_) | ScopePart::Json(_));
    let is_identity = |part: &ScopePart| !is_additional(part) && *part != ScopePart::Global;
    if parts.is_empty() {
        mistakes.error(place, "`scope` is empty, and there is no default", SCOPE_CHOICES);
    } else if parts.iter().all(|part| is_additional(&part.value)) {
        let message =
            "`scope` says nothing about the caller: `path:` and `json:` are additional parts";
        mistakes.error(place, message, SCOPE_CHOICES);
    }
    let global = parts.iter().find(|part| part.value == ScopePart::Global);
    if let Some(global) = global.filter(|_| parts.iter().any(|part| is_identity(&part.value))) {
        let message = "`scope`: `global` means that all callers share their keys; another part \
                       says that they do not";
        mistakes.error(&global.place, message, "remove `global`, or the other part");
    }
    if parts.len() > Scope::MAX_PARTS {
        let message = format!("`scope` has {} parts", parts.len());
        let help = format!("{} at most: name who asks, not what is asked", Scope::MAX_PARTS);
        mistakes.error(place, message, help);
    }
}

fn check_path(
    name: &str,
    pattern: Option<&Pattern>,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) {
    let Some(pattern) = pattern else { return };
    if pattern.names().any(|known| known == name) {
        return;
    }
    let message = format!("`path:{name}`: the path of the route has no `{{{name}}}`");
    let help = match nearest(name, pattern.names()) {
        Some(near) => format!("did you mean \"path:{near}\"?"),
        None => format!("add `{{{name}}}` to {}, or remove this part", pattern.text),
    };
    mistakes.error(place, message, help);
}

pub(crate) fn check_authorize(
    authorize: &Placed<Authorize>,
    offered: Offered,
    mistakes: &mut Mistakes,
) {
    match authorize.value {
        Authorize::Jwt if !offered.jwt => mistakes.error(&authorize.place, NEEDS_JWT, JWT_HELP),
        Authorize::Mtls if !offered.client_certificates => {
            mistakes.error(&authorize.place, NEEDS_CERTIFICATES, CERTIFICATES_HELP);
        }
        _ => {}
    }
}
