//! Rules 5 and 6: to whom a key belongs, and of which operation it is.

use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};

use crate::{
    gateway_support::{
        Call, Certificates, Gateway, Link, Plan, Upstream, Version, route, route_for,
    },
    rules::pay,
};

const SECRET: &str = "a shared secret that is long enough for HMAC with SHA-256";

/// A token that is valid for an hour.
pub(crate) fn token(claims: &Value) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut claims = claims.clone();
    if claims["exp"].is_null() {
        claims["exp"] = json!(now + 3600);
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    format!("Bearer {}", jsonwebtoken::encode(&Header::default(), &claims, &key).unwrap())
}

/// A gateway that verifies tokens.
pub(crate) fn with_tokens(upstream: &Upstream, routes: &str) -> Gateway {
    let text = format!("[jwt]\nsecret_env = \"TEST_SECRET\"\n{routes}");
    Plan::new(&upstream.url(), &text).variable("TEST_SECRET", SECRET).start()
}

#[tokio::test]
async fn rule_5_a_claim_of_a_verified_token_says_whose_key_it_is() {
    let upstream = Upstream::any();
    let gateway = with_tokens(&upstream, &route("scope = [\"jwt:sub\"]"));
    let by = |token: String| pay("k").header("authorization", token);
    for version in Version::BOTH {
        let (first, refreshed) = (json!({"sub": "alice", "jti": "1"}), json!({"sub": "alice"}));
        assert_eq!(gateway.send_by(version, &by(token(&first))).await.status, 201);
        assert!(gateway.send_by(version, &by(token(&refreshed))).await.is_replay());
        gateway.send_by(version, &by(token(&json!({"sub": "bob"})))).await;
    }
    assert_eq!(upstream.count().await, 2, "one for Alice, one for Bob");
    let forged = token(&json!({"sub": "alice"})) + "x";
    let expired = token(&json!({"sub": "alice", "exp": 1_000_000}));
    for call in [pay("k"), by(forged), by(expired), by(token(&json!({"name": "alice"})))] {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.problem(), (401, "scope-missing".into()));
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rule_5_a_cookie_says_whose_key_it_is_and_is_not_kept() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("scope = [\"cookie:sid\"]"));
    let by = |cookies: &str| pay("k").header("cookie", cookies);
    for version in Version::BOTH {
        let first = format!("theme=dark; sid=alice-{version:?}");
        assert!(!gateway.send_by(version, &by(&first)).await.is_replay());
        assert_eq!(upstream.last_lines("cookie").await, [first.as_str()], "it goes on as it came");
        let moved = format!("sid=alice-{version:?};theme=light; sid=alice-{version:?}");
        assert!(gateway.send_by(version, &by(&moved)).await.is_replay(), "others do not count");
        let two_lines = by("theme=dark").header("cookie", format!("sid=alice-{version:?}"));
        assert!(gateway.send_by(version, &two_lines).await.is_replay());
    }
    assert!(!gateway.send(&by("sid=bob")).await.is_replay());
    assert_eq!(upstream.count().await, 3);
    for (call, reason) in [
        (pay("k"), "the request does not have the cookie"),
        (by("SID=alice; xsid=alice; theme=sid"), "the request does not have the cookie"),
        (by("sid="), "the cookie is empty"),
        (by("sid=alice; sid=bob"), "the cookie twice, with two values"),
    ] {
        let reply = gateway.send(&call).await;
        assert_eq!(reply.problem(), (401, "scope-missing".into()));
        assert_eq!(reply.header("www-authenticate"), Some("Cookie cookie-name=\"sid\""));
        assert!(reply.text().contains(reason), "{reason}: {}", reply.text());
        assert!(!reply.text().contains("alice"));
    }
    assert_eq!(upstream.count().await, 3);
    for file in gateway.directory.path().read_dir().unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(6).any(|window| window == b"alice-"), "only its digest is kept");
    }
}

/// A token with these claims alone.
pub(crate) fn endless(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    format!("Bearer {}", jsonwebtoken::encode(&Header::default(), claims, &key).unwrap())
}

#[tokio::test]
async fn rule_24_a_401_says_what_is_wrong_with_a_token() {
    let upstream = Upstream::any();
    let gateway = with_tokens(&upstream, &route("scope = [\"jwt:sub\"]\nname = \"pay\""));
    let by_key = "/.onceward/operations?operation=pay&key=k";
    for (token, reason) in [
        (endless(&json!({"sub": "alice"})), "does not say when it expires (claim exp)"),
        (token(&json!({"sub": "alice", "exp": 1_000_000})), "the token has expired"),
        (token(&json!({"name": "alice"})), "jwt:sub is missing"),
    ] {
        let call = pay("k").header("authorization", &token);
        for call in [call.clone(), call.retarget("GET", by_key)] {
            let reply = gateway.send(&call).await;
            assert_eq!(reply.problem(), (401, "scope-missing".into()));
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            assert!(reply.text().contains(reason), "{reason}: {}", reply.text());
            assert!(!reply.text().contains(token.trim_start_matches("Bearer ")));
        }
    }
    assert_eq!(upstream.count().await, 0);
}

