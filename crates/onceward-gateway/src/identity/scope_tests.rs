use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use serde_json::json;

use http::uri::Scheme;

use super::{
    super::{Identity, Peer, TokenRefused},
    *,
};

/// A request with everything a scope can be made of; tests change what they are about.
struct Bench {
    caller: Caller,
    headers: HeaderMap,
    path_parameters: BTreeMap<String, String>,
    json: Option<Value>,
}

impl Bench {
    fn new() -> Self {
        let peer = Peer::new(proxy(), &Scheme::HTTP, Some("5f3a".into()));
        let claims = json!({
            "sub": "ada", "tenant": 7, "admin": true, "groups": ["x"], "nothing": null, "empty": "",
            "share": 0.5, "huge": 1e30, "a/b": "slash", "realm": {"name": "acme", "a/b": "inner"},
            "https://example.com/tenant": "named by a URL",
        });
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("ada"));
        headers.insert("x-api-key", HeaderValue::from_static("sk_live_7"));
        Self {
            caller: Caller { peer, is_trusted_proxy: true, claims: Ok(Arc::new(claims)) },
            headers,
            path_parameters: BTreeMap::from([("id".into(), "42".into())]),
            json: Some(json!({"account": {"id": "a1", "number": 7, "m~n/o": false}, "list": [1]})),
        }
    }

    fn scope(&self, parts: &[ScopePart]) -> Result<Scope, ScopeMissing> {
        // The proxy reads the pointers that the route names, in just this way.
        let json_parts = parts.iter().filter_map(|part| match part {
            ScopePart::Json(pointer) => {
                let value = plain(self.json.as_ref()?.pointer(pointer)?)?;
                Some((pointer.clone(), value))
            }
            _ => None,
        });
        self.scope_with(parts, &json_parts.collect())
    }

    fn scope_with(
        &self,
        parts: &[ScopePart],
        json_parts: &BTreeMap<String, String>,
    ) -> Result<Scope, ScopeMissing> {
        let Self { caller, headers, path_parameters, .. } = self;
        join(parts, &names(parts), &ScopeSources { caller, headers, path_parameters, json_parts })
    }

    fn value(&self, part: &ScopePart) -> Result<String, ScopeMissing> {
        let scope = self.scope(std::slice::from_ref(part))?;
        let parts: Vec<(&str, &str)> = scope.parts().collect();
        assert_eq!(parts[0].0, part.stored_name());
        Ok(parts[0].1.to_owned())
    }

    fn is_missing(&self, part: &ScopePart) -> bool {
        let name = part.to_string();
        self.value(part).is_err_and(|missing| missing.part == name && !missing.reason.is_empty())
    }
}

fn proxy() -> SocketAddr {
    "127.0.0.1:4711".parse().unwrap()
}

fn jwt(claim: &str) -> ScopePart {
    ScopePart::Jwt(claim.into())
}

fn json_at(pointer: &str) -> ScopePart {
    ScopePart::Json(pointer.into())
}

fn user_header() -> ScopePart {
    ScopePart::Header(HeaderName::from_static("x-user"))
}

fn api_key() -> ScopePart {
    ScopePart::Secret(HeaderName::from_static("x-api-key"))
}

#[test]
fn a_claim_is_a_text_or_by_another_word_a_whole_number() {
    let bench = Bench::new();
    assert_eq!(bench.value(&jwt("sub")).unwrap(), "ada");
    assert_eq!(bench.value(&ScopePart::JwtNumber("tenant".into())).unwrap(), "7");
    let missing = bench.value(&jwt("tenant")).unwrap_err();
    assert!(missing.to_string().contains("write `jwt-number:tenant`"), "{missing}");
    assert_eq!(bench.value(&jwt("a/b")).unwrap(), "slash");
    assert_eq!(bench.value(&jwt("https://example.com/tenant")).unwrap(), "named by a URL");
    for claim in ["groups", "realm", "nothing", "empty", "share", "huge", "absent", "", "admin"] {
        assert!(bench.is_missing(&jwt(claim)), "{claim}");
        assert!(bench.is_missing(&ScopePart::JwtNumber(claim.into())), "{claim}");
    }
    assert!(bench.is_missing(&ScopePart::JwtNumber("sub".into())));
}

