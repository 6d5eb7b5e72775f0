//! The connections to the upstream, and what a failure on them proves.

use std::{error::Error, fmt, time::Duration};

use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use onceward::server::Body;
use tokio::time::timeout;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// A keyed request never goes out on a connection that was idle for longer: the upstream may be
/// closing it in this moment, and then nobody could tell whether the request arrived.
const FRESH: Duration = Duration::from_millis(900);

/// How long a connection for other requests is kept.
const IDLE: Duration = Duration::from_secs(60);

/// The upstream.
#[derive(Clone)]
pub(crate) struct Upstream {
    base: Uri,
    keyed: Client<HttpsConnector<HttpConnector>, Body>,
    other: Client<HttpsConnector<HttpConnector>, Body>,
}

/// Which connections a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// New ones, or those that were used a moment ago.
    Keyed,
    Other,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The upstream has certainly not seen the request.
    NotSent(String),
    /// Nobody knows whether it has.
    MaybeSent(String),
    /// It took too long.
    TimedOut,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(reason) => write!(formatter, "the request was not sent: {reason}"),
            Self::MaybeSent(reason) => write!(formatter, "there is no answer: {reason}"),
            Self::TimedOut => formatter.write_str("the answer took too long"),
        }
    }
}

impl Upstream {
    /// `base` is scheme, host and port.
    pub(crate) fn new(base: Uri) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.enforce_http(false);
        let connector = match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(trusting) => trusting,
            Err(error) if base.scheme_str() == Some("https") => return Err(error.into()),
            // This host trusts nobody, and need not.
            Err(_) => HttpsConnectorBuilder::new().with_tls_config(trusting_nobody()),
        };
        let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
        let client = |idle| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(idle)
                .build(connector.clone())
        };
        Ok(Self { base, keyed: client(FRESH), other: client(IDLE) })
    }

    /// Sends a request on; its URI is the client's path and query. Gives the answer's head.
    pub(crate) async fn send(
        &self,
        lane: Lane,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let uri = self.whole(request.uri());
        *request.uri_mut() = uri.map_err(|error| Failure::NotSent(error.to_string()))?;
        self.exchange(lane, request, patience).await
    }

    /// Asks somebody else: the URI is whole.
    pub(crate) async fn ask(
        &self,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        self.exchange(Lane::Other, request, patience).await
    }

    async fn exchange(
        &self,
        lane: Lane,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        *request.version_mut() = Version::HTTP_11;
        let client = match lane {
            Lane::Keyed => &self.keyed,
            Lane::Other => &self.other,
        };
        let connection = capture_connection(&mut request);
        match timeout(patience, client.request(request)).await {
            // No upgrade is passed on, so nobody has asked for it, and there is no answer.
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Failure::MaybeSent("the upstream switched protocols".to_owned()))
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => Err(Failure::NotSent(chain(&error))),
            Ok(Err(error)) => Err(Failure::MaybeSent(chain(&error))),
            Err(_) if connection.connection_metadata().is_none() => {
                Err(Failure::NotSent("no connection was made in time".to_owned()))
            }
            Err(_) => Err(Failure::TimedOut),
        }
    }

    fn whole(&self, target: &Uri) -> Result<Uri, http::Error> {
        let mut uri = Uri::builder();
        if let Some(scheme) = self.base.scheme() {
            uri = uri.scheme(scheme.clone());
        }
        if let Some(authority) = self.base.authority() {
            uri = uri.authority(authority.clone());
        }
        let path = target.path_and_query().map_or("/", |path| path.as_str());
        uri.path_and_query(path).build()
    }
}

fn trusting_nobody() -> ClientConfig {
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

/// An error with its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
