//! Rules 1 to 6: which operation a request is.

use axum::{Router, body::Body, routing::any};
use http::{Method, Request, request::Parts};
use onceward::{
    OperationName, Scope,
    server::{Idempotency, IdempotencyBuilder},
    store::memory::MemoryStore,
};
use tower::{Layer as _, ServiceExt as _};

use crate::{
    fixture::{Fixture, KEY, answering, ask, operation_of, payment, status_of, text, told, with},
    logs::Logs,
    server_support::{Ledger, layer, post, send, store},
};

fn keyed(key: &[u8]) -> Request<Body> {
    let request = Request::post("/pay").header("idempotency-key", key);
    request.body(Body::from("{}")).unwrap()
}

fn malformed() -> Vec<Vec<u8>> {
    let short = [
        &b""[..],
        b"  ",
        b"\"\"",
        b"a,b",
        b"a, b",
        b"\"a\", \"b\"",
        b"\"a\";x, \"b\"",
        b"\"a",
        b"\"a\\",
        b"\"a\"b",
        b"a b",
        b"\"a b\"",
        b"a\xff",
        b"\"\xff\"",
        "schl\u{fc}ssel".as_bytes(),
    ];
    let long = [256, 8192, 100_000].map(|length| vec![b'k'; length]);
    short.into_iter().map(<[u8]>::to_vec).chain(long).collect()
}

#[tokio::test]
async fn rule_01_a_key_is_the_same_quoted_or_bare_but_not_in_another_case() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    assert_eq!(ask(&app, keyed(b"abc")).await, "201 receipt 1");
    for same in
        [&b"abc"[..], b"  abc\t", b"\"abc\"", b"\"abc\" ", b"\"abc\"; v=1", b"\"abc\";n=\"x,y\""]
    {
        assert_eq!(ask(&app, keyed(same)).await, "201 receipt 1 replayed", "{same:?}");
    }
    for (number, other) in (2..).zip([&b"ABC"[..], b"Abc", b"abc;v=1", b"\"a,bc\"", b"'abc'"]) {
        assert_eq!(ask(&app, keyed(other)).await, format!("201 receipt {number}"), "{other:?}");
    }
}

#[tokio::test]
async fn rule_01_two_lines_a_list_or_nothing_is_no_key() {
    for key_required in [false, true] {
        let (store, ledger) = (std::sync::Arc::new(store()), Ledger::default());
        let options = layer(store.clone());
        let options = if key_required { options.require_key() } else { options };
        let app = Router::new().route("/pay", answering(&ledger, |_| text(201, "paid")));
        let app = app.layer(options.build().unwrap());
        for key in malformed() {
            assert_eq!(ask(&app, keyed(&key)).await, "400 key-invalid", "{key:?}");
        }
        let twice = with(keyed(b"abc"), "idempotency-key", b"abc");
        assert_eq!(ask(&app, twice).await, "400 key-invalid");
        assert_eq!((ledger.len(), store.swaps()), (0, 0), "refused before any look-up");
    }
}

#[tokio::test]
async fn rule_02_a_key_has_1_to_255_visible_characters() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let lengths = [1, 254, 255].map(|length| vec![b'k'; length]);
    let characters = (0x21..=0x7e_u8).map(|byte| match byte {
        b'"' | b'\\' => vec![b'"', b'\\', byte, b'"'],
        byte => vec![b'"', byte, b'"'],
    });
    for (number, key) in
        (1..).zip(lengths.into_iter().chain(characters.filter(|key| key[1] != b'k')))
    {
        assert_eq!(ask(&app, keyed(&key)).await, format!("201 receipt {number}"), "{key:?}");
        assert_eq!(ask(&app, keyed(&key)).await, format!("201 receipt {number} replayed"));
    }
    assert_eq!(ask(&app, keyed(&[b'k'; 256])).await, "400 key-invalid");
}