#[test]
fn a_claim_that_starts_with_a_slash_is_a_pointer() {
    let bench = Bench::new();
    assert_eq!(bench.value(&jwt("/realm/name")).unwrap(), "acme");
    assert_eq!(bench.value(&jwt("/realm/a~1b")).unwrap(), "inner");
    assert_eq!(bench.value(&jwt("/sub")).unwrap(), "ada");
    assert!(bench.is_missing(&jwt("/realm")) && bench.is_missing(&jwt("/realm/other")));
}

#[test]
fn a_claim_of_a_refused_token_is_missing_with_the_reason() {
    let mut bench = Bench::new();
    bench.caller.claims = Err(TokenRefused::Expired);
    let missing = bench.value(&jwt("sub")).unwrap_err();
    let text = "the scope part jwt:sub is missing: the token has expired";
    assert_eq!(missing.to_string(), text);
}

#[test]
fn whom_the_certificate_names_is_a_scope() {
    let mut bench = Bench::new();
    assert_eq!(bench.value(&ScopePart::CertificateSubject).unwrap(), "5f3a");
    for certified in [Some(String::new()), None] {
        bench.caller.peer = Peer::new(proxy(), &Scheme::HTTP, certified);
        assert!(bench.is_missing(&ScopePart::CertificateSubject));
    }
}

#[test]
fn a_header_counts_only_from_a_trusted_proxy() {
    let network = ipnet::IpNet::from(proxy().ip());
    let identity = Identity::build(None, &[network], |_| None).unwrap();
    let mut request = http::Request::new(());
    request.headers_mut().insert("x-user", HeaderValue::from_static("ada"));
    let value_from = |address: &str| {
        let peer = Peer::new(address.parse().unwrap(), &Scheme::HTTP, None);
        let caller = identity.caller(request.headers(), peer);
        Bench { caller, ..Bench::new() }.value(&user_header()).ok()
    };
    assert_eq!(value_from("127.0.0.1:1").as_deref(), Some("ada"));
    assert_eq!(value_from("[::ffff:127.0.0.1]:1").as_deref(), Some("ada"));
    assert_eq!(value_from("127.0.0.2:1"), None);
    assert_eq!(value_from("[::1]:1"), None);
}

#[test]
fn a_header_needs_exactly_one_line_with_text() {
    for part in [user_header(), api_key()] {
        let (ScopePart::Header(name) | ScopePart::Secret(name)) = &part else { unreachable!() };
        let mut bench = Bench::new();
        assert!(bench.value(&part).is_ok());
        bench.headers.append(name, HeaderValue::from_static("ada"));
        assert!(bench.is_missing(&part), "two lines");
        for blank in ["", " ", "\t"] {
            bench.headers.insert(name, HeaderValue::from_static(blank));
            assert!(bench.is_missing(&part), "{blank:?}");
        }
        bench.headers.remove(name);
        assert!(bench.is_missing(&part), "no line");
    }
    let mut bench = Bench::new();
    bench.headers.insert("x-user", HeaderValue::from_bytes(b"ad\xff").unwrap());
    assert!(bench.is_missing(&user_header()), "not text");
}