#[tokio::test]
async fn rule_5_tokens_are_verified_with_a_file_of_public_keys() {
    let keys = tempfile::tempdir().unwrap();
    if Certificates::make(keys.path(), &["stranger"]).is_none() {
        return;
    }
    let key = |name: &str| {
        let key = PrivateKeyDer::from_pem_file(keys.path().join(format!("{name}.key")));
        EncodingKey::from_ec_der(key.unwrap().secret_der())
    };
    let mut public = Jwk::from_encoding_key(&key("server"), Algorithm::ES256).unwrap();
    public.common.key_id = Some("of-today".into());
    let token = |name: &str| {
        let claims = json!({"sub": "alice", "exp": jsonwebtoken::get_current_timestamp() + 60});
        let header = Header { kid: Some("of-today".into()), ..Header::new(Algorithm::ES256) };
        format!("Bearer {}", jsonwebtoken::encode(&header, &claims, &key(name)).unwrap())
    };
    let upstream = Upstream::any();
    let text = format!("[jwt]\njwks = \"keys.json\"\n{}", route("scope = [\"jwt:sub\"]"));
    let plan = Plan::new(&upstream.url(), &text);
    let file = plan.directory.path().join("keys.json");
    std::fs::write(file, json!({"keys": [public]}).to_string()).unwrap();
    let gateway = plan.start();
    let by = |name: &str| pay("k").header("authorization", token(name));
    assert_eq!(gateway.send(&by("server")).await.status, 201);
    assert!(gateway.send(&by("server")).await.is_replay());
    assert_eq!(gateway.send(&by("stranger")).await.problem(), (401, "scope-missing".into()));
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_5_a_secret_says_whose_key_it_is_and_two_tenants_are_apart() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route(""));
    let bob = pay("k").without("x-api-key").header("x-api-key", "bob");
    let (of_alice, of_bob) = (gateway.send(&pay("k")).await, gateway.send(&bob).await);
    assert_ne!(of_alice.body, of_bob.body);
    let again = gateway.send(&pay("k")).await;
    assert_eq!((again.is_replay(), again.body), (true, of_alice.body));
    let again = gateway.send(&bob).await;
    assert_eq!((again.is_replay(), again.body), (true, of_bob.body));
    for nobody in [pay("k").without("x-api-key"), pay("k").header("x-api-key", "bob")] {
        let reply = gateway.send(&nobody).await;
        assert_eq!(reply.problem(), (401, "scope-missing".into()));
    }
    assert_eq!(upstream.count().await, 2);
    let store = std::fs::read(gateway.store()).unwrap();
    let secret = b"alice";
    assert!(!store.windows(secret.len()).any(|bytes| bytes == secret), "the secret is not stored");
}

#[tokio::test]
async fn rule_5_a_header_counts_only_from_a_trusted_proxy() {
    let upstream = Upstream::any();
    let routes = route("scope = [\"header:x-user\"]");
    let trusting = format!("trusted_proxies = [\"127.0.0.1/32\"]\n{routes}");
    let gateway = Gateway::start(&upstream, &trusting);
    let by = |user: &str| pay("k").header("x-user", user);
    gateway.send(&by("alice")).await;
    gateway.send(&by("bob")).await;
    assert!(gateway.send(&by("alice")).await.is_replay());
    assert_eq!(gateway.send(&pay("k")).await.problem(), (401, "scope-missing".into()));
    assert_eq!(upstream.count().await, 2);
    assert_eq!(upstream.last_lines("x-user").await, ["bob"]);

    let doubting = format!("trusted_proxies = [\"10.0.0.0/8\"]\n{routes}");
    let gateway = Gateway::start(&upstream, &doubting);
    assert_eq!(gateway.send(&by("alice")).await.problem(), (401, "scope-missing".into()));
    assert_eq!(upstream.count().await, 2);
    let unkeyed = by("alice").header("x_user", "alice").without_key();
    assert_eq!(gateway.send(&unkeyed).await.status, 201);
    for name in ["x-user", "x_user"] {
        assert!(upstream.last_lines(name).await.is_empty(), "{name} is not passed on");
    }
}

#[tokio::test]
async fn rule_5_the_subject_of_a_client_certificate_says_whose_key_it_is() {
    let upstream = Upstream::any();
    let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n";
    let text = format!("{tls}{}", route("scope = [\"cert:subject\"]\nauthorize = \"mtls\""));
    let plan = Plan::new(&upstream.url(), &text);
    let directory = plan.directory.clone();
    if Certificates::make(directory.path(), &["alice", "bob"]).is_none() {
        return;
    }
    let gateway = plan.start();
    let send = async |version, name| {
        let config = Certificates::client(directory.path(), name);
        Link::open_tls(gateway.address, version, config).await.send(&pay("k")).await
    };
    for version in Version::BOTH {
        for name in ["alice", "bob"] {
            assert_eq!(send(version, Some(name)).await.status, 201);
            assert!(send(version, Some(name)).await.is_replay());
        }
        assert_eq!(send(version, None).await.problem(), (401, "scope-missing".into()));
    }
    assert_eq!(upstream.count().await, 2);
    assert_eq!(upstream.last_lines("x-forwarded-proto").await, ["https"]);
}

