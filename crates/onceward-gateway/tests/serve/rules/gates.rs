//! Rules 23, 24 and 26: who may see an answer, how refusals look, and the status URL.

use serde_json::{Value, json};

use crate::{
    gateway_support::{
        Call, Certificates, Gateway, Link, Plan, Reply, Upstream, Version, route, route_for,
        told_url,
    },
    rules::{
        pay,
        scopes::{endless, token, with_tokens},
    },
};

#[tokio::test]
async fn rule_23_a_replay_needs_a_token_that_is_valid_now() {
    let upstream = Upstream::any();
    let gateway = with_tokens(&upstream, &route("authorize = \"jwt\""));
    let allowed = pay("k").header("authorization", token(&json!({"sub": "alice"})));
    assert_eq!(gateway.send(&allowed).await.status, 201);
    assert!(gateway.send(&allowed).await.is_replay());
    let expired = pay("k").header("authorization", token(&json!({"sub": "a", "exp": 1_000_000})));
    let endless = pay("k").header("authorization", endless(&json!({"sub": "alice"})));
    for (call, reason) in [
        (pay("k"), "the request has no Authorization header"),
        (expired, "the token has expired"),
        (endless, "does not say when it expires (claim exp)"),
    ] {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.problem(), (403, "replay-forbidden".into()));
        assert!(reply.text().contains(reason), "{reason}: {}", reply.text());
        assert!(!reply.text().contains("receipt"));
    }
    assert!(gateway.send(&allowed).await.is_replay(), "the record is as it was");
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_23_a_replay_needs_a_certificate_where_the_route_says_so() {
    let upstream = Upstream::any();
    let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n";
    let text = format!("{tls}{}", route("authorize = \"mtls\""));
    let plan = Plan::new(&upstream.url(), &text);
    let directory = plan.directory.clone();
    if Certificates::make(directory.path(), &["alice"]).is_none() {
        return;
    }
    let gateway = plan.start();
    for version in Version::BOTH {
        let send = async |name| {
            let config = Certificates::client(directory.path(), name);
            Link::open_tls(gateway.address, version, config).await.send(&pay("k")).await
        };
        assert_eq!(send(Some("alice")).await.status, 201);
        assert!(send(Some("alice")).await.is_replay());
        assert_eq!(send(None).await.problem(), (403, "replay-forbidden".into()));
    }
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_23_a_url_says_whether_a_replay_may_be_seen() {
    let upstream = Upstream::any();
    // The upstream reads the caller's `x-do`, so each request brings the answer along.
    let gateway = Gateway::start(
        &upstream,
        &route(&format!("authorize = \"{}\"", told_url(&upstream, "/allow", &json!({})))),
    );
    let says = |status: u16| {
        pay("k").header("authorization", "of the caller").told(json!({"status": status}))
    };
    assert_eq!(gateway.send(&says(200)).await.status, 200);
    assert_eq!(upstream.count().await, 1, "the first one is not asked for here");
    assert!(gateway.send(&says(204)).await.is_replay());
    let seen = upstream.seen().await;
    assert_eq!((&seen[1]["method"], &seen[1]["size"]), (&json!("GET"), &json!(0)));
    assert_eq!(upstream.last_lines("authorization").await, ["of the caller"]);
    for status in [401, 403, 404, 500] {
        let reply = gateway.send(&says(status)).await;
        assert_eq!(reply.problem(), (403, "replay-forbidden".into()), "{status}");
    }
    let nobody = Plan::new(&upstream.url(), &route("authorize = \"http://127.0.0.1:9/allow\""));
    let gateway = nobody.beside(&gateway).start();
    assert_eq!(gateway.send(&says(200)).await.problem(), (403, "replay-forbidden".into()));
    assert_eq!(upstream.count_at("/pay").await, 1);
}

#[tokio::test]
async fn rule_24_refusals_are_problem_documents() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("key = \"required\"\nmax_request = \"1KiB\""));
    gateway.send(&pay("used")).await;
    gateway.send(&pay("lost").told(json!({"hang_up": true}))).await;
    let status = Call::new("GET", "/.onceward/operations/none");
    for (call, status, code, retryable, safe_new_key) in [
        (pay("k").without_key(), 400, "key-missing", false, true),
        (pay("a b"), 400, "key-invalid", false, true),
        (pay("k").without("x-api-key"), 401, "scope-missing", false, true),
        (pay("used").json(json!(1)), 422, "key-reused", false, true),
        (pay("lost"), 409, "outcome-unknown", false, false),
        (pay("k").body(vec![b'x'; 4096]), 413, "body-too-large", false, true),
        (status, 404, "operation-not-found", false, false),
        (pay("k").retarget("POST", "/x/../pay"), 400, "request-malformed", false, true),
    ] {
        for version in Version::BOTH {
            let reply = gateway.send_by(version, &call).await;
            assert_eq!(reply.problem(), (status, code.into()));
            assert_eq!(reply.header("cache-control"), Some("no-store"), "{code}");
            let document = reply.json();
            assert_eq!(document["type"], format!("urn:onceward:problem:{code}"));
            assert_eq!(document["status"], status);
            assert_eq!(document["retryable"], retryable, "{code}");
            assert_eq!(document["safe_new_key"], safe_new_key, "{code}");
            assert!(document["detail"].as_str().unwrap().len() > 10);
            let url = document["doc_url"].as_str().unwrap();
            assert!(url.starts_with("https://"), "{url}");
            let link = format!("<{url}>; rel=\"describedby\"; type=\"text/html\"");
            assert_eq!(reply.header("link"), Some(link.as_str()));
            let challenge = (status == 401).then_some("ApiKey header=\"x-api-key\"");
            assert_eq!(reply.header("www-authenticate"), challenge, "{code}");
            assert!(!reply.is_replay());
        }
    }
    assert_eq!(upstream.count().await, 2);
}

