use jsonwebtoken::Header;
use serde_json::json;

use super::{
    super::test_keys::{ed25519, jwks, p256, p384, rsa},
    *,
};

fn header(algorithm: Algorithm, id: Option<&str>) -> Header {
    Header { kid: id.map(Into::into), ..Header::new(algorithm) }
}

fn error(keys: &[Value]) -> String {
    Keys::parse(&jwks(keys)).err().expect("the file must be refused")
}

#[test]
fn a_key_fixes_its_algorithms_by_its_type() {
    let listed = [rsa().jwk("r"), p256().jwk("a"), p384().jwk("b"), ed25519().jwk("e")];
    let keys = Keys::parse(&jwks(&listed)).unwrap();
    assert_eq!(keys.len(), 4);
    let fits = |algorithm, id| keys.select(&header(algorithm, Some(id))).is_ok();
    assert!(fits(Algorithm::RS256, "r") && fits(Algorithm::PS512, "r"));
    assert!(fits(Algorithm::ES256, "a") && !fits(Algorithm::ES384, "a"));
    assert!(fits(Algorithm::ES384, "b") && !fits(Algorithm::ES256, "b"));
    assert!(fits(Algorithm::EdDSA, "e") && !fits(Algorithm::ES256, "e"));
    for id in ["r", "a", "b", "e"] {
        assert!(!fits(Algorithm::HS256, id) && !fits(Algorithm::HS512, id));
    }
}

#[test]
fn a_key_with_an_alg_verifies_only_that() {
    let mut key = rsa().jwk("r");
    key["alg"] = "PS256".into();
    let keys = Keys::parse(&jwks(&[key])).unwrap();
    assert!(keys.select(&header(Algorithm::PS256, Some("r"))).is_ok());
    let refused = keys.select(&header(Algorithm::RS256, Some("r"))).err();
    assert_eq!(refused, Some(TokenRefused::Algorithm));
}

#[test]
fn a_token_without_a_key_name_needs_a_single_key_that_fits() {
    let keys = Keys::parse(&jwks(&[p256().jwk("a"), ed25519().jwk("e")])).unwrap();
    assert!(keys.select(&header(Algorithm::ES256, None)).is_ok());
    let refused = keys.select(&header(Algorithm::RS256, None)).err();
    assert_eq!(refused, Some(TokenRefused::Algorithm));

    let keys = Keys::parse(&jwks(&[p256().jwk("a"), p256().jwk("b")])).unwrap();
    let refused = keys.select(&header(Algorithm::ES256, None)).err();
    assert_eq!(refused, Some(TokenRefused::AmbiguousKey));
    let refused = keys.select(&header(Algorithm::ES256, Some("c"))).err();
    assert_eq!(refused, Some(TokenRefused::UnknownKey));
}

#[test]
fn a_key_without_a_name_is_found_only_when_it_is_alone() {
    let mut nameless = p256().jwk("");
    nameless.as_object_mut().unwrap().remove("kid");
    let keys = Keys::parse(&jwks(&[nameless.clone()])).unwrap();
    assert!(keys.select(&header(Algorithm::ES256, Some("any"))).is_ok());
    let keys = Keys::parse(&jwks(&[nameless, ed25519().jwk("e")])).unwrap();
    let refused = keys.select(&header(Algorithm::ES256, Some("any"))).err();
    assert_eq!(refused, Some(TokenRefused::UnknownKey));
}

#[test]
fn a_private_or_shared_key_in_the_file_is_refused() {
    let mut private = p256().jwk("a");
    private["d"] = "AAAA".into();
    assert!(error(&[private, ed25519().jwk("e")]).contains("private or shared key"));
    let shared = json!({"kty": "oct", "k": "AAAA"});
    assert!(error(&[shared]).contains("private or shared key"));
}

#[test]
fn two_keys_that_a_token_could_confuse_are_refused() {
    assert!(error(&[p256().jwk("a"), p256().jwk("a")]).contains("repeats the kid"));
    assert!(Keys::parse(&jwks(&[p256().jwk("a"), ed25519().jwk("a")])).is_ok());
}

#[test]
fn keys_that_cannot_verify_are_left_out_with_a_reason() {
    let with = |member: &str, value: Value| {
        let mut key = p256().jwk("x");
        key[member] = value;
        key
    };
    let unusable = [
        (json!({"kty": "AKP", "pub": "AAAA"}), "not an RSA, EC or OKP key"),
        (with("use", json!("enc")), "use is not sig"),
        (with("key_ops", json!(["sign"])), "do not have verify"),
        (with("alg", json!("RS256")), "does not go with its type"),
        (with("alg", json!("HS256")), "does not go with its type"),
        (with("alg", json!(7)), "not an RSA, EC or OKP key"),
        (with("crv", json!("P-384")), "P-256 and P-384"),
        (with("crv", json!("P-521")), "P-256 and P-384"),
        (with("x", json!("*".repeat(43))), "not base64url"),
        (json!({"kty": "RSA", "n": "A".repeat(171), "e": "AQAB"}), "2048 bits"),
        (json!({"kty": "OKP", "crv": "X25519", "x": "A".repeat(43)}), "not an RSA, EC or OKP key"),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}), "Ed25519"),
        (json!("text"), "not an RSA, EC or OKP key"),
    ];
    for (key, reason) in unusable {
        let error = error(std::slice::from_ref(&key));
        assert!(error.contains(reason), "{key}: {error}");
        let keys = Keys::parse(&jwks(&[key, p256().jwk("good")])).unwrap();
        assert_eq!(keys.len(), 1);
        assert!(keys.unusable[0].starts_with("key 0 is not used: "));
    }
}

#[test]
fn a_file_that_is_no_jwks_is_refused() {
    for text in ["", "[]", "{}", r#"{"keys": 7}"#, r#"{"keys": []}"#, "-----BEGIN PUBLIC KEY-----"]
    {
        assert!(Keys::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_short_secret_is_refused_and_a_long_one_allows_longer_hashes() {
    assert!(Keys::of_secret(&"s".repeat(31)).err().unwrap().contains("31 bytes"));
    let fits = |bytes: usize, algorithm| {
        Keys::of_secret(&"s".repeat(bytes)).unwrap().select(&header(algorithm, None)).is_ok()
    };
    assert!(fits(32, Algorithm::HS256) && !fits(32, Algorithm::HS384));
    assert!(fits(48, Algorithm::HS384) && !fits(48, Algorithm::HS512));
    assert!(fits(64, Algorithm::HS512) && !fits(64, Algorithm::RS256));
}
