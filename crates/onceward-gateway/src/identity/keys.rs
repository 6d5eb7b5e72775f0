//! The keys that verify tokens, and which of them may verify which token.
//!
//! A key fixes its algorithms when it is loaded. The header of a token only chooses among them, so
//! `none`, or an HMAC made with a public key, finds no key that it fits.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr as _;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde_json::Value;

use super::TokenRefused;

/// RFC 7518: an HMAC key must be at least as long as the hash; SHA-256 is the shortest.
const MIN_SECRET_BYTES: usize = 32;
/// Far more than any provider publishes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The length of a modulus of 2048 bits in base64url.
const MIN_MODULUS_CHARACTERS: usize = 342;

pub(super) struct Keys {
    keys: Vec<Key>,
    /// Why other keys of the file are not used.
    pub(super) unusable: Vec<String>,
}

/// A key with the algorithms that it verifies; never empty and all of one family.
pub(super) struct Key {
    id: Option<String>,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) decoding: DecodingKey,
}

impl Keys {
    /// One shared secret, for the HMAC algorithms whose hash is not longer than the secret.
    pub(super) fn of_secret(secret: &str) -> Result<Self, String> {
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "the secret has {} bytes, so its signatures can be guessed; use at least {MIN_SECRET_BYTES} \
                 random bytes, for example from `openssl rand -base64 48`",
                secret.len()
            ));
        }
        let algorithms = [(Algorithm::HS256, 32), (Algorithm::HS384, 48), (Algorithm::HS512, 64)]
            .into_iter()
            .filter_map(|(algorithm, bytes)| (secret.len() >= bytes).then_some(algorithm))
            .collect();
        let decoding = DecodingKey::from_secret(secret.as_bytes());
        Ok(Self { keys: vec![Key { id: None, algorithms, decoding }], unusable: Vec::new() })
    }

    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut text = String::new();
        let file = File::open(path).map_err(|error| failed(&error))?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(failed(&"the file is larger than 1 MiB; is it a JWKS?"));
        }
        Self::parse(&text).map_err(|error| failed(&error))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let set: Value =
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let listed = set.get("keys").and_then(Value::as_array);
        let listed = listed.ok_or(r#"not a JWKS, which is {"keys": [...]}"#)?;
        if listed.iter().any(is_secret) {
            return Err("the file holds a private or shared key; publish public keys only, and \
                        replace that key, because every reader of the file can sign with it"
                .into());
        }
        let (mut keys, mut unusable) = (Vec::<Key>::new(), Vec::new());
        for (index, value) in listed.iter().enumerate() {
            match Key::from_jwk(value) {
                Ok(key) if keys.iter().any(|other| other.is_confused_with(&key)) => {
                    return Err(format!("key {index} repeats the kid of another key"));
                }
                Ok(key) => keys.push(key),
                Err(reason) => unusable.push(format!("key {index} is not used: {reason}")),
            }
        }
        if keys.is_empty() {
            return Err(format!("no key can verify a token. {}", unusable.join(". ")));
        }
        Ok(Self { keys, unusable })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The one key that the header of a token can mean.
    pub(super) fn select(&self, header: &Header) -> Result<&Key, TokenRefused> {
        let is_only_key = self.keys.len() == 1;
        let named = |key: &&Key| match (&header.kid, &key.id) {
            (None, _) => true,
            (Some(wanted), Some(id)) => wanted == id,
            (Some(_), None) => is_only_key,
        };
        if !self.keys.iter().any(|key| named(&key)) {
            return Err(TokenRefused::UnknownKey);
        }
        let mut fitting =
            self.keys.iter().filter(named).filter(|key| key.algorithms.contains(&header.alg));
        let key = fitting.next().ok_or(TokenRefused::Algorithm)?;
        if fitting.next().is_some() { Err(TokenRefused::AmbiguousKey) } else { Ok(key) }
    }
}

impl Key {
    fn from_jwk(value: &Value) -> Result<Self, String> {
        if value.get("use").is_some_and(|usage| usage != "sig") {
            return Err("its use is not sig".into());
        }
        let operations = value.get("key_ops").and_then(Value::as_array);
        if operations.is_some_and(|operations| !operations.iter().any(|name| name == "verify")) {
            return Err("its key_ops do not have verify".into());
        }
        let jwk: Jwk = serde_json::from_value(value.clone())
            .map_err(|_| "it is not an RSA, EC or OKP key, or lacks a member".to_owned())?;
        let mut algorithms = algorithms_of(&jwk.algorithm)?;
        if let Some(name) = value.get("alg") {
            let only = name.as_str().and_then(|name| Algorithm::from_str(name).ok());
            algorithms.retain(|algorithm| Some(*algorithm) == only);
        }
        if algorithms.is_empty() {
            return Err("its alg does not go with its type".into());
        }
        let decoding = DecodingKey::from_jwk(&jwk).map_err(|_| "it is not base64url")?;
        Ok(Self { id: jwk.common.key_id, algorithms, decoding })
    }

    /// Two keys may share a name, or have none, only if no algorithm fits both.
    fn is_confused_with(&self, other: &Self) -> bool {
        self.id.is_some()
            && self.id == other.id
            && self.algorithms.iter().any(|algorithm| other.algorithms.contains(algorithm))
    }
}

fn is_secret(value: &Value) -> bool {
    ["d", "p", "q", "k"].iter().any(|member| value.get(member).is_some())
}

/// What a key of this type can verify; short and odd ones are refused now, not at the first token.
fn algorithms_of(parameters: &AlgorithmParameters) -> Result<Vec<Algorithm>, String> {
    match parameters {
        AlgorithmParameters::RSA(rsa) if rsa.n.len() < MIN_MODULUS_CHARACTERS => {
            Err("an RSA key needs at least 2048 bits".into())
        }
        AlgorithmParameters::RSA(_) => Ok(vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        AlgorithmParameters::EllipticCurve(point) => {
            let coordinates = (&point.curve, point.x.len(), point.y.len());
            match coordinates {
                (EllipticCurve::P256, 43, 43) => Ok(vec![Algorithm::ES256]),
                (EllipticCurve::P384, 64, 64) => Ok(vec![Algorithm::ES384]),
                _ => {
                    Err("of the EC curves, P-256 and P-384 are known, with full coordinates".into())
                }
            }
        }
        AlgorithmParameters::OctetKeyPair(pair) => match (&pair.curve, pair.x.len()) {
            (EllipticCurve::Ed25519, 43) => Ok(vec![Algorithm::EdDSA]),
            _ => Err("of the OKP curves, Ed25519 is known".into()),
        },
        AlgorithmParameters::OctetKey(_) => Err("a shared secret is not a public key".into()),
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
