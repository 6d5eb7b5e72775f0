//! How spans get to their collector: with the client and the trust that the gateway has anyway.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use onceward::store::BoxFuture;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::{runtime::Handle, time::timeout};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a collector may take to answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of its answer is read.
const MAX_ANSWER: usize = 1 << 20;

/// Sends spans from the exporter's own thread, which has no runtime, on the gateway's.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
}

impl Collector {
    pub(super) fn new() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let trust = match ClientConfig::builder().with_native_roots() {
            Ok(trusting) => trusting.with_no_client_auth(),
            // A collector in the clear needs no authority to trust.
            Err(_) => {
                let none = RootCertStore::empty();
                ClientConfig::builder().with_root_certificates(none).with_no_client_auth()
            }
        };
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(trust).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { client, runtime: Handle::try_current()? })
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.request(request.map(Full::new)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        'a: 'f,
        Self: 'f,
    {
        let sending = self.clone().send(request);
        let sent = self.runtime.spawn(async { timeout(EXPORT_TIMEOUT, sending).await });
        Box::pin(async { sent.await?.map_err(|_| "the collector does not answer")? })
    }
}
