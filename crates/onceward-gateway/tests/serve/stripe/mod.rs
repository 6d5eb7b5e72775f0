//! Refusals as Stripe's SDKs read them: with `profile = "stripe"`, or `errors = "stripe"` alone.

mod sdk;
mod service;

use serde_json::{Value, json};

use crate::gateway_support::{
    Call, Gateway, Plan, Reply, TEST_TIMEOUT, Upstream, eventually, free_address, route_for,
};
use sdk::Sdk;
use service::Service;

const ROUTE: &str = "POST /v1/charges";
const SCOPE: &str = "scope = [\"secret:authorization\"]\n";

fn charge(key: &str) -> Call {
    Call::post("/v1/charges").key(key).header("authorization", "Bearer sk").json(json!({"a": 1}))
}

/// The status, the error, and whether the SDK shall try again.
fn error(reply: &Reply) -> (u16, Value, Option<&str>) {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let document = reply.json();
    assert_eq!(document.as_object().unwrap().len(), 1, "{document}");
    let mut error = document["error"].clone();
    let error_members = error.as_object_mut().unwrap();
    let message = error_members.remove("message").unwrap();
    assert!(message.as_str().unwrap().len() > 20, "{message}");
    let url = error_members.remove("doc_url").unwrap();
    assert!(url.as_str().unwrap().starts_with("https://"), "{url}");
    (reply.status, error, reply.header("stripe-should-retry"))
}

#[tokio::test]
async fn refusals_have_stripes_shape_and_statuses() {
    let upstream = Upstream::any();
    for (lines, mismatch) in [
        ("profile = \"stripe\"", 400),
        ("errors = \"stripe\"", 400),
        ("errors = \"stripe\"\nmismatch = 422", 422),
        ("profile = \"stripe\"\nmismatch = 409", 409),
    ] {
        let lines = format!("{SCOPE}key = \"required\"\nin_flight = \"conflict\"\n{lines}");
        let gateway = Gateway::start(&upstream, &route_for(ROUTE, &lines));
        let about_key = |code: &str| json!({"type": "idempotency_error", "code": code});
        assert_eq!(gateway.send(&charge("a")).await.status, 201, "{lines}");
        let reused = gateway.send(&charge("a").json(json!({"a": 2}))).await;
        assert_eq!(error(&reused), (mismatch, about_key("key-reused"), Some("false")), "{lines}");
        assert!(reused.header("onceward-operation").is_some());

        let gate = format!("g-{mismatch}-{}", lines.len());
        let seen = upstream.count().await;
        let running = gateway.begin(&charge("b").told(json!({ "gate": gate })));
        upstream.arrival(seen + 1).await;
        let busy = gateway.send(&charge("b")).await;
        assert_eq!(error(&busy), (409, about_key("idempotency_key_in_use"), Some("true")));
        assert_eq!(busy.header("retry-after"), Some("1"));
        upstream.open(&gate).await;
        assert_eq!(running.await.unwrap().status, 201);

        let keyless = gateway.send(&charge("a").without_key()).await;
        assert_eq!(error(&keyless), (400, about_key("key-missing"), Some("false")));
        let lost = gateway.send(&charge("c").told(json!({"hang_up": true}))).await;
        let unknown = |kind: &str| json!({"type": kind, "code": "outcome-unknown"});
        assert_eq!(error(&lost), (504, unknown("api_error"), Some("false")));
        let again = gateway.send(&charge("c")).await;
        assert_eq!(error(&again), (409, unknown("idempotency_error"), Some("false")));
    }
}

#[tokio::test]
async fn what_never_reached_the_upstream_has_stripes_shape_with_and_without_a_key() {
    let lines = format!("{SCOPE}errors = \"stripe\"");
    let text = route_for(ROUTE, &lines)
        + &route_for("POST /v1/refunds", "key = \"off\"\nerrors = \"stripe\"");
    let gateway = Plan::new(&format!("http://{}", free_address().unwrap()), &text).start();
    let unreachable = json!({"type": "api_error", "code": "upstream-unreachable"});
    for call in [charge("a"), charge("a").without_key(), Call::post("/v1/refunds")] {
        let reply = gateway.send(&call).await;
        assert_eq!(error(&reply), (502, unreachable.clone(), Some("true")), "{call:?}");
    }
}

