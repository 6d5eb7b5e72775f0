use std::fs;

use http::{HeaderValue, Request, header};
use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Identity, Peer, TokenRefused,
    test_keys::{
        SigningKey, claims, ed25519, in_seconds, jwks, other_p256, p256, p384, rsa, shared,
    },
};
use crate::config::{Jwt, JwtKeys};

const SECRET: &str = "a secret of the tests with more than thirty-two bytes";

/// An identity with a file of keys that a test can replace.
struct Bench {
    folder: TempDir,
    identity: Identity,
}

impl Bench {
    fn new(keys: &[Value]) -> Self {
        Self::expecting(keys, None, None)
    }

    fn expecting(keys: &[Value], issuer: Option<&str>, audience: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        fs::write(&path, jwks(keys)).unwrap();
        let (issuer, audience) = (issuer.map(Into::into), audience.map(Into::into));
        let jwt = Jwt { keys: JwtKeys::Jwks(path), issuer, audience };
        Self { folder, identity: Identity::build(Some(&jwt), &[], |_| None).unwrap() }
    }

    fn replace(&self, text: &str) -> Result<usize, String> {
        fs::write(self.folder.path().join("keys.json"), text).unwrap();
        self.identity.reload()
    }

    fn refused(&self, token: &str) -> Option<TokenRefused> {
        verify(&self.identity, token).err()
    }
}

fn verify(identity: &Identity, token: &str) -> Result<Value, TokenRefused> {
    verify_lines(identity, &[&format!("Bearer {token}")])
}

fn verify_lines(identity: &Identity, headers: &[&str]) -> Result<Value, TokenRefused> {
    let mut request = Request::new(());
    for line in headers {
        let value = HeaderValue::from_str(line).unwrap();
        request.headers_mut().append(header::AUTHORIZATION, value);
    }
    let peer = Peer::new(([203, 0, 113, 9], 4711).into(), &http::uri::Scheme::HTTP, None);
    let caller = identity.caller(request.headers(), peer);
    caller.claims().cloned().map_err(Clone::clone)
}

fn with_secret(secret: Option<&str>) -> Result<Identity, String> {
    let keys = JwtKeys::SecretEnv("TOKEN_SECRET".into());
    let jwt = Jwt { keys, issuer: None, audience: None };
    Identity::build(Some(&jwt), &[], |name| {
        assert_eq!(name, "TOKEN_SECRET");
        secret.map(Into::into)
    })
}

fn all_keys() -> [(&'static str, SigningKey); 4] {
    [("r", rsa()), ("a", p256()), ("b", p384()), ("e", ed25519())]
}

/// A token with a hand-made header, unsigned or with the signature of another token.
fn with_header(header: &Value, token: &str) -> String {
    use base64ct::{Base64UrlUnpadded, Encoding as _};
    let header = Base64UrlUnpadded::encode_string(header.to_string().as_bytes());
    format!("{header}.{}", token.split_once('.').unwrap().1)
}

#[test]
fn every_type_of_key_verifies_its_tokens() {
    let bench = Bench::new(&all_keys().map(|(id, key)| key.jwk(id)));
    for (id, key) in all_keys() {
        assert_eq!(verify(&bench.identity, &key.sign(Some(id), &claims())).unwrap()["sub"], "ada");
    }
    for algorithm in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS512] {
        assert_eq!(bench.refused(&rsa().with(algorithm).sign(Some("r"), &claims())), None);
    }
}

#[test]
fn a_token_of_another_key_is_refused() {
    let bench = Bench::new(&[p256().jwk("a"), ed25519().jwk("e")]);
    let refused = |key: SigningKey, id| bench.refused(&key.sign(id, &claims()));
    assert_eq!(refused(other_p256(), Some("a")), Some(TokenRefused::Signature));
    assert_eq!(refused(other_p256(), None), Some(TokenRefused::Signature));
    assert_eq!(refused(other_p256(), Some("z")), Some(TokenRefused::UnknownKey));
    assert_eq!(refused(p256(), Some("e")), Some(TokenRefused::Algorithm));
    assert_eq!(refused(p384(), Some("a")), Some(TokenRefused::Algorithm));
}

#[test]
fn a_token_without_a_signature_is_refused() {
    let bench = Bench::new(&[rsa().jwk("r")]);
    let token = rsa().sign(Some("r"), &claims());
    for name in ["none", "None", "NONE", "", "HS1"] {
        let forged = with_header(&json!({"alg": name, "kid": "r"}), &token);
        assert_eq!(bench.refused(&forged), Some(TokenRefused::Algorithm), "{name}");
        let (unsigned, _) = forged.rsplit_once('.').unwrap();
        assert_eq!(bench.refused(&format!("{unsigned}.")), Some(TokenRefused::Algorithm));
    }
    let (unsigned, _) = token.rsplit_once('.').unwrap();
    assert_eq!(bench.refused(&format!("{unsigned}.")), Some(TokenRefused::Signature));
    assert_eq!(bench.refused(unsigned), Some(TokenRefused::Malformed));
}

