//! Where the clients of a route put their keys: `key_header` and `key_from`.

use http::HeaderName;

use super::{options::RouteOptions, scope::is_pointer};
use crate::config::{
    KeyHeader, KeySource, SourceLocation,
    diagnostics::mistake::{Mistakes, nearest},
    parse::reader::{Setting, Value},
};

/// The header of the contract.
const USUAL: &str = "Idempotency-Key";

const FROM_CHOICES: &str = "write key_from = \"header:<name>\" for an event id in a header, or \
                            \"json:<pointer>\" for one in the body, as \"json:/id\"";

impl Default for KeySource {
    fn default() -> Self {
        let name = HeaderName::from_static("idempotency-key");
        Self::Headers(vec![KeyHeader { shown: USUAL.to_owned(), name }])
    }
}

pub(crate) fn header(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<KeyHeader> {
    let header = match value {
        Value::Text(text) => KeyHeader::parse(text),
        _ => None,
    };
    if header.is_none() {
        let message = "`key_header` has an item that is no header name";
        mistakes.error(place, message, "write names like \"X-Idempotency-Key\"");
    }
    header
}

pub(crate) fn source(
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<KeySource> {
    let (kind, argument) = text.split_once(':').unwrap_or((text, ""));
    let (message, help) = match kind {
        "header" => match KeyHeader::parse(argument) {
            Some(header) => return Some(KeySource::EventHeader(header)),
            None => ("`key_from`: behind `header:` is no header name", FROM_CHOICES.to_owned()),
        },
        "json" if is_pointer(argument) => return Some(KeySource::Json(argument.to_owned())),
        "json" => {
            let help =
                "start it with a slash, as \"json:/id\"; in names `~` is `~0` and `/` is `~1`";
            ("`key_from`: behind `json:` there is no JSON pointer", help.to_owned())
        }
        kind => {
            let near = nearest(kind, ["header", "json"]);
            let near = near.map(|near| format!("did you mean `{near}`? Else "));
            let help = format!("{}{FROM_CHOICES}", near.unwrap_or_default());
            ("`key_from` is of an unknown kind", help)
        }
    };
    mistakes.error(place, message, help);
    None
}

/// What counts: what the route itself says, then what `[defaults]` say.
pub(crate) fn fit(
    own: &RouteOptions,
    options: &RouteOptions,
    mistakes: &mut Mistakes,
) -> Option<KeySource> {
    let says =
        |options: &RouteOptions| !options.key_header.is_missing() || !options.key_from.is_missing();
    let options = if says(own) { own } else { options };
    if let (Some(from), Some(_)) = (options.key_from.given(), options.key_header.given()) {
        let message = "`key_from` and `key_header` exclude each other: a key comes from one place";
        mistakes.error(&from.place, message, "remove one of the two");
    }
    match (&options.key_from, &options.key_header) {
        (Setting::Given(from), _) => Some(from.value.clone()),
        (Setting::Wrong, _) | (_, Setting::Wrong) => None,
        (Setting::Missing, Setting::Missing) => Some(KeySource::default()),
        (Setting::Missing, Setting::Given(headers)) => {
            let headers = headers.value.iter().map(|header| header.value.clone());
            Some(KeySource::Headers(headers.collect()))
        }
    }
}

impl KeyHeader {
    fn parse(text: &str) -> Option<Self> {
        let name = HeaderName::try_from(text).ok()?;
        Some(Self { shown: text.to_owned(), name })
    }
}

impl KeySource {
    /// The names that clients use for keys, as the file has them.
    pub(crate) fn key_header(&self) -> Option<Vec<String>> {
        match self {
            Self::Headers(headers) => {
                Some(headers.iter().map(|header| header.shown.clone()).collect())
            }
            Self::EventHeader(_) | Self::Json(_) => None,
        }
    }

    /// `header:<name>` or `json:<pointer>`, as the file has it.
    pub(crate) fn key_from(&self) -> Option<String> {
        match self {
            Self::Headers(_) => None,
            Self::EventHeader(header) => Some(format!("header:{}", header.shown)),
            Self::Json(pointer) => Some(format!("json:{pointer}")),
        }
    }

    /// The headers in which a key may come, in their order.
    pub(crate) fn headers(&self) -> &[KeyHeader] {
        match self {
            Self::Headers(headers) => headers,
            Self::EventHeader(header) => std::slice::from_ref(header),
            Self::Json(_) => &[],
        }
    }

    /// As the store remembers it: `header:a,b` or `json:/id`.
    pub(crate) fn stored_name(&self) -> String {
        match self {
            Self::Json(pointer) => format!("json:{pointer}"),
            Self::Headers(_) | Self::EventHeader(_) => {
                let names = self.headers().iter().map(|header| header.name.as_str());
                format!("header:{}", names.collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Whether a request whose key was found by the source of this name has the same key here: names of headers
    /// may be added behind those of before, which are read first then.
    pub(crate) fn finds_keys_of(&self, stored_name: &str) -> bool {
        let now = self.stored_name();
        let added = now.strip_prefix(stored_name);
        let is_list = stored_name.starts_with("header:");
        stored_name.is_empty()
            || added.is_some_and(|added| added.is_empty() || is_list && added.starts_with(','))
    }

    /// Whether a client that sends the usual header has a key here.
    pub(crate) fn takes_usual_header(&self) -> bool {
        self.headers().iter().any(|header| header.name.as_str().eq_ignore_ascii_case(USUAL))
    }
}