fn reference(reply: &Reply) -> String {
    reply.header("onceward-operation").unwrap().to_owned()
}

fn get(path: &str, who: &str) -> Call {
    Call::new("GET", path).header("x-api-key", who)
}

#[tokio::test]
async fn rule_26_the_owner_can_look_and_nobody_else() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("name = \"pay\""));
    let first = gateway.send(&pay("k")).await;
    let by_reference = format!("/.onceward/operations/{}", reference(&first));
    let by_key = "/.onceward/operations?operation=pay&key=k";
    for path in [by_reference.as_str(), by_key] {
        for version in Version::BOTH {
            let status = gateway.send_by(version, &get(path, "alice")).await;
            let document = status.json();
            assert_eq!((status.status, &document["state"]), (200, &json!("succeeded")), "{path}");
            assert_eq!(document["operation"], reference(&first));
            assert_eq!((&document["name"], &document["status"]), (&json!("pay"), &json!(201)));
            assert_eq!(document["attempt"], 1);
            assert_eq!(status.header("cache-control"), Some("no-store"));
            assert!(!status.text().contains("receipt"));
        }
        let other = gateway.send(&get(path, "bob")).await;
        assert_eq!(other.problem(), (404, "operation-not-found".into()), "{path}");
    }
    let nobody = gateway.send(&Call::new("GET", &by_reference)).await;
    assert_eq!(nobody.problem(), (404, "operation-not-found".into()));
    for (path, status) in [
        ("/.onceward/operations?operation=pay&key=another", 404),
        ("/.onceward/operations?operation=nothing&key=k", 404),
        ("/.onceward/operations", 400),
        ("/.onceward/operations/AAAA", 404),
        ("/.onceward/elsewhere", 404),
        ("/.onceward", 404),
    ] {
        assert_eq!(gateway.send(&get(path, "alice")).await.status, status, "{path}");
    }
    assert_eq!(gateway.send(&pay("k").retarget("POST", &by_reference)).await.status, 405);
    assert_eq!(upstream.count().await, 1, "none of this goes to the upstream");
    assert_eq!(gateway.send(&get("/.oncewardly", "alice")).await.status, 201, "this is not ours");
}

#[tokio::test]
async fn rule_26_every_route_tells_by_its_own_scope() {
    let upstream = Upstream::any();
    let text = route_for("POST /plain", "")
        + &route_for("POST /t/{tenant}/pay", "scope = [\"secret:x-api-key\", \"path:tenant\"]")
        + &route_for("POST /json", "scope = [\"secret:x-api-key\", \"json:/account\"]")
        + &route_for("POST /named-1", "name = \"shared\"\nscope = [\"secret:x-other\"]")
        + &route_for("POST /named-2", "name = \"shared\"\nscope = [\"secret:x-api-key\"]")
        + &route_for("POST /all", "scope = [\"global\"]")
        + &route_for("POST /files/{*rest}", "");
    let gateway = Gateway::start(&upstream, &text);
    for path in ["/plain", "/t/one/pay", "/json", "/named-2", "/files/a/b%2Fc", "/files/%61"] {
        let call = Call::post(path).key("k").header("x-api-key", "alice");
        let reply = gateway.send(&call.json(json!({"account": "a"}))).await;
        assert_eq!(reply.status, 201, "{path}");
        let status = format!("/.onceward/operations/{}", reference(&reply));
        let of_owner = gateway.send(&get(&status, "alice")).await;
        assert_eq!(of_owner.status, 200, "{path}: {}", of_owner.text());
        assert_eq!(gateway.send(&get(&status, "bob")).await.status, 404, "{path}");
    }
    let all = gateway.send(&Call::post("/all").key("k")).await;
    let status = format!("/.onceward/operations/{}", reference(&all));
    assert_eq!(gateway.send(&Call::new("GET", &status)).await.status, 200);
    let by_key = |name: &str| format!("/.onceward/operations?operation={name}&key=k");
    for (name, status) in [
        ("POST%20/plain", 200),
        ("POST%20/t/%7Btenant%7D/pay", 400),
        ("POST%20/json", 400),
        ("POST%20/files/a", 200),
    ] {
        let reply = gateway.send(&get(&by_key(name), "alice")).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
    }
}

#[tokio::test]
async fn rule_26_capabilities_can_be_read() {
    let upstream = Upstream::any();
    let text = route("name = \"pay\"")
        + &route_for("POST /search", "key = \"off\"")
        + &route_for("POST,PATCH /v1/charges/{id}", "");
    let gateway = Gateway::start(&upstream, &text);
    let reply = gateway.send(&Call::new("GET", "/.onceward/capabilities")).await;
    let document: Value = reply.json();
    assert_eq!(reply.status, 200);
    let names = ["/routes/0/name", "/routes/1/name"].map(|path| document.pointer(path).unwrap());
    assert_eq!(names, ["pay", "POST,PATCH /v1/charges/{id}"], "every route is named");
    let off = &document["routes"][2];
    assert_eq!(
        (&off["name"], &off["key"], &off["tier"], &off["methods"]),
        (&json!("POST /search"), &json!("off"), &json!("none"), &json!(["POST"]))
    );
}