#[tokio::test(start_paused = true)]
async fn rule_02_the_key_does_not_show_in_logs() {
    let (logs, _guard) = Logs::collect();
    let (store, ledger) = (std::sync::Arc::new(store()), Ledger::default());
    let resolver = |_| async { Err("the provider is down".into()) };
    let idempotency = layer(store.clone()).resolver(resolver).build().unwrap();
    let service = answering(&ledger, |number| text(if number == 1 { 502 } else { 201 }, ""));
    let app = Router::new().route("/pay", service).layer(idempotency);
    let secret = "very-secret-key";
    for _ in 0..2 {
        let reply = send(&app, post("/pay", secret, "{}")).await;
        assert!(!String::from_utf8_lossy(&reply.body).contains(secret));
    }
    store.set_down(true);
    assert_eq!(ask(&app, post("/pay", "another-secret-key", "{}")).await, "503 store-unavailable");
    let logs = logs.text();
    assert!(logs.contains("a resolver failed") && logs.contains("a request was refused"), "{logs}");
    assert!(!logs.contains("secret-key"), "{logs}");
}

#[tokio::test]
async fn rule_03_other_methods_pass_untouched_even_with_a_malformed_key() {
    let fixture = Fixture::new(IdempotencyBuilder::require_key);
    let app = fixture.app(answering(&fixture.ledger, |number| {
        let mut answer = text(200, format!("receipt {number}"));
        answer.headers_mut().insert("idempotent-replayed", "by the service".parse().unwrap());
        answer
    }));
    let mut effects = 0;
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
        for key in [&b"good"[..], b"good", b"a,b", b"\xff"] {
            let mut request = with(keyed(b"second-line"), "idempotency-key", key);
            *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
            let reply = send(&app, request).await;
            effects += 1;
            assert_eq!((reply.status.as_u16(), fixture.ledger.len()), (200, effects), "{method}");
            assert_eq!(reply.headers["idempotent-replayed"], "by the service");
            for name in ["onceward-operation", "idempotency-expires", "idempotency-completed"] {
                assert_eq!(reply.header(name), None, "{method}");
            }
            if method != "HEAD" {
                assert_eq!(reply.text(), format!("receipt {effects}"));
            }
        }
    }
}

#[tokio::test]
async fn rule_03_post_and_patch_are_covered_and_put_and_delete_by_choice() {
    let by_default = Fixture::new(|options| options);
    let chosen = Fixture::new(|options| options.methods([Method::PUT, Method::DELETE]));
    for (fixture, covered) in [(by_default, ["POST", "PATCH"]), (chosen, ["PUT", "DELETE"])] {
        let app = fixture.paying();
        for method in ["POST", "PATCH", "PUT", "DELETE"] {
            let mut again = Vec::new();
            for _ in 0..2 {
                let mut request = keyed(b"abc");
                *request.method_mut() = method.parse().unwrap();
                again.push(send(&app, request).await.is_replay());
            }
            assert_eq!(again, [false, covered.contains(&method)], "{method}");
        }
        assert_eq!(fixture.ledger.len(), 2 + 2 * 2, "two covered, two not");
    }
}

#[tokio::test]
async fn rule_04_without_a_key_a_request_passes_unless_the_route_requires_one() {
    let fixture = Fixture::new(|options| options);
    let (app, keyless) =
        (fixture.paying(), || Request::post("/pay").body(Body::from("{}")).unwrap());
    for number in 1..=2 {
        let reply = send(&app, keyless()).await;
        assert_eq!(told(&reply), format!("201 receipt {number}"));
        assert_eq!((operation_of(&reply), reply.header("idempotency-expires")), (None, None));
    }
    let fixture = Fixture::new(IdempotencyBuilder::require_key);
    let app = fixture.paying();
    let reply = send(&app, keyless()).await;
    assert_eq!((told(&reply).as_str(), operation_of(&reply)), ("400 key-missing", None));
    assert_eq!(fixture.ledger.len(), 0);
    assert_eq!(ask(&app, payment()).await, "201 receipt 1");
}

#[tokio::test]
async fn rule_05_a_request_without_its_scope_is_refused_and_shares_nothing() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    for _ in 0..2 {
        for nobody in [&b""[..], b"\xff"] {
            let reply = send(&app, with(payment(), "x-caller", nobody)).await;
            assert_eq!((told(&reply).as_str(), operation_of(&reply)), ("401 scope-missing", None));
        }
    }
    assert_eq!(fixture.ledger.len(), 0);
    assert_eq!(ask(&app, with(payment(), "x-caller", b"ada")).await, "201 receipt 1");
    assert_eq!(ask(&app, with(payment(), "x-caller", b"")).await, "401 scope-missing");
}

