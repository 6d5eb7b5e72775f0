//! Traces by OpenTelemetry: a span for each request, and one below it for what the upstream is asked.
//!
//! Only if the environment names a collector. Spans are made here and nowhere else, so that nothing
//! gets into them but what `onceward::telemetry` names: no key, header, body, path or query.

use std::{
    collections::HashMap,
    env,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use onceward::{
    message::{Message, Sent},
    outbox::{Attempt, DeliverySpan},
    telemetry::{Answered, Route, event, span},
};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{
        SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider, SpanData},
};

use super::{
    collector::Collector,
    metrics::{self, UpstreamFailure},
};

/// How long spans may take to be exported when the gateway stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the log says that spans cannot be exported.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

static TRACES: OnceLock<Traces> = OnceLock::new();

struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// Starts to trace, if the environment asks for it. Must be called inside of the runtime.
pub(super) fn start() -> Result<(), String> {
    let endpoints = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let is_said = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_disabled = env::var("OTEL_SDK_DISABLED").is_ok_and(|said| said == "true");
    if is_disabled || !endpoints.into_iter().any(is_said) {
        return Ok(());
    }
    let refused = |error: &dyn std::fmt::Display| {
        format!("nothing can be traced: {error}; correct the `OTEL_…` variables, or unset them")
    };
    let collector = Collector::new().map_err(|error| refused(&error))?;
    let exporter = SpanExporter::builder().with_http().with_http_client(collector).build();
    let exporter = Reporting { exporter: exporter.map_err(|error| refused(&error))? };
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource())
        .build();
    let tracer = provider.tracer("onceward");
    let propagator = TraceContextPropagator::new();
    // Only one gateway runs in a process.
    let _ = TRACES.set(Traces { provider, tracer, propagator });
    Ok(())
}

/// Exports what is left, but not for long.
pub(super) fn end() {
    if let Some(traces) = TRACES.get() {
        // A collector that does not answer was complained about.
        let _ = traces.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
    }
}

fn resource() -> Resource {
    let is_named = env::var_os("OTEL_SERVICE_NAME").is_some()
        || env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|said| said.contains("service.name="));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    match is_named {
        true => resource.build(),
        false => resource.with_service_name("onceward").build(),
    }
}

/// The span of the request that something is done for, in the extensions of that request.
#[derive(Clone)]
pub(crate) struct Parent(Context);

impl Parent {
    /// Says which route the request goes by.
    pub(crate) fn set_route(&self, method: &Method, route: Route) {
        let own = self.0.span();
        own.update_name(format!("{} {}", known(method), route.name()));
        own.set_attribute(KeyValue::new(span::ROUTE, route.name()));
    }
}

/// The span of one request; it ends with this.
pub(crate) struct ServerSpan(Parent);

impl ServerSpan {
    /// Begins it, as a child of the client's, and leaves it in the request; `None`: nothing is traced.
    pub(crate) fn begin<B>(request: &mut Request<B>) -> Option<Self> {
        let traces = TRACES.get()?;
        let client = HeaderExtractor(request.headers());
        let parent = traces.propagator.extract_with_context(&Context::new(), &client);
        let method = known(request.method());
        let builder = SpanBuilder::from_name(method)
            .with_kind(SpanKind::Server)
            .with_attributes([KeyValue::new(span::METHOD, method)]);
        let own = traces.tracer.build_with_context(builder, &parent);
        let parent = Parent(parent.with_span(own));
        request.extensions_mut().insert(parent.clone());
        Some(Self(parent))
    }

    /// Says which answer the client got, and ends.
    pub(crate) fn end<B>(self, response: &Response<B>) {
        let own = self.0.0.span();
        own.set_attribute(status(response.status()));
        if let Some(answered) = response.extensions().get::<Answered>() {
            own.set_attribute(KeyValue::new(span::RESULT, answered.as_str()));
        }
        let operation = response.headers().get("onceward-operation");
        if let Some(operation) = operation.and_then(|value| value.to_str().ok()) {
            own.set_attribute(KeyValue::new(span::OPERATION, operation.to_owned()));
        }
        if response.status().is_server_error() {
            own.set_status(Status::error(""));
        }
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        self.0.0.span().end();
    }
}

/// The span of one exchange with the upstream; it ends with this.
pub(crate) struct UpstreamSpan(Context);

