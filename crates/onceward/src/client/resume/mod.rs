//! Calls that survive the process: written down before they are first sent.
//!
//! A process that dies before it has the answer does not know whether the operation happened. With the key
//! it could ask, but the key was in its memory. So the client makes key and request durable first, and
//! forgets them when the outcome is known; after a restart it sends the rest again under the same keys.

mod file;

use std::{
    error::Error,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use onceward_core::{BoxFuture, Key, KeyDigest};

use self::file::File;
use super::{Body, BoxError, Retry, remember::Remember};

/// A header whose name contains one of these is not written down: the caller adds it again.
const SECRETS: [&str; 7] =
    ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password"];

fn is_secret(name: &HeaderName, value: &HeaderValue) -> bool {
    value.is_sensitive() || SECRETS.iter().any(|secret| name.as_str().contains(secret))
}

/// A file of calls whose outcome is not known yet. Cheap to clone.
///
/// A keyed call through [`Retry::resumable`] is in it from before its first attempt until its outcome
/// is known: it succeeded, or was refused by an answer that leaves no doubt. One that gave up, one that
/// was only accepted (202 of ours) and one that was redirected stay in it. A POST or PATCH without a
/// key, and a keyed request whose body is not kept (see [`Retry::max_body`]), are not sent.
///
/// The file holds URIs, bodies and keys as they are, and is made readable for its owner alone. Header
/// lines are left out if their value [is sensitive](http::HeaderValue::is_sensitive) or their name
/// contains `authorization`, `cookie`, `api-key`, `apikey`, `token`, `secret` or `password`.
///
/// ```no_run
/// use http::{HeaderValue, header::AUTHORIZATION};
/// use onceward::client::{Resume, Retry};
/// # async fn example<S, B>(mut send: impl AsyncFnMut(http::Request<onceward::Body>)) -> Result<(), onceward::client::ResumeError> {
/// let resume = Resume::open("calls.db")?;
/// let retry = Retry::patient().resumable(&resume);
/// // At start: what did the last process not hear of?
/// for pending in resume.pending().await? {
///     let mut request = pending.request();
///     request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer …"));
///     send(request).await;                      // through `retry`: the same key
/// }
/// # let _ = retry;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Resume(Arc<Mutex<File>>);

impl Resume {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is something else.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ResumeError> {
        Ok(Self(Arc::new(Mutex::new(File::open(path.as_ref())?))))
    }

    /// The calls whose outcome is not known, oldest first; also those that run right now.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub async fn pending(&self) -> Result<Vec<Pending>, ResumeError> {
        self.ask(File::all).await
    }

    /// Forgets a call whose outcome the caller has found out.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub async fn forget(&self, pending: &Pending) -> Result<(), ResumeError> {
        let id = pending.id();
        self.ask(move |file| file.forget(&id)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut File) -> Result<T, ResumeError> + Send + 'static,
    ) -> Result<T, ResumeError> {
        let file = self.0.clone();
        let asked = tokio::task::spawn_blocking(move || {
            ask(&mut file.lock().unwrap_or_else(PoisonError::into_inner))
        });
        asked.await.unwrap_or_else(|error| Err(ResumeError(error.to_string())))
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resume")
    }
}

impl Retry {
    /// Writes each keyed call down before it is first sent: see [`Resume`].
    #[must_use]
    pub fn resumable(self, resume: &Resume) -> Self {
        self.remembering(Arc::new(resume.clone()))
    }
}

impl Remember for Resume {
    fn keep(
        &self,
        key: &Key,
        parts: &Parts,
        body: &Bytes,
    ) -> BoxFuture<'static, Result<bool, BoxError>> {
        let open = parts.headers.iter().filter(|(name, value)| !is_secret(name, value));
        let mut headers = HeaderMap::new();
        for (name, value) in open {
            headers.append(name, value.clone());
        }
        let pending = Pending {
            key: key.clone(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers,
            body: body.clone(),
            since: SystemTime::now(),
        };
        let resume = self.clone();
        Box::pin(async move { Ok(resume.ask(move |file| file.keep(&pending)).await?) })
    }

    fn forget(&self, key: &Key, parts: &Parts) -> BoxFuture<'static, ()> {
        let id = id(key, &parts.method, &parts.uri);
        let resume = self.clone();
        Box::pin(async move {
            // What stays is sent again, with the same key: that does no harm.
            let _ = resume.ask(move |file| file.forget(&id)).await;
        })
    }
}

/// A call that was written down, and whose outcome is not known.
///
/// ```
/// fn tell(pending: &onceward::client::Pending) {
///     println!("{} {} under {}", pending.method(), pending.uri(), pending.key_digest());
/// }
/// ```
#[derive(Clone)]
pub struct Pending {
    key: Key,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    since: SystemTime,
}

impl Pending {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// What of the key may be logged.
    #[must_use]
    pub fn key_digest(&self) -> KeyDigest {
        self.key.digest()
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Where it goes.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What is sent.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// When it was written down, by the wall clock of then.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The request with its key, without what was secret in it: add that, and send it through the same
    /// [`resumable`](Retry::resumable) client. It is forgotten when its outcome is known.
    #[must_use]
    pub fn request(&self) -> Request<Body> {
        let mut request = Request::new(self.body.clone().into());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    fn id(&self) -> CallId {
        id(&self.key, &self.method, &self.uri)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pending({} {} {})", self.method, self.uri, self.key.digest())
    }
}

/// Key, method and URI: one key may be used at two servers.
type CallId = (String, String, String);

fn id(key: &Key, method: &Method, uri: &Uri) -> CallId {
    (key.as_str().to_owned(), method.to_string(), uri.to_string())
}

/// The file of pending calls cannot be used.
///
/// ```
/// let error = onceward::client::Resume::open("no/such/place/calls.db").unwrap_err();
/// assert!(error.to_string().contains("cannot be used"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeError(pub(super) String);

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file of pending calls cannot be used: {}", self.0)
    }
}

impl Error for ResumeError {}
