//! Rules 1, 4 and 14 where the key is not in `Idempotency-Key`: other headers, and ids of events.

use serde_json::{Value, json};

use crate::gateway_support::{Call, Gateway, Upstream, Version, route, route_for};

const NAMES: &str =
    "key_header = [\"Idempotency-Key\", \"X-Idempotency-Key\", \"PayPal-Request-Id\"]";

fn of_alice() -> Call {
    Call::post("/pay").header("x-api-key", "alice").json(json!({"amount": 5}))
}

#[tokio::test]
async fn rule_1_a_key_comes_in_the_first_header_that_is_there() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(NAMES));
    for version in Version::BOTH {
        let key = format!("key-{version:?}");
        let by = |name: &str| of_alice().header(name, &key);
        let first = gateway.send_by(version, &by("paypal-request-id")).await;
        assert_eq!((first.status, first.is_replay()), (201, false));
        assert_eq!(upstream.last_lines("paypal-request-id").await, [key.as_str()]);
        assert_eq!(upstream.last_lines("idempotency-key").await, [key.as_str()], "rule 14");
        for name in ["idempotency-key", "x-idempotency-key", "paypal-request-id"] {
            assert!(gateway.send_by(version, &by(name)).await.is_replay(), "{name}");
        }
        let both = by("x-idempotency-key").header("paypal-request-id", "another");
        assert!(gateway.send_by(version, &both).await.is_replay(), "the first name wins");
        let reference = first.header("onceward-operation").unwrap().to_owned();
        let path = format!("/.onceward/operations?operation=POST%20/pay&key={key}");
        let status = gateway.send(&of_alice().retarget("GET", &path)).await.json();
        assert_eq!(status["operation"], reference.as_str(), "{status}");
    }
    assert_eq!(upstream.count().await, 2);
}

/// Else it would look to the upstream as if a retry were another operation.
#[tokio::test]
async fn rule_14_the_upstream_gets_the_key_that_counts() {
    let upstream = Upstream::any();
    let text = "key_header = [\"X-Key\", \"Idempotency-Key\"]";
    let gateway = Gateway::start(&upstream, &route(text));
    gateway.send(&of_alice().key("loses").header("x-key", "\"wins\"")).await;
    assert_eq!(upstream.last_lines("idempotency-key").await, ["\"wins\""]);
    assert_eq!(upstream.last_lines("x-key").await, ["\"wins\""]);
    assert!(gateway.send(&of_alice().key("wins")).await.is_replay());
}

#[tokio::test]
async fn rules_1_and_4_refusals_name_the_header() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(&format!("{NAMES}\nkey = \"required\"")));
    let named = "X-Idempotency-Key";
    for (call, code) in [
        (of_alice(), "key-missing"),
        (of_alice().header(named, "a, b"), "key-invalid"),
        (of_alice().header(named, "a").header(named, "a"), "key-invalid"),
        (of_alice().header(named, "").header("paypal-request-id", "good"), "key-invalid"),
    ] {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.problem(), (400, code.into()));
        assert!(reply.text().contains(named), "{}", reply.text());
    }
    assert_eq!(upstream.count().await, 0);
}

#[tokio::test]
async fn rule_4_a_route_takes_no_other_header_and_no_client_can_hide_its_own() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("key_header = [\"X-Key\"]"));
    let unkeyed = of_alice().key("k");
    for _ in 0..2 {
        let reply = gateway.send(&unkeyed).await;
        assert_eq!((reply.status, reply.header("onceward-operation")), (201, None));
    }
    let hiding = of_alice().header("x-key", "k").header("connection", "x-key");
    assert!(!gateway.send(&hiding).await.is_replay());
    assert!(gateway.send(&hiding).await.is_replay());
    assert_eq!(upstream.count().await, 3);
}

#[tokio::test]
async fn rule_29_a_key_under_a_name_of_any_route_is_one_where_no_route_matches() {
    let upstream = Upstream::any();
    let defaults = "[defaults]\nkey_header = [\"X-Key\"]\n";
    let event = route_for("POST /hook", "key_from = \"header:X-Event\"");
    let routes = route("") + &event + defaults;
    let gateway = Gateway::start(&upstream, &routes);
    let marked = async |name: &str| {
        let reply = gateway.send(&Call::post("/elsewhere").header(name, "k")).await;
        reply.header("onceward-unprotected").map(str::to_owned)
    };
    assert_eq!(marked("x-key").await.as_deref(), Some("no-route"));
    assert_eq!(marked("idempotency-key").await.as_deref(), Some("no-route"));
    assert_eq!(marked("x-event").await, None, "an id of an event is no promise");
    let refusing = Gateway::start(&upstream, &format!("unmatched = \"refuse\"\n{routes}"));
    let reply = refusing.send(&Call::post("/elsewhere").header("x-key", "k")).await;
    assert_eq!(reply.problem(), (404, "route-missing".into()));
}

fn event(body: impl Into<Value>) -> Call {
    Call::post("/hook").header("x-api-key", "shop").json(body)
}

