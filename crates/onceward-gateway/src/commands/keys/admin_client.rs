//! Where questions go: to the operators' listener of a gateway, or to the same answers in this process,
//! on the store itself.

use std::{env, path::Path, sync::Arc, time::Duration};

use axum::Router;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use onceward::{Body, Engine, seal::Keyring, store::Filter};
use serde_json::{Map, Value};
use tokio::{sync::OnceCell, time::timeout};
use tower_service::Service as _;

use super::{BoxError, StoreLocation};
use crate::{
    admin::{self, InEffect, Operator, Repair},
    commands::arguments::load_or_explain,
    config::{Config, Guarantee, Overrides, Role, Sources, StoreUrl, USUAL_FILE},
    proxy::{Lane, Upstream},
    records::{self, Tables},
};

const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A page of 500 lines is far smaller.
const MAX_ANSWER: usize = 64 << 20;

/// The variable that holds the token, if no other is named.
pub(crate) const DEFAULT_TOKEN: &str = "ONCEWARD_ADMIN_TOKEN";

pub(crate) enum AdminClient {
    There {
        listener: Box<Upstream>,
        token: Option<HeaderValue>,
        actor: Option<HeaderValue>,
        /// Whether it is known that a gateway listens there.
        known: OnceCell<()>,
    },
    Here(Router),
}

impl AdminClient {
    pub(crate) async fn open(place: &StoreLocation) -> Result<Self, BoxError> {
        let StoreLocation { config, store, defaults, admin, token_env, .. } = place;
        match (config, store, admin) {
            (_, _, Some(url)) => Self::there(url, token_env),
            (_, Some(store), _) => {
                let config = defaults.then(config_by_flags).transpose()?;
                Self::here(&StoreUrl::of_argument(store)?, None, config.map(Arc::new)).await
            }
            (Some(file), ..) => Self::of_file(file).await,
            (None, None, None) if Path::new(USUAL_FILE).exists() => {
                Self::of_file(Path::new(USUAL_FILE)).await
            }
            (None, None, None) => Err("say where: --admin http://127.0.0.1:8081 (a running \
                                       gateway), --config onceward.toml, or --store \
                                       sqlite://onceward.db, postgres://… or redis://…"
                .into()),
        }
    }

    async fn of_file(file: &Path) -> Result<Self, BoxError> {
        let config = load_or_explain(file, "")?;
        let (store, keys) = (config.store.clone(), config.keys()?);
        Self::here(&store, keys, Some(Arc::new(config))).await
    }

    async fn here(
        store: &StoreUrl,
        keys: Option<Arc<Keyring>>,
        config: Option<Arc<Config>>,
    ) -> Result<Self, BoxError> {
        let guarantee = config.as_ref().map_or(Guarantee::Strict, |config| config.guarantee);
        let store = records::open(store, keys, Tables::AsTheyAre, guarantee).await?;
        let in_effect: InEffect = Arc::new(move || config.clone());
        let repair = Repair::new(Engine::new(store.clone()), store, in_effect);
        let name = match user() {
            Some(user) => format!("store/{user}"),
            None => "store".to_owned(),
        };
        Ok(Self::Here(admin::local(&repair, Operator { name, role: Role::Purge })))
    }

