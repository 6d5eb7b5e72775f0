//! Where a request has its key: rules 1, 2 and 4 of the contract.

use std::{fmt, sync::Arc};

use http::{HeaderName, HeaderValue, header, request::Parts};
use onceward_core::Key;

use super::{
    Code, IdempotencyBuilder, OptionsError, Problem,
    headers::{PREFER, is_hop_by_hop},
    hooks::KeyHook,
};

/// Where clients put a key if not said otherwise.
const USUAL: &str = "Idempotency-Key";

/// These headers have another meaning, or do not come from the client: none holds a key.
const TAKEN: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
    HeaderName::from_static("http2-settings"),
    PREFER,
    header::TRAILER,
];

impl IdempotencyBuilder {
    /// In which headers a key may come: `Idempotency-Key` if not said. The first of them that a request
    /// has counts, and two lines of it are refused.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// // For clients that have sent keys under another name for years.
    /// let layer = Idempotency::builder(MemoryStore::not_durable(), scope)
    ///     .key_header(["Idempotency-Key", "X-Idempotency-Key", "PayPal-Request-Id"])
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), OptionsError>(())
    /// ```
    ///
    /// Of this and [`key_from`](Self::key_from) the one that was said last counts.
    pub fn key_header<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.chosen.key_place = KeyPlace::Headers(names.into_iter().map(Into::into).collect());
        self
    }

    /// Takes the key from elsewhere, as the id of an event that a webhook delivers again and again.
    /// `Ok(None)` is a request without a key, an error is 400 `key-invalid`. Refusals name the place.
    ///
    /// The layer has not read the body then: a key that is in it is put into the extensions by what
    /// stands before the layer.
    ///
    /// ```
    /// # use onceward::{*, server::*, protocol::*, store::memory::MemoryStore};
    /// # let scope = |_: &http::request::Parts| Ok::<_, &str>(Scope::global());
    /// #[derive(Clone)]
    /// struct EventId(String); // of the signed event, which was verified and read before
    ///
    /// let webhooks = Idempotency::builder(MemoryStore::not_durable(), scope)
    ///     .require_key()
    ///     .key_from("the event's `id`", |parts| {
    ///         parts.extensions.get::<EventId>().map(|EventId(id)| Key::new(id)).transpose()
    ///     })
    ///     .build()?;
    /// # let _ = webhooks;
    /// # Ok::<(), OptionsError>(())
    /// ```
    pub fn key_from<E: fmt::Display>(
        mut self,
        place: impl Into<String>,
        find: impl Fn(&Parts) -> Result<Option<Key>, E> + Send + Sync + 'static,
    ) -> Self {
        let find = move |parts: &Parts| find(parts).map_err(|error| error.to_string());
        self.chosen.key_place = KeyPlace::By(place.into(), Arc::new(find));
        self
    }
}

/// Where the clients of a layer put their keys, as it was asked for.
#[derive(Clone)]
pub(super) enum KeyPlace {
    Headers(Vec<String>),
    /// What people call the place, and the hook that looks there.
    By(String, KeyHook),
}

impl Default for KeyPlace {
    fn default() -> Self {
        Self::Headers(vec![USUAL.to_owned()])
    }
}

/// Where the clients of a layer put their keys.
pub(super) enum KeySource {
    /// The first of these that a request has, by the names that people read.
    Headers(Vec<(String, HeaderName)>),
    By(String, KeyHook),
}

impl KeyPlace {
    pub(super) fn check(self) -> Result<KeySource, OptionsError> {
        let names = match self {
            Self::By(place, hook) => return Ok(KeySource::By(place, hook)),
            Self::Headers(names) => names,
        };
        let refuse = |text| Err(OptionsError::Option { option: "key_header", text });
        let mut headers: Vec<(String, HeaderName)> = Vec::new();
        for shown in names {
            let Ok(name) = HeaderName::try_from(&shown) else {
                return refuse(format!(
                    "{shown:?} is not a header name: choose one like `{USUAL}`"
                ));
            };
            if is_taken(&name) {
                return refuse(format!(
                    "`{shown}` is for something else than keys: choose one like `{USUAL}`"
                ));
            }
            if headers.iter().any(|(_, earlier)| *earlier == name) {
                return refuse(format!("`{shown}` is there twice: remove one of them"));
            }
            headers.push((shown, name));
        }
        match headers.is_empty() {
            true => refuse(format!("no header is named, so that there is no key: name `{USUAL}`")),
            false => Ok(KeySource::Headers(headers)),
        }
    }
}

fn is_taken(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || TAKEN.contains(name) || name.as_str().starts_with("onceward-")
}

impl KeySource {
    /// `None`: the request has no key.
    pub(super) fn key_of(&self, parts: &Parts) -> Result<Option<Key>, Problem> {
        let invalid =
            |place: &str, error: &str| Problem::new(Code::KeyInvalid, format!("{place}: {error}"));
        match self {
            Self::By(place, find) => find(parts).map_err(|error| invalid(place, &error)),
            Self::Headers(names) => {
                let is_there = |(_, name): &&(String, HeaderName)| parts.headers.contains_key(name);
                let Some((shown, name)) = names.iter().find(is_there) else { return Ok(None) };
                let headers = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
                Key::from_lines(headers).map_err(|error| invalid(shown, &error.to_string()))
            }
        }
    }

    /// What the layer answers to a request without a key where it needs one.
    pub(super) fn missing(&self) -> Problem {
        const WHICH: &str = "send a new UUID for each operation, the same on every attempt";
        let text = match self {
            Self::By(place, _) => format!(
                "this route takes the key from {place}, and there is none; send the same key there on \
                 every attempt"
            ),
            Self::Headers(names) => {
                let shown: Vec<&str> = names.iter().map(|(shown, _)| shown.as_str()).collect();
                match &shown[..] {
                    [USUAL] => format!("this route needs an {USUAL}; {WHICH}"),
                    [one] => format!("this route needs a key in the header {one}; {WHICH}"),
                    several => format!(
                        "this route needs a key in one of the headers {}; {WHICH}",
                        several.join(", ")
                    ),
                }
            }
        };
        Problem::new(Code::KeyMissing, text)
    }
}