#[tokio::test]
async fn rule_1_the_id_of_an_event_is_its_key_in_a_header() {
    let upstream = Upstream::any();
    let lines = "key_from = \"header:X-GitHub-Delivery\"\nkey = \"required\"";
    let gateway = Gateway::start(&upstream, &route_for("POST /hook", lines));
    let delivery = |id: &str| event(json!({"a": 1})).header("x-github-delivery", id);
    for version in Version::BOTH {
        gateway.send_by(version, &delivery("72d3162e")).await;
    }
    assert!(gateway.send(&delivery("72d3162e").key("another")).await.is_replay());
    gateway.send(&delivery("9")).await;
    assert_eq!(upstream.last_lines("idempotency-key").await, ["9"]);
    assert_eq!(upstream.count().await, 2);
    for (call, code) in [
        (event(json!({})).key("k"), "key-missing"),
        (delivery("a").header("x-github-delivery", "a"), "key-invalid"),
        (delivery("a b"), "key-invalid"),
    ] {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.problem(), (400, code.into()));
        assert!(reply.text().contains("X-GitHub-Delivery"), "{}", reply.text());
    }
}

#[tokio::test]
async fn rule_1_the_id_of_an_event_is_its_key_in_the_body() {
    let upstream = Upstream::any();
    let text = route_for("POST /hook", "key_from = \"json:/data/id\"\nname = \"hook\"");
    let gateway = Gateway::start(&upstream, &text);
    for version in Version::BOTH {
        for id in [json!(format!("evt_{version:?}")), json!(version as u64)] {
            let call = event(json!({"data": {"id": id}}));
            let first = gateway.send_by(version, &call).await;
            assert_eq!((first.status, first.is_replay()), (201, false), "{id}");
            let again = gateway.send_by(version, &call).await;
            assert_eq!((again.is_replay(), &again.body), (true, &first.body), "{id}");
            let key = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
            assert_eq!(upstream.last_lines("idempotency-key").await, [key.as_str()], "rule 14");
            let other = gateway.send(&event(json!({"data": {"id": id}, "more": 1}))).await;
            assert_eq!(other.problem(), (422, "key-reused".into()));
            let path = format!("/.onceward/operations?operation=hook&key={key}");
            let status = gateway.send(&call.retarget("GET", &path)).await.json();
            assert_eq!(status["state"], "succeeded", "{status}");
        }
    }
    assert_eq!(upstream.count().await, 4);
    gateway.send(&event(json!({"data": {"id": "a,b"}})).key("replaced")).await;
    assert_eq!(upstream.last_lines("idempotency-key").await, ["\"a,b\""]);
}

#[tokio::test]
async fn rule_4_an_event_without_an_id_passes_unless_the_route_requires_it() {
    let upstream = Upstream::any();
    let optional = route_for("POST /hook", "key_from = \"json:/id\"\nmax_request = \"4KiB\"");
    let required = route_for("POST /strict", "key_from = \"json:/id\"\nkey = \"required\"");
    let gateway = Gateway::start(&upstream, &(optional + &required));
    let bodies = ["{\"other\": 1}", "{\"id\": null}", "no JSON", ""];
    for body in bodies {
        let call = event(json!({})).body(body);
        for _ in 0..2 {
            let reply = gateway.send(&call).await;
            assert_eq!((reply.status, reply.header("onceward-operation")), (201, None), "{body}");
        }
        let seen = upstream.seen().await;
        assert_eq!(seen.last().unwrap()["size"], body.len(), "it is passed on whole");
        let strict = Call::post("/strict").header("x-api-key", "shop").body(body);
        let reply = gateway.send(&strict).await;
        assert_eq!(reply.problem(), (400, "key-missing".into()), "{body}");
        assert!(reply.text().contains("`/id` of the JSON body"), "{}", reply.text());
    }
    let count = upstream.count().await;
    assert_eq!(count, 2 * bodies.len() as u64);
    for (body, problem) in [
        ("{\"id\": true}".to_owned(), (400, "key-invalid")),
        ("{\"id\": 7.5}".to_owned(), (400, "key-invalid")),
        ("{\"id\": \"a b\"}".to_owned(), (400, "key-invalid")),
        ("{\"id\": \"a\", \"id\": \"b\"}".to_owned(), (400, "key-invalid")),
        (format!("{{\"id\": \"a\", \"b\": \"{}\"}}", "x".repeat(5000)), (413, "body-too-large")),
    ] {
        let reply = gateway.send(&event(json!({})).body(body.clone())).await;
        assert_eq!(reply.problem(), (problem.0, problem.1.into()), "{body}");
    }
    let compressed = event(json!({"id": "a"})).header("content-encoding", "gzip");
    assert_eq!(gateway.send(&compressed).await.problem(), (400, "key-invalid".into()));
    assert_eq!(upstream.count().await, count, "what may have a key is not passed on without it");
}

#[tokio::test]
async fn rule_5_key_and_scope_may_both_come_from_the_body() {
    let upstream = Upstream::any();
    let lines = "key_from = \"json:/id\"\nscope = [\"secret:x-api-key\", \"json:/account\"]";
    let gateway = Gateway::start(&upstream, &route_for("POST /hook", lines));
    let call = event(json!({"id": "e", "account": "a"}));
    gateway.send(&call).await;
    assert!(gateway.send(&call).await.is_replay());
    assert!(!gateway.send(&event(json!({"id": "e", "account": "b"}))).await.is_replay());
    let homeless = gateway.send(&event(json!({"id": "e"}))).await;
    assert_eq!(homeless.problem(), (401, "scope-missing".into()));
    assert_eq!(upstream.count().await, 2);
}