#[tokio::test]
async fn other_refusals_have_stripes_shape_too() {
    let upstream = Upstream::any();
    let lines = format!("{SCOPE}errors = \"stripe\"\nmax_request = \"1KiB\"\nmax_open = 1");
    let gateway = Gateway::start(&upstream, &route_for(ROUTE, &lines));
    let of = |kind: &str, code: &str| json!({"type": kind, "code": code});
    let nobody = gateway.send(&charge("a").without("authorization")).await;
    assert_eq!(error(&nobody), (401, of("idempotency_error", "scope-missing"), Some("false")));
    assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
    let large = gateway.send(&charge("a").body(vec![b' '; 2000])).await;
    assert_eq!(error(&large), (413, of("idempotency_error", "body-too-large"), Some("false")));

    let running = gateway.begin(&charge("b").told(json!({"gate": "g"})));
    upstream.arrival(1).await;
    let one_more = gateway.send(&charge("c")).await;
    assert_eq!(error(&one_more), (429, of("idempotency_error", "too-many-open"), Some("true")));
    assert!(one_more.header("retry-after").is_some());
    upstream.open("g").await;
    assert_eq!(running.await.unwrap().status, 201);

    std::fs::rename(gateway.store(), gateway.store().with_extension("away")).unwrap();
    let down = gateway.send(&charge("d")).await;
    assert_eq!(error(&down), (503, of("api_error", "store-unavailable"), Some("true")));
    assert!(down.header("retry-after").is_some());
}

#[tokio::test]
async fn what_no_route_speaks_of_is_refused_as_the_defaults_say() {
    let by_key = "/.onceward/operations?operation=POST%20%2Fv1%2Fcharges&key=none";
    let lines = format!("name = \"charge\"\n{SCOPE}");
    let of = |kind: &str, code: &str| json!({"type": kind, "code": code});
    for defaults in ["errors = \"stripe\"", "profile = \"stripe\""] {
        let top = format!("unmatched = \"refuse\"\n[defaults]\n{defaults}\n");
        let address = format!("http://{}", free_address().unwrap());
        let gateway = Plan::new(&address, &(top + &route_for(ROUTE, &lines))).start();
        let signed = |call: Call| call.header("authorization", "Bearer sk");
        for (call, status, kind, code) in [
            (Call::post("/elsewhere").key("k"), 404, "idempotency_error", "route-missing"),
            (Call::post("/elsewhere"), 502, "api_error", "upstream-unreachable"),
            (Call::post("/v1/../charges"), 400, "idempotency_error", "request-malformed"),
            (Call::new("GET", by_key), 404, "idempotency_error", "operation-not-found"),
            (
                Call::new("GET", "/.onceward/operations"),
                400,
                "idempotency_error",
                "request-malformed",
            ),
            (Call::new("GET", "/.onceward/x"), 404, "idempotency_error", "operation-not-found"),
        ] {
            let reply = gateway.send(&signed(call)).await;
            let retry = if status == 502 { "true" } else { "false" };
            assert_eq!(error(&reply), (status, of(kind, code), Some(retry)), "{defaults}");
        }
    }
    // The route that is asked for has a say, too.
    let gateway =
        Gateway::start(&Upstream::any(), &route_for(ROUTE, &format!("{SCOPE}errors = \"stripe\"")));
    let reply = gateway.send(&Call::new("GET", by_key).header("authorization", "Bearer sk")).await;
    assert_eq!(error(&reply).1, of("idempotency_error", "operation-not-found"));
    let elsewhere = gateway.send(&Call::new("GET", "/.onceward/x")).await;
    assert_eq!(elsewhere.problem(), (404, "operation-not-found".into()));
}

/// Stripe keeps no answer of a request whose parameters it refuses; only the profile does so.
#[tokio::test]
async fn a_400_frees_the_key_by_the_profile_and_not_by_the_shape() {
    let upstream = Upstream::any();
    for (lines, is_freed) in [("profile = \"stripe\"", true), ("errors = \"stripe\"", false)] {
        let gateway = Gateway::start(&upstream, &route_for(ROUTE, &format!("{SCOPE}{lines}")));
        for (status, is_freed) in
            [(400, is_freed), (402, false), (404, false), (409, false), (422, false)]
        {
            let key = format!("{is_freed}-{status}-{}", lines.len());
            let first = gateway.send(&charge(&key).told(json!({ "status": status }))).await;
            assert_eq!(first.status, status);
            let again = gateway.send(&charge(&key)).await;
            let expected = if is_freed { (201, false) } else { (status, true) };
            assert_eq!((again.status, again.is_replay()), expected, "{lines}: {status}");
        }
    }
}

/// A gateway before this service, with the profile.
fn gateway(upstream: &str) -> Gateway {
    let lines = format!("{SCOPE}profile = \"stripe\"\nin_flight = \"conflict\"");
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route_for(ROUTE, &lines));
    Plan::new(upstream, &text).start()
}

/// How many duplicates of what runs have been refused.
const REFUSED: &str = "onceward_requests_total{result=\"in-progress\",route=\"POST /v1/charges\"}";