#[tokio::test]
async fn rule_05_each_caller_has_operations_of_its_own() {
    let fixture = Fixture::new(|options| options);
    let app = fixture.paying();
    let mut references = Vec::new();
    for (number, caller) in (1..).zip(["ada", "Ada", "bob", "ada\\", "ada,x=1"]) {
        let request = || with(payment(), "x-caller", caller.as_bytes());
        let reply = send(&app, request()).await;
        assert_eq!(told(&reply), format!("201 receipt {number}"), "{caller}");
        assert_eq!(ask(&app, request()).await, format!("201 receipt {number} replayed"));
        references.push(operation_of(&reply).unwrap().to_owned());
    }
    references.sort();
    references.dedup();
    assert_eq!(references.len(), 5);
}

#[tokio::test]
async fn rule_05_parts_of_a_scope_do_not_run_into_each_other() {
    let scope = |request: &Parts| {
        let part = |name| request.headers[name].to_str().unwrap().to_owned();
        Scope::new([("tenant", part("x-tenant")), ("user", part("x-user"))])
    };
    let idempotency = Idempotency::builder(MemoryStore::not_durable(), scope).build().unwrap();
    let ledger = Ledger::default();
    let app = Router::new().route("/pay", answering(&ledger, |_| text(201, ""))).layer(idempotency);
    for (tenant, user) in [("ab", "c"), ("a", "bc"), ("abc", "-"), ("c", "ab")] {
        let request = with(payment(), "x-tenant", tenant.as_bytes());
        assert!(!send(&app, with(request, "x-user", user.as_bytes())).await.is_replay());
    }
    assert_eq!(ledger.len(), 4);
}

#[tokio::test]
async fn rule_06_an_operation_is_named_by_method_and_route_template() {
    let fixture = Fixture::new(|options| options);
    let service = || answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
    let routes = Router::new().route("/charges/{id}", service()).route("/refunds/{id}", service());
    let app = routes.layer(fixture.idempotency.clone()).merge(fixture.idempotency.status_routes());
    let first = send(&app, post("/charges/1", KEY, "{}")).await;
    assert_eq!(told(&first), "201 receipt 1");
    assert_eq!(status_of(&app, &first).await["name"], "POST /charges/{id}");
    let other_path = ask(&app, post("/charges/2", KEY, "{}")).await;
    assert_eq!(
        other_path, "422 key-reused",
        "one template, one operation; the path is its meaning"
    );
    assert_eq!(ask(&app, post("/refunds/1", KEY, "{}")).await, "201 receipt 2");
    let mut patch = post("/charges/1", KEY, "{}");
    *patch.method_mut() = Method::PATCH;
    assert_eq!(ask(&app, patch).await, "201 receipt 3", "the method is part of the name");
}

#[tokio::test]
async fn rule_06_two_routes_with_one_name_share_their_keys_and_that_is_noted() {
    let (logs, _guard) = Logs::collect();
    let fixture = Fixture::new(|options| options.operation("charge.create"));
    let service = || answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
    let other = fixture.idempotency.with(IdempotencyBuilder::require_key).unwrap();
    let old = Router::new().route("/v1/charges", service()).layer(fixture.idempotency.clone());
    assert!(!logs.text().contains("charge.create"), "one layer alone is nothing to note");
    let new = Router::new().route("/v2/charges", service()).layer(other);
    let noted = logs.text();
    assert!(noted.contains("charge.create") && noted.contains("share their keys"), "{noted}");
    let app = old.merge(new).merge(fixture.idempotency.status_routes());
    let first = send(&app, post("/v1/charges", KEY, "{}")).await;
    assert_eq!(status_of(&app, &first).await["name"], "charge.create");
    let reply = send(&app, post("/v2/charges", KEY, "{}")).await;
    assert_eq!(told(&reply), "422 key-reused");
    assert_eq!(operation_of(&reply), operation_of(&first), "it is the same operation");
    assert_eq!(fixture.ledger.len(), 1);
}