#[test]
fn the_public_key_is_not_a_shared_secret() {
    let public = rsa().jwk("r");
    let bench = Bench::new(std::slice::from_ref(&public));
    let guesses = [public["n"].as_str().unwrap().to_owned(), public.to_string()];
    for guess in guesses {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            for id in [Some("r"), None] {
                let forged = shared(&guess, algorithm).sign(id, &claims());
                assert_eq!(bench.refused(&forged), Some(TokenRefused::Algorithm));
            }
        }
    }
}

#[test]
fn a_key_inside_the_token_is_not_used() {
    let bench = Bench::new(&[p256().jwk("a")]);
    let jwk = serde_json::from_value(other_p256().jwk("a")).unwrap();
    let header = Header { kid: Some("a".into()), jwk: Some(jwk), ..Header::new(Algorithm::ES256) };
    let forged = other_p256().sign_with_header(&header, &claims());
    assert_eq!(bench.refused(&forged), Some(TokenRefused::Signature));
}

#[test]
fn a_token_that_was_changed_is_refused() {
    let bench = Bench::new(&[ed25519().jwk("e")]);
    let (honest, wanted) = (json!({"sub": "eve", "exp": in_seconds(60)}), claims());
    let (honest, wanted) = (ed25519().sign(Some("e"), &honest), ed25519().sign(Some("e"), &wanted));
    let (_, signature) = honest.rsplit_once('.').unwrap();
    let (message, _) = wanted.rsplit_once('.').unwrap();
    let forged = format!("{message}.{signature}");
    assert_eq!(bench.refused(&forged), Some(TokenRefused::Signature));
}

#[test]
fn a_critical_extension_is_refused() {
    let bench = Bench::new(&[p256().jwk("a")]);
    let crit = Some(vec!["b64".into()]);
    let header = Header { kid: Some("a".into()), crit, ..Header::new(Algorithm::ES256) };
    let token = p256().sign_with_header(&header, &claims());
    assert_eq!(bench.refused(&token), Some(TokenRefused::Critical));
}

#[test]
fn time_is_checked_with_a_minute_of_leeway() {
    let bench = Bench::new(&[p256().jwk("a")]);
    let refused = |claims: Value| bench.refused(&p256().sign(Some("a"), &claims));
    assert_eq!(refused(json!({"exp": in_seconds(-70)})), Some(TokenRefused::Expired));
    assert_eq!(refused(json!({"exp": in_seconds(-50)})), None);
    assert_eq!(refused(json!({"exp": 0})), Some(TokenRefused::Expired));
    let until = in_seconds(600);
    let early = json!({"exp": until, "nbf": in_seconds(70)});
    assert_eq!(refused(early), Some(TokenRefused::NotYetValid));
    assert_eq!(refused(json!({"exp": until, "nbf": in_seconds(50)})), None);

    let no_end = Some(TokenRefused::Claim("exp".into()));
    for claims in
        [json!({}), json!({"exp": "9999999999"}), json!({"exp": null}), json!({"exp": -1})]
    {
        assert_eq!(refused(claims), no_end);
    }
    let odd_start = json!({"exp": until, "nbf": "0"});
    assert_eq!(refused(odd_start), Some(TokenRefused::Claim("nbf".into())));
}

#[test]
fn the_issuer_and_the_audience_must_be_the_expected_ones() {
    let bench = Bench::expecting(&[p256().jwk("a")], Some("https://issuer"), Some("payments"));
    let refused = |issuer: Value, audience: Value| {
        let claims = json!({"exp": in_seconds(60), "iss": issuer, "aud": audience});
        bench.refused(&p256().sign(Some("a"), &claims))
    };
    let issuer = || json!("https://issuer");
    assert_eq!(refused(issuer(), json!("payments")), None);
    assert_eq!(refused(issuer(), json!(["other", "payments"])), None);
    assert_eq!(refused(issuer(), json!("other")), Some(TokenRefused::Audience));
    assert_eq!(refused(issuer(), json!([])), Some(TokenRefused::Audience));
    assert_eq!(refused(json!("https://other"), json!("payments")), Some(TokenRefused::Issuer));
    let missing = |name: &str| Some(TokenRefused::Claim(name.into()));
    assert_eq!(refused(issuer(), Value::Null), missing("aud"));
    assert_eq!(refused(issuer(), json!(7)), missing("aud"));
    assert_eq!(refused(Value::Null, json!("payments")), missing("iss"));
}

#[test]
fn a_token_for_an_audience_is_refused_if_none_is_configured() {
    let bench = Bench::new(&[p256().jwk("a")]);
    for audience in [json!("payments"), json!(["payments"]), json!([]), json!(7)] {
        let token = p256().sign(Some("a"), &json!({"exp": in_seconds(60), "aud": audience}));
        assert_eq!(bench.refused(&token), Some(TokenRefused::UnexpectedAudience));
    }
}

