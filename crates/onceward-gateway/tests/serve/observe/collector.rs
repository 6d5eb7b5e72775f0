//! A collector of spans that can be asked what it got.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{net::TcpListener, time::sleep};

use crate::gateway_support::TEST_TIMEOUT;

#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let taken = bodies.clone();
        let take = async move |body: Bytes| taken.lock().unwrap().push(body);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, bodies }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All bytes that it got.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bodies.lock().unwrap().concat()
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let bodies = self.bodies.lock().unwrap();
        bodies.iter().map(|body| ExportTraceServiceRequest::decode(body.clone()).unwrap()).collect()
    }

    pub(crate) fn resource(&self) -> Resource {
        self.requests()[0].resource_spans[0].resource.clone().unwrap()
    }

    /// Waits until it has so many spans.
    pub(crate) async fn spans(&self, count: usize) -> Vec<Span> {
        let end = tokio::time::Instant::now() + TEST_TIMEOUT;
        loop {
            let scopes = self.requests().into_iter().flat_map(|request| request.resource_spans);
            let scopes = scopes.flat_map(|resource| resource.scope_spans);
            let spans: Vec<Span> = scopes.flat_map(|scope| scope.spans).collect();
            if spans.len() >= count {
                return spans;
            }
            assert!(tokio::time::Instant::now() < end, "only {spans:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// An attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.clone()?.value? {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