#[test]
fn a_credential_is_never_in_the_scope_itself() {
    let mut bench = Bench::new();
    let digest = bench.value(&api_key()).unwrap();
    assert_eq!(digest.len(), 64);
    assert!(!digest.contains("sk_live_7"));
    assert_eq!(bench.value(&api_key()).unwrap(), digest);
    let plain: String =
        Sha256::digest(b"sk_live_7").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_ne!(digest, plain, "a digest that others may have published must not match");

    bench.headers.insert("x-api-key", HeaderValue::from_static("sk_live_8"));
    assert_ne!(bench.value(&api_key()).unwrap(), digest);
    let elsewhere = ScopePart::Secret(HeaderName::from_static("x-other-key"));
    bench.headers.insert("x-other-key", HeaderValue::from_static("sk_live_7"));
    assert_ne!(bench.value(&elsewhere).unwrap(), digest);
}

#[test]
fn a_cookie_stands_for_itself_and_for_no_secret() {
    let cookie = ScopePart::Cookie("sid".into());
    let value = |headers: &[&'static str]| {
        let mut bench = Bench::new();
        for line in headers {
            bench.headers.append("cookie", HeaderValue::from_static(line));
        }
        bench.value(&cookie).ok()
    };
    let digest = value(&["sid=sk_live_7"]).unwrap();
    assert!(digest.len() == 64 && !digest.contains("sk_live_7"));
    for same in [
        &["a=1;sid=sk_live_7 ;b"][..],
        &["a=sid=x", " sid = sk_live_7"],
        &["sid=sk_live_7; sid=sk_live_7"],
    ] {
        assert_eq!(value(same).as_ref(), Some(&digest), "{same:?}");
    }
    for other in ["sid=sk_live_8", "sid=\"sk_live_7\"", "sid=sk_live_7=", "sid==sk_live_7"] {
        assert!(value(&[other]).is_some_and(|value| value != digest), "{other}");
    }
    for none in ["", "Sid=a", "sid", "sid=", "sid= ;a", "sid=a; sid=b", "sid=a; sid="] {
        assert_eq!(value(&[none]), None, "{none}");
    }
    let mut bench = Bench::new();
    bench.headers.insert("sid", HeaderValue::from_static("sk_live_7"));
    let secret = ScopePart::Secret(HeaderName::from_static("sid"));
    assert_ne!(bench.value(&secret).unwrap(), digest, "one credential in two places");
}

#[test]
fn the_names_of_parts_stay_the_same_in_every_version() {
    let parts =
        [jwt("sub"), ScopePart::CertificateSubject, user_header(), api_key(), json_at("/list/0")];
    let scope = Bench::new().scope(&parts).unwrap();
    let names: Vec<&str> = scope.parts().map(|(name, _)| name).collect();
    let expected =
        ["cert:subject-sha256", "header:x-user", "json:/list/0", "jwt:sub", "secret:x-api-key"];
    assert_eq!(names, expected);
}

#[test]
fn the_digest_of_a_credential_stays_the_same_in_every_version() {
    let name = HeaderName::from_static("x-api-key");
    let expected = "46bbd4408cb55ea1b8b1067d95604de36b4bf1cfcc66023b05df0a3161457712";
    assert_eq!(digest_of_secret(&name, b"sk_live_7"), expected);
}

#[test]
fn parts_of_the_path_and_of_the_body_can_be_added() {
    let mut bench = Bench::new();
    assert_eq!(bench.value(&ScopePart::Path("id".into())).unwrap(), "42");
    assert!(bench.is_missing(&ScopePart::Path("other".into())));
    assert_eq!(bench.value(&json_at("/account/id")).unwrap(), "a1");
    assert_eq!(bench.value(&json_at("/account/number")).unwrap(), "7");
    assert_eq!(bench.value(&json_at("/account/m~0n~1o")).unwrap(), "false");
    assert_eq!(bench.value(&json_at("/list/0")).unwrap(), "1");
    for pointer in ["", "/account", "/list", "/list/-", "/list/00", "/absent", "account/id"] {
        assert!(bench.is_missing(&json_at(pointer)), "{pointer}");
    }
    bench.json = None;
    assert!(bench.is_missing(&json_at("/account/id")));
    bench.path_parameters.insert("id".into(), String::new());
    assert!(bench.is_missing(&ScopePart::Path("id".into())));
}