fn of(amount: u64) -> Value {
    json!({"amount": amount, "currency": "eur", "source": "tok_visa"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stripes_sdks_understand_what_they_are_told() {
    let directory = tempfile::tempdir().unwrap();
    for sdk in Sdk::usual(&directory) {
        an_sdk_understands(&sdk).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: compiles Stripe's SDK for Go and stripe-mock"]
async fn stripes_sdks_understand_what_they_are_told_before_stripe_mock() {
    let directory = tempfile::tempdir().unwrap();
    let Some((go, mock)) = sdk::with_go() else { return };
    an_sdk_understands(&go).await;
    let address = free_address().unwrap();
    let process = mock.start(address);
    let gateway = gateway(&format!("http://{address}"));
    for sdk in Sdk::usual(&directory).into_iter().chain([go]) {
        let key = |name: &str| format!("{name}-{}", sdk.name);
        let call = async |name: &str, of: Value| sdk.call(&gateway, &key(name), &of, 0).await;
        let made = call("a", of(100)).await;
        assert!(made["id"].as_str().unwrap().starts_with("ch_"), "{}: {made}", sdk.name);
        assert_eq!(call("a", of(100)).await, made);
        let reused = call("a", of(200)).await;
        assert_eq!((&reused["status"], &reused["code"]), (&json!(400), &json!("key-reused")));
        // The mock refuses what is no amount with a 400: the key is free.
        let refused = call("b", json!({"amount": "many", "currency": "eur"})).await;
        assert_eq!(refused["status"], 400, "{}: {refused}", sdk.name);
        let mended = call("b", of(100)).await;
        assert!(mended["id"].as_str().unwrap().starts_with("ch_"), "{}: {mended}", sdk.name);
    }
    drop(process);
}

async fn an_sdk_understands(sdk: &Sdk) {
    let service = Service::start().await;
    let gateway = gateway(&format!("http://{}", service.address));
    let name = sdk.name;
    let call = async |key: &str, amount: u64, retries: u32| {
        sdk.call(&gateway, key, &of(amount), retries).await
    };
    let made = call("a", 100, 0).await;
    assert_eq!(made, json!({"id": "ch_1"}), "{name}");
    assert_eq!(call("a", 100, 0).await, made, "{name}: a replay");

    let reused = call("a", 200, 2).await;
    assert!(sdk.is_idempotency_error(&reused), "{name}: {reused}");
    assert_eq!((&reused["status"], &reused["code"]), (&json!(400), &json!("key-reused")));
    assert!(reused["doc_url"].as_str().unwrap().starts_with("https://"), "{name}: {reused}");
    assert!(reused["message"].as_str().unwrap().contains("a new key"), "{name}: {reused}");

    // 504 and not 409: the SDK did not try again, though it may try twice.
    let unknown = call("b", Service::BROKEN, 2).await;
    assert_eq!((&unknown["status"], &unknown["code"]), (&json!(504), &json!("outcome-unknown")));
    assert_eq!(unknown["type"], "api_error", "{name}: {unknown}");

    let (first, (busy, patient)) = tokio::join!(call("c", Service::GATED, 0), async {
        service.arrival(Service::GATED).await;
        let busy = call("c", Service::GATED, 0).await;
        let patient = call("c", Service::GATED, 5);
        if !sdk.repeats_what_is_refused() {
            let refused = patient.await;
            service.gate.open();
            return (busy, refused);
        }
        let (patient, ()) = tokio::join!(patient, async {
            let is_refused = async || gateway.metric(REFUSED).await > 1;
            eventually("it is refused, too", is_refused).await;
            service.gate.open();
        });
        (busy, patient)
    });
    let code = json!("idempotency_key_in_use");
    assert_eq!((&busy["status"], &busy["code"]), (&json!(409), &code), "{name}: {busy}");
    assert_eq!(busy["type"], "idempotency_error", "{name}: {busy}");
    let expected = if sdk.repeats_what_is_refused() { &first } else { &busy };
    assert_eq!((&patient, first["id"].is_string()), (expected, true), "{name}: it comes back");

    let refused = call("d", Service::REFUSED, 0).await;
    assert_eq!((&refused["status"], &refused["code"]), (&json!(400), &json!("parameter_missing")));
    assert!(call("d", 100, 0).await["id"].is_string(), "{name}: the key is free");
    for _ in 0..2 {
        let declined = call("e", Service::DECLINED, 0).await;
        assert_eq!(declined["code"], "card_declined", "{name}: {declined}");
    }
    for amount in [Service::BROKEN, Service::GATED, Service::DECLINED] {
        assert_eq!(service.count(amount), 1, "{name}: {amount}");
    }
}