#[test]
fn only_one_bearer_line_is_read() {
    let bench = Bench::new(&[p256().jwk("a")]);
    let token = p256().sign(Some("a"), &claims());
    let refused = |headers: &[&str]| verify_lines(&bench.identity, headers).err();
    let line = format!("Bearer {token}");
    assert_eq!(refused(&[&line]), None);
    assert_eq!(refused(&[&format!("bEARER  {token} ")]), None);
    assert_eq!(refused(&[&line, &line]), Some(TokenRefused::SeveralLines));
    assert_eq!(refused(&[&line, "Basic eDp5"]), Some(TokenRefused::SeveralLines));
    assert_eq!(refused(&[]), Some(TokenRefused::Absent));
    for line in ["", "Bearer", &token, "Basic eDp5"] {
        assert_eq!(refused(&[line]), Some(TokenRefused::NotBearer), "{line}");
    }
    let two = format!("Bearer {token}, Bearer {token}");
    assert!(refused(&[&two]).is_some());
}

#[test]
fn garbage_is_refused() {
    let bench = Bench::new(&[p256().jwk("a")]);
    for token in ["x", "..", "a.b.c", "a.b.c.d", "!!!.!!!.!!!", "bnVsbA.bnVsbA.", "e30.e30.e30"] {
        assert_eq!(bench.refused(token), Some(TokenRefused::Malformed), "{token}");
    }
    let list = p256().sign(Some("a"), &json!([1, 2]));
    assert!(bench.refused(&list).is_some());
    assert_eq!(bench.refused(&"a".repeat(16 * 1024 + 1)), Some(TokenRefused::TooLong));
    assert_eq!(bench.refused(&"a".repeat(16 * 1024)), Some(TokenRefused::Malformed));
    let deep = format!("{}.e30.e30", "W".repeat(10_000));
    assert_eq!(bench.refused(&deep), Some(TokenRefused::Malformed));
}

#[test]
fn new_keys_are_read_and_old_ones_forgotten() {
    let bench = Bench::new(&[p256().jwk("old")]);
    let old = p256().sign(Some("old"), &claims());
    let new = ed25519().sign(Some("new"), &claims());
    assert_eq!(bench.refused(&new), Some(TokenRefused::UnknownKey));
    assert_eq!(bench.replace(&jwks(&[p256().jwk("old"), ed25519().jwk("new")])), Ok(2));
    assert_eq!((bench.refused(&old), bench.refused(&new)), (None, None));
    assert_eq!(bench.replace(&jwks(&[ed25519().jwk("new"), json!({"kty": "AKP"})])), Ok(1));
    assert_eq!(bench.refused(&old), Some(TokenRefused::UnknownKey));
    assert_eq!(bench.refused(&new), None);
    assert_eq!(bench.identity.unusable_keys().len(), 1);
}

#[test]
fn a_bad_file_leaves_the_keys_as_they_were() {
    let bench = Bench::new(&[p256().jwk("a")]);
    let token = p256().sign(Some("a"), &claims());
    for text in ["", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "AAAA"}]}"#] {
        let error = bench.replace(text).unwrap_err();
        assert!(error.contains("keys.json") && error.contains("stay in use"), "{error}");
        assert_eq!(bench.refused(&token), None);
    }
    fs::remove_file(bench.folder.path().join("keys.json")).unwrap();
    assert!(bench.identity.reload().is_err());
    assert_eq!(bench.refused(&token), None);
}

#[test]
fn a_shared_secret_verifies_its_tokens_and_no_others() {
    let identity = with_secret(Some(SECRET)).unwrap();
    let refused = |key: SigningKey, id| verify(&identity, &key.sign(id, &claims())).err();
    assert_eq!(refused(shared(SECRET, Algorithm::HS256), None), None);
    assert_eq!(refused(shared(SECRET, Algorithm::HS256), Some("any")), None);
    assert_eq!(refused(shared(SECRET, Algorithm::HS384), None), None);
    let too_long_a_hash = shared(SECRET, Algorithm::HS512);
    assert_eq!(refused(too_long_a_hash, None), Some(TokenRefused::Algorithm));
    let wrong = shared("wrong", Algorithm::HS256);
    assert_eq!(refused(wrong, None), Some(TokenRefused::Signature));
    assert_eq!(refused(rsa(), None), Some(TokenRefused::Algorithm));
    assert_eq!(identity.reload(), Ok(1));
}

#[test]
fn a_secret_that_is_short_or_missing_stops_the_start() {
    let short = with_secret(Some("short")).err().unwrap();
    assert!(short.contains("TOKEN_SECRET") && short.contains("32") && !short.contains("short"));
    let missing = with_secret(None).err().unwrap();
    assert!(missing.contains("TOKEN_SECRET is not set"));
}

#[test]
fn a_file_of_keys_that_is_missing_stops_the_start() {
    let jwt = Jwt { keys: JwtKeys::Jwks("no/such/file".into()), issuer: None, audience: None };
    let error = Identity::build(Some(&jwt), &[], |_| None).err().unwrap();
    assert!(error.starts_with("jwt.jwks: no/such/file: "), "{error}");
}

#[test]
fn without_a_jwt_section_no_token_is_believed() {
    let identity = Identity::build(None, &[], |_| None).unwrap();
    let token = p256().sign(None, &claims());
    assert_eq!(verify(&identity, &token), Err(TokenRefused::NotConfigured));
    assert_eq!(identity.reload(), Ok(0));
}
