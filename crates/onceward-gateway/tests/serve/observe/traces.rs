//! Traces: whose child each span is, what it says, and that a collector never harms a request.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    gateway_support::{Call, Gateway, Plan, Signal, Upstream, free_address, route},
    observe::{
        assert_no_secret,
        collector::{Collector, attribute, hexadecimal},
        pay,
    },
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

fn traced() -> Call {
    pay().header("traceparent", format!("00-{TRACE}-{CLIENT}-01")).header("tracestate", "v=1")
}

fn start(upstream: &Upstream, collector: &str) -> Gateway {
    Plan::new(&upstream.url(), &route("name = \"pay\""))
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "50")
        .start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_and_its_upstream_are_one_trace_and_a_replay_has_no_upstream() {
    let (upstream, collector) = (Upstream::any(), Collector::start().await);
    let gateway = start(&upstream, &collector.url());
    let first = gateway.send(&traced()).await;
    let spans = collector.spans(2).await;
    let of = |kind: SpanKind| spans.iter().find(|span| span.kind == kind as i32).unwrap();
    let (server, client) = (of(SpanKind::Server), of(SpanKind::Client));
    for span in [server, client] {
        assert_eq!(hexadecimal(&span.trace_id), TRACE);
    }
    assert_eq!(hexadecimal(&server.parent_span_id), CLIENT);
    assert_eq!(client.parent_span_id, server.span_id);
    let named = format!("00-{TRACE}-{}-01", hexadecimal(&client.span_id));
    assert_eq!(upstream.last_lines("traceparent").await, [named]);
    assert_eq!(upstream.last_lines("tracestate").await, ["v=1"]);

    assert_eq!(server.name, "POST pay");
    let operation = first.header("onceward-operation").unwrap().to_owned();
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "pay"),
        ("http.response.status_code", "201"),
        ("onceward.result", "first"),
        ("onceward.operation", &operation),
    ] {
        assert_eq!(attribute(&server.attributes, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(attribute(&client.attributes, "onceward.attempt").as_deref(), Some("1"));
    let service = attribute(&collector.resource().attributes, "service.name");
    assert_eq!(service.as_deref(), Some("onceward"));

    assert!(gateway.send(&traced()).await.is_replay());
    let spans = collector.spans(3).await;
    let replay = &spans[2];
    assert_eq!(attribute(&replay.attributes, "onceward.result").as_deref(), Some("replayed"));
    assert_eq!(replay.kind, SpanKind::Server as i32);
    assert_eq!(upstream.count().await, 1);

    gateway.send(&Call::new("GET", "/other?token=query-d4e5f6")).await;
    let spans = collector.spans(5).await;
    assert_eq!(spans.len(), 5, "a request that passes has both spans");
    assert_no_secret(&String::from_utf8_lossy(&collector.bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_is_exported_at_the_end() {
    let (upstream, collector) = (Upstream::any(), Collector::start().await);
    let plan = Plan::new(&upstream.url(), &route(""))
        .variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{}/v1/traces", collector.url()))
        .variable("OTEL_BSP_SCHEDULE_DELAY", "600000")
        .variable("OTEL_SERVICE_NAME", "payments-gateway")
        // One thread: the exporter's own must not need the one that waits for it.
        .variable("TOKIO_WORKER_THREADS", "1");
    let gateway = plan.start();
    gateway.send(&traced()).await;
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_end().success());
    collector.spans(2).await;
    let service = attribute(&collector.resource().attributes, "service.name");
    assert_eq!(service.as_deref(), Some("payments-gateway"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_the_headers_of_a_trace_pass_untouched() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    gateway.send(&traced()).await;
    assert_eq!(upstream.last_lines("traceparent").await, [format!("00-{TRACE}-{CLIENT}-01")]);
    assert_eq!(upstream.last_lines("tracestate").await, ["v=1"]);
}

/// One that refuses connections, and one that takes them and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_neither_slows_nor_fails_requests_nor_the_end() {
    let upstream = Upstream::any();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = format!("http://{}", free_address().unwrap());
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    tokio::join!(
        serve_with_a_dead_collector(&upstream, &refusing, Some("export_failed")),
        serve_with_a_dead_collector(&upstream, &silent_url, None),
    );
}

async fn serve_with_a_dead_collector(upstream: &Upstream, collector: &str, says: Option<&str>) {
    const QUEUE: u32 = 64;
    let plan = Plan::new(&upstream.url(), &route("name = \"pay\""))
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "50")
        .variable("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE.to_string())
        .variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32");
    let gateway = plan.start();
    // Far more than the queue of spans holds: each of them has two.
    for round in 0..4 * QUEUE {
        let call = Call::new("GET", "/x").told(json!({"status": 200, "body": "", "n": round}));
        assert_eq!(gateway.send(&call).await.status, 200);
    }
    if let Some(complaint) = says {
        let said = gateway.wait_for(complaint);
        assert_eq!(said.matches(complaint).count(), 1, "once in a while: {said}");
    }
    let stopping = Instant::now();
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_end().success());
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
}