#[test]
fn a_status_request_takes_path_and_body_from_the_record_but_never_the_identity() {
    let parts = [jwt("sub"), ScopePart::Path("id".into()), json_at("/account/id")];
    let mut bench = Bench::new();
    let record = bench.scope(&parts).unwrap();
    let of_record = BTreeMap::from([("/account/id".to_owned(), "a1".to_owned())]);
    bench.json = None;
    assert_eq!(bench.scope_with(&parts, &of_record), Ok(record.clone()));
    bench.caller.claims = Ok(Arc::new(json!({"sub": "eve"})));
    assert_ne!(bench.scope_with(&parts, &of_record), Ok(record));
    let missing = bench.scope_with(&parts, &BTreeMap::new()).unwrap_err();
    assert_eq!(missing.part, "json:/account/id");
}

#[test]
fn a_request_without_one_of_its_values_has_no_scope_at_all() {
    let bench = Bench::new();
    let missing = bench.scope(&[jwt("sub"), jwt("absent"), api_key()]).unwrap_err();
    assert_eq!(missing.part, "jwt:absent");
    assert!(bench.scope(&[]).is_err(), "no parts are not the global scope");
}

#[test]
fn the_global_scope_must_be_named() {
    let bench = Bench::new();
    assert_eq!(bench.scope(&[ScopePart::Global]), Ok(Scope::global()));
    let with_path = bench.scope(&[ScopePart::Global, ScopePart::Path("id".into())]).unwrap();
    assert_eq!(with_path, Scope::of("path:id", "42").unwrap());
    assert!(bench.scope(&[ScopePart::Global, jwt("absent")]).is_err());
}

#[test]
fn a_value_that_is_too_long_for_a_scope_is_refused_by_name() {
    let mut bench = Bench::new();
    bench.json = Some(json!({"account": "a".repeat(Scope::MAX_PART_BYTES + 1)}));
    assert!(bench.is_missing(&json_at("/account")));
}

#[test]
fn a_control_character_is_in_no_scope() {
    let mut bench = Bench::new();
    for value in ["\0", "a\0b", "a\n", "\u{7f}", "\u{85}"] {
        bench.json = Some(json!({ "account": value }));
        bench.caller.claims = Ok(Arc::new(json!({ "sub": value })));
        for part in [json_at("/account"), jwt("sub")] {
            let missing = bench.value(&part).unwrap_err();
            assert_eq!(missing.reason, "it has a control character", "{part}: {value:?}");
        }
    }
}

#[test]
fn different_values_in_different_places_are_different_scopes() {
    let parts = [jwt("sub"), jwt("tenant"), user_header(), ScopePart::Path("id".into())];
    let texts = ["a", "b", "a,jwt:tenant=b", "b,", "%2C", "a=b"];
    let mut scopes = BTreeSet::new();
    let mut written = BTreeSet::new();
    for (index, first) in parts.iter().enumerate() {
        for second in &parts[index + 1..] {
            for (one, other) in texts.iter().flat_map(|one| texts.map(|other| (*one, other))) {
                let value = |part: &ScopePart| if part == first { one } else { other };
                let mut bench = Bench::new();
                let claims = json!({"sub": value(&jwt("sub")), "tenant": value(&jwt("tenant"))});
                bench.caller.claims = Ok(Arc::new(claims));
                let user = HeaderValue::from_str(value(&user_header())).unwrap();
                bench.headers.insert("x-user", user);
                bench.path_parameters.insert("id".into(), other.into());
                let scope = bench.scope(&[first.clone(), second.clone()]).unwrap();
                assert!(written.insert(scope.to_string()));
                assert!(scopes.insert(scope));
            }
        }
    }
    assert_eq!(scopes.len(), 6 * texts.len() * texts.len());
}

fn names(parts: &[ScopePart]) -> Vec<String> {
    parts.iter().map(ScopePart::stored_name).collect()
}
