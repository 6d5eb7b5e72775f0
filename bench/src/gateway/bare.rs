//! The least that a reverse proxy with hyper can do: what the gateway is compared with.

use std::net::SocketAddr;

use clap::Args;
use http::{
    Request, Uri, Version, header,
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};

use crate::{
    Failure,
    gateway::upstream::{listen, runtime},
};

/// Passes every request on until it is killed.
#[derive(Args)]
pub(crate) struct BareArguments {
    /// Where requests go
    upstream: SocketAddr,
}

/// What the child process does.
pub(crate) fn be_the_bare_proxy(arguments: &BareArguments) -> Result<(), Failure> {
    let upstream = Authority::try_from(arguments.upstream.to_string())?;
    runtime()?.block_on(async {
        let listener = listen().await?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (client, upstream) = (client.clone(), upstream.clone());
            let service =
                service_fn(move |request| client.request(onwards(request, upstream.clone())));
            tokio::spawn(async move {
                let io = TokioIo::new(stream);
                // A connection that breaks is seen by whoever waits for its answer.
                let _ = http1::Builder::new().serve_connection(io, service).await;
            });
        }
    })
}

/// The same request for the upstream, without what belongs to the client's connection.
fn onwards(mut request: Request<Incoming>, upstream: Authority) -> Request<Incoming> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(upstream));
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are a URI");
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().remove(header::CONNECTION);
    request
}