#[tokio::test]
async fn rule_06_a_nested_route_is_named_by_its_whole_template() {
    for layer_is_inside in [true, false] {
        let fixture = Fixture::new(|options| options);
        let nested = || {
            let service =
                answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
            let routes = Router::new().route("/charges/{id}", service);
            if layer_is_inside { routes.layer(fixture.idempotency.clone()) } else { routes }
        };
        let app = Router::new().nest("/v1/{tenant}", nested()).nest("/v2", nested());
        let app = if layer_is_inside { app } else { app.layer(fixture.idempotency.clone()) };
        let app = app.merge(fixture.idempotency.status_routes());
        let first = send(&app, post("/v1/acme/charges/1", KEY, "{}")).await;
        assert_eq!(told(&first), "201 receipt 1");
        assert_eq!(status_of(&app, &first).await["name"], "POST /v1/{tenant}/charges/{id}");
        let reused = ask(&app, post("/v1/other/charges/1", KEY, "{}")).await;
        assert_eq!(reused, "422 key-reused", "the path that the client asked for counts");
        assert_eq!(ask(&app, post("/v2/charges/1", KEY, "{}")).await, "201 receipt 2");
        assert_eq!(ask(&app, post("/v2/charges/1", KEY, "{}")).await, "201 receipt 2 replayed");
    }
}

/// A nested service has no template, and sees only the rest of its path.
#[tokio::test]
async fn rule_06_without_a_template_an_operation_is_named_by_its_whole_path() {
    let fixture = Fixture::new(|options| options);
    let nested = || {
        let service = answering(&fixture.ledger, |number| text(201, format!("receipt {number}")));
        fixture.idempotency.layer(service)
    };
    let app = Router::new().nest_service("/v1", nested()).nest_service("/v2", nested());
    let app = app.merge(fixture.idempotency.status_routes());
    let first = send(&app, post("/v1/charges", KEY, "{}")).await;
    assert_eq!(told(&first), "201 receipt 1");
    assert_eq!(status_of(&app, &first).await["name"], "POST /v1/charges");
    assert_eq!(ask(&app, post("/v2/charges", KEY, "{}")).await, "201 receipt 2");
}

#[tokio::test]
async fn rule_06_a_service_may_name_its_operations_by_the_request() {
    let fixture = Fixture::new(|options| {
        options.operation_by(|request: &Parts| {
            let name =
                request.headers.get("x-operation").ok_or("say what you want with x-operation")?;
            OperationName::new(name.to_str().unwrap()).map_err(|_| "your x-operation is malformed")
        })
    });
    let app = fixture.app(any({
        let ledger = fixture.ledger.clone();
        async move || text(201, format!("receipt {}", ledger.add("pay")))
    }));
    let named = |name: &str| with(payment(), "x-operation", name.as_bytes());
    let first = send(&app, named("pay")).await;
    assert_eq!(told(&first), "201 receipt 1");
    assert_eq!(status_of(&app, &first).await["name"], "pay");
    assert_eq!(ask(&app, named("refund")).await, "201 receipt 2");
    assert_eq!(ask(&app, named("pay")).await, "201 receipt 1 replayed");
    for nameless in [payment(), named("")] {
        let reply = send(&app, nameless).await;
        assert_eq!(told(&reply), "400 request-malformed");
        assert!(reply.text().contains("x-operation"), "{}", reply.text());
    }
    assert_eq!(fixture.ledger.len(), 2);
}

#[tokio::test]
async fn rule_06_a_plain_tower_service_is_named_by_method_and_path() {
    let (idempotency, ledger) = (layer(store()).build().unwrap(), Ledger::default());
    let service =
        idempotency.layer(tower::service_fn({
            let ledger = ledger.clone();
            move |_: Request<onceward::Body>| {
                let number = ledger.add("pay");
                async move {
                    Ok::<_, String>(http::Response::new(onceward::Body::from(vec![number as u8])))
                }
            }
        }));
    for (path, replayed) in [("/a", false), ("/a", true), ("/b", false), ("/b", true)] {
        let request = Request::post(path).header("idempotency-key", KEY);
        let request = request.body(onceward::Body::from("{}")).unwrap();
        let reply = service.clone().oneshot(request).await.unwrap();
        assert_eq!(reply.headers().contains_key("idempotent-replayed"), replayed, "{path}");
    }
    assert_eq!(ledger.len(), 2);
}