    /// The operators' listener at this address, with the token of this variable, if it is set.
    pub(crate) fn there(url: &str, token_env: &str) -> Result<Self, BoxError> {
        let wrong = "--admin is a URL without a path, as http://127.0.0.1:8081";
        let uri: Uri = url.parse().map_err(|_| wrong)?;
        let is_right = matches!(uri.scheme_str(), Some("http" | "https")) && uri.path() == "/";
        if !is_right || uri.query().is_some() {
            return Err(wrong.into());
        }
        let token = env::var(token_env).ok().filter(|token| !token.is_empty());
        if token.is_none() && token_env != DEFAULT_TOKEN {
            return Err(format!("the environment variable {token_env} is not set").into());
        }
        let token = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let token = token.transpose().map_err(|_| format!("{token_env} is not a token"))?;
        let actor = user().and_then(|user| HeaderValue::try_from(user).ok());
        let listener = Box::new(Upstream::new(&uri)?);
        Ok(Self::There { listener, token, actor, known: OnceCell::new() })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, BoxError> {
        self.ask(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, document: &Value) -> Result<Value, BoxError> {
        self.ask(Method::POST, path, Body::from(document.to_string().into_bytes())).await
    }

    /// So many of what a filter selects, page by page.
    pub(super) async fn search(
        &self,
        mut filter: Map<String, Value>,
        most: usize,
    ) -> Result<Vec<Value>, BoxError> {
        let mut found = Vec::new();
        while found.len() < most {
            let left = (most - found.len()).min(Filter::MAX_PAGE as usize);
            filter.insert("limit".into(), left.into());
            let mut page = self.post("/v1/operations/search", &filter.clone().into()).await?;
            found.extend(page["operations"].as_array_mut().into_iter().flat_map(std::mem::take));
            match page["next"].take() {
                Value::Null => break,
                next => filter.insert("after".into(), next),
            };
        }
        Ok(found)
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Result<Value, BoxError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| "this is not a reference")?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let (status, body) = match self {
            Self::Here(router) => {
                let Ok(response) = router.clone().call(request).await;
                let (head, body) = response.into_parts();
                (head.status, Limited::new(body, MAX_ANSWER).collect().await?.to_bytes())
            }
            Self::There { listener, token, actor, known } => {
                known.get_or_try_init(|| recognised(listener)).await?;
                let lines = request.headers_mut();
                lines.extend(token.clone().map(|token| (header::AUTHORIZATION, token)));
                let name = HeaderName::from_static(admin::ACTOR);
                lines.extend(actor.clone().map(|actor| (name, actor)));
                sent(listener, request).await?
            }
        };
        understood(status, &body)
    }
}

/// What `serve` means by flags alone: built-in times, and whole answers are kept. The address and the scope are
/// needed to have a configuration, and mean nothing here.
fn config_by_flags() -> Result<Config, BoxError> {
    let overrides = Overrides {
        upstream: Some("http://127.0.0.1:3000".to_owned()),
        scope: vec!["global".to_owned()],
        authorize: Some("none".to_owned()),
        ..Overrides::default()
    };
    Config::load(&Sources { overrides, ..Sources::default() })
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<String>().into())
}

/// Only the operators' listener gets a token: the public one would pass it on to the service behind it.
async fn recognised(listener: &Upstream) -> Result<(), BoxError> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static("/health");
    let (_, body) = sent(listener, request).await?;
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
    match document["name"] == admin::NAME {
        true => Ok(()),
        false => Err("this is not the operators' listener of a gateway: --admin is what its \
                      configuration calls `admin`, not `listen`; no token was sent"
            .into()),
    }
}

async fn sent(
    listener: &Upstream,
    request: Request<Body>,
) -> Result<(StatusCode, Bytes), BoxError> {
    let response = listener.send(Lane::Other, request, ADMIN_TIMEOUT).await;
    let response = response.map_err(|failure| {
        format!("{failure}; is the gateway running, with `admin` at this address?")
    })?;
    let (head, body) = response.into_parts();
    let body = timeout(ADMIN_TIMEOUT, Limited::new(body, MAX_ANSWER).collect()).await;
    Ok((head.status, body.map_err(|_| "the answer took too long")??.to_bytes()))
}

fn understood(status: StatusCode, body: &[u8]) -> Result<Value, BoxError> {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    if status.is_success() && !document.is_null() {
        return Ok(document);
    }
    match (document["detail"].as_str(), status) {
        (Some(detail), StatusCode::UNAUTHORIZED) => {
            Err(format!("{detail}; the token is read from the variable that --token-env names")
                .into())
        }
        (Some(detail), _) => Err(detail.into()),
        (None, _) => {
            Err(format!("this is not the operators' listener of a gateway ({status})").into())
        }
    }
}

/// Who is at the keyboard, for the trail: by name, or else by number.
pub(crate) fn user() -> Option<String> {
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| env::var(name).ok());
    let is_plain = |said: &String| {
        (1..=64).contains(&said.len()) && said.bytes().all(|byte| byte.is_ascii_graphic())
    };
    named.filter(is_plain).or_else(|| {
        let own = std::fs::metadata("/proc/self").ok()?;
        Some(format!("uid-{}", std::os::unix::fs::MetadataExt::uid(&own)))
    })
}