#[tokio::test]
async fn rule_5_parts_of_the_path_and_of_the_body_join_in() {
    let upstream = Upstream::any();
    let text = route_for(
        "POST /t/{tenant}/pay",
        "name = \"pay\"\nscope = [\"secret:x-api-key\", \"path:tenant\"]",
    ) + &route("scope = [\"secret:x-api-key\", \"json:/account\"]");
    let gateway = Gateway::start(&upstream, &text);
    let at = |tenant: &str| {
        Call::post(&format!("/t/{tenant}/pay")).key("k").header("x-api-key", "alice").body("x")
    };
    gateway.send(&at("one")).await;
    gateway.send(&at("two")).await;
    assert!(gateway.send(&at("one")).await.is_replay());
    let of = |account: Value| pay("k").json(json!({"account": account}));
    gateway.send(&of(json!("a"))).await;
    gateway.send(&of(json!(7))).await;
    assert!(gateway.send(&of(json!("a"))).await.is_replay());
    for body in [json!({}), json!({"account": 1.5}), json!({"account": ""})] {
        let reply = gateway.send(&pay("k").json(body)).await;
        assert_eq!(reply.problem(), (401, "scope-missing".into()));
    }
    assert_eq!(upstream.count().await, 4);
}

#[tokio::test]
async fn rule_5_global_keys_are_those_of_all_callers() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route("scope = [\"global\"]"));
    let anonymous = pay("k").without("x-api-key");
    gateway.send(&anonymous).await;
    assert!(gateway.send(&pay("k")).await.is_replay());
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn rule_6_two_routes_with_one_name_share_their_keys() {
    let upstream = Upstream::any();
    let named = "name = \"pay\"";
    let text = route_for("POST /old", named) + &route_for("POST /new", named) + &route("");
    let gateway = Gateway::start(&upstream, &text);
    let at = |path: &str| Call::post(path).key("k").header("x-api-key", "alice");
    gateway.send(&at("/old")).await;
    assert_eq!(gateway.send(&at("/new")).await.problem(), (422, "key-reused".into()));
    assert_eq!(gateway.send(&at("/pay")).await.status, 201);
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rule_6_without_a_name_the_template_counts_and_behind_a_star_the_path() {
    let upstream = Upstream::any();
    let text = route_for("POST /charges/{id}", "") + &route_for("POST /files/{*rest}", "");
    let gateway = Gateway::start(&upstream, &text);
    let at = |path: &str| Call::post(path).key("k").header("x-api-key", "alice");
    gateway.send(&at("/charges/1")).await;
    assert_eq!(gateway.send(&at("/charges/2")).await.problem(), (422, "key-reused".into()));
    gateway.send(&at("/files/a/b")).await;
    assert_eq!(gateway.send(&at("/files/a/c")).await.status, 201);
    assert!(gateway.send(&at("/files/a/b")).await.is_replay());
    assert_eq!(upstream.count().await, 3);
    gateway.send(&at("/files/a/%62")).await;
    assert_eq!(upstream.count().await, 3, "another spelling is the same path");
}

#[tokio::test]
async fn rule_5_a_claim_has_one_type_so_that_a_number_is_not_taken_for_a_text() {
    let upstream = Upstream::any();
    let text = route("scope = [\"jwt:sub\"]")
        + &route_for("POST /by-number", "scope = [\"jwt-number:sub\"]");
    let gateway = with_tokens(&upstream, &text);
    let send = async |path: &str, sub: Value| {
        let call = Call::post(path).key("k").header("authorization", token(&json!({"sub": sub})));
        gateway.send(&call).await
    };
    assert_eq!(send("/pay", json!("7")).await.status, 201);
    for not_text in [json!(7), json!(7.0), json!(true), json!(["7"])] {
        assert_eq!(send("/pay", not_text).await.problem(), (401, "scope-missing".into()));
    }
    assert_eq!(send("/by-number", json!(7)).await.status, 201);
    assert!(send("/by-number", json!(7)).await.is_replay());
    for not_number in [json!("7"), json!(7.5), json!(true)] {
        assert_eq!(send("/by-number", not_number).await.problem(), (401, "scope-missing".into()));
    }
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn rule_5_a_body_that_names_two_accounts_belongs_to_none() {
    let upstream = Upstream::any();
    let gateway =
        Gateway::start(&upstream, &route("scope = [\"secret:x-api-key\", \"json:/account\"]"));
    for body in [
        r#"{"account": "a", "account": "b"}"#,
        r#"{"account": "a", "\u0061ccount": "b"}"#,
        r#"{"account": "a", "more": {"n": 1, "n": 2}}"#,
    ] {
        let call = Call::post("/pay").key("k").header("x-api-key", "alice").body(body);
        assert_eq!(gateway.send(&call).await.problem(), (401, "scope-missing".into()), "{body}");
    }
    assert_eq!(upstream.count().await, 0);
}