impl UpstreamSpan {
    /// Begins it below the request's own, and names it to the upstream.
    pub(crate) fn begin<B>(request: &mut Request<B>) -> Option<Self> {
        let traces = TRACES.get()?;
        let Parent(parent) = request.extensions().get::<Parent>()?;
        let method = known(request.method());
        let mut attributes = vec![KeyValue::new(span::METHOD, method)];
        if let Some(claim) = request.extensions().get::<onceward::server::Claim>() {
            attributes.push(KeyValue::new(span::OPERATION, claim.id().to_string()));
            attributes.push(KeyValue::new(span::ATTEMPT, i64::from(claim.attempt())));
        }
        let builder =
            SpanBuilder::from_name(method).with_kind(SpanKind::Client).with_attributes(attributes);
        let own = parent.with_span(traces.tracer.build_with_context(builder, parent));
        strip(request.headers_mut());
        traces.propagator.inject_context(&own, &mut HeaderInjector(request.headers_mut()));
        Some(Self(own))
    }

    /// Says what came back, and ends.
    pub(crate) fn end(self, answer: Result<StatusCode, UpstreamFailure>) {
        let own = self.0.span();
        match answer {
            Ok(answer) => {
                own.set_attribute(status(answer));
                if answer.is_client_error() || answer.is_server_error() {
                    own.set_status(Status::error(""));
                }
            }
            Err(failure) => {
                own.set_attribute(KeyValue::new(span::ERROR, failure.as_str()));
                own.set_status(Status::error(""));
            }
        }
    }
}

impl Drop for UpstreamSpan {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// Whether deliveries are traced.
pub(crate) fn are_on() -> bool {
    TRACES.get().is_some()
}

/// Begins the span of an attempt to deliver a message, as a child of its producer's.
pub(crate) fn begin_delivery(message: &Message, attempt: &Attempt) -> DeliverySpan {
    let Some(traces) = TRACES.get() else {
        return DeliverySpan::new(attempt.traceparent.clone().unwrap_or_default(), |_| ());
    };
    let mut lines = HashMap::new();
    lines.extend(message.trace.clone().map(|trace| ("traceparent".to_owned(), trace)));
    let parent = traces.propagator.extract_with_context(&Context::new(), &lines);
    let attributes = vec![
        KeyValue::new(span::SINK, attempt.sink.to_string()),
        KeyValue::new(span::MESSAGE, message.id.to_string()),
        KeyValue::new(span::ATTEMPT, i64::from(attempt.number)),
    ];
    let builder = SpanBuilder::from_name(format!("send {}", attempt.sink))
        .with_kind(SpanKind::Producer)
        .with_attributes(attributes);
    let own = parent.with_span(traces.tracer.build_with_context(builder, &parent));
    lines.clear();
    traces.propagator.inject_context(&own, &mut lines);
    let traceparent = lines.remove("traceparent").unwrap_or_default();
    DeliverySpan::new(traceparent, move |sent| {
        let own = own.span();
        if *sent != Sent::Accepted {
            own.set_status(Status::error(""));
        }
        own.end();
    })
}

/// What the client said of its trace is replaced, all lines of it.
fn strip(lines: &mut HeaderMap) {
    lines.remove("traceparent");
    lines.remove("tracestate");
}

/// A method is any word that a client likes; only known ones get a name of their own.
fn known(method: &Method) -> &'static str {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    const NAMES: [&str; 9] =
        ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.iter().position(|known| known == method).map_or("_OTHER", |place| NAMES[place])
}

fn status(status: StatusCode) -> KeyValue {
    KeyValue::new(span::STATUS, i64::from(status.as_u16()))
}

/// Counts what could not be exported, and says so once in a while.
#[derive(Debug)]
struct Reporting {
    exporter: SpanExporter,
}

impl opentelemetry_sdk::trace::SpanExporter for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let number = batch.len();
        let exported = self.exporter.export(batch).await;
        if let Err(error) = &exported {
            metrics::EXPORTS_FAILED.add(());
            if may_complain() {
                let text = "spans could not be exported; it is said once in a minute";
                tracing::warn!(event = event::EXPORT_FAILED, number, %error, "{text}");
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn may_complain() -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let last = LAST.load(Ordering::Relaxed);
    let may = now.saturating_sub(last) >= COMPLAINT_EVERY.as_secs();
    if may {
        LAST.store(now, Ordering::Relaxed);
    }
    may
}
