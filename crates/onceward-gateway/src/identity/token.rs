//! The bearer token of a request: found, verified, or refused with a reason that can be logged.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, header};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::Value;

use super::keys::{Key, Keys};
use crate::config::{Jwt, JwtKeys};

/// How far the clocks of the issuer and of this host may differ.
const LEEWAY_SECONDS: u64 = 60;
/// Longer than any token that a server with usual header limits would accept.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

pub(super) struct Tokens {
    /// The file to read again; a shared secret has none.
    file: Option<PathBuf>,
    keys: RwLock<Arc<Keys>>,
    issuer: Option<String>,
    audience: Option<String>,
}

impl Tokens {
    pub(super) fn load(
        jwt: &Jwt,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let (keys, file) = match &jwt.keys {
            JwtKeys::Jwks(path) => {
                let keys = Keys::read(path).map_err(|error| format!("jwt.jwks: {error}"))?;
                (keys, Some(path.clone()))
            }
            JwtKeys::SecretEnv(name) => {
                let secret = environment(name).ok_or_else(|| {
                    format!(
                        "jwt.secret_env: the environment variable {name} is not set, or not text"
                    )
                })?;
                let keys = Keys::of_secret(&secret)
                    .map_err(|error| format!("jwt.secret_env: {name}: {error}"))?;
                (keys, None)
            }
        };
        let (issuer, audience) = (jwt.issuer.clone(), jwt.audience.clone());
        Ok(Self { file, keys: RwLock::new(Arc::new(keys)), issuer, audience })
    }

    pub(super) fn reload(&self) -> Result<usize, String> {
        if let Some(path) = &self.file {
            let keys = Keys::read(path).map_err(|error| {
                format!("jwt.jwks: {error}. The keys that were read before stay in use.")
            })?;
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
        Ok(self.current_keys().len())
    }

    pub(super) fn unusable_keys(&self) -> Vec<String> {
        self.current_keys().unusable.clone()
    }

    /// The claims of the bearer token, always an object.
    pub(super) fn verify(&self, headers: &HeaderMap) -> Result<Value, TokenRefused> {
        let token = bearer(headers)?;
        let header = decode_header(token).map_err(|error| refused_header(&error))?;
        if header.crit.is_some() {
            return Err(TokenRefused::Critical);
        }
        let keys = self.current_keys();
        let key = keys.select(&header)?;
        let claims = decode::<Value>(token, &key.decoding, &self.validation(key))
            .map_err(|error| refused_token(error.into_kind()))?
            .claims;
        if !claims.is_object() {
            return Err(TokenRefused::Malformed);
        }
        // Without an expected audience, the library lets one of an odd type pass.
        if self.audience.is_none() && claims.get("aud").is_some() {
            return Err(TokenRefused::UnexpectedAudience);
        }
        Ok(claims)
    }

    fn validation(&self, key: &Key) -> Validation {
        let mut validation = Validation::new(key.algorithms[0]);
        validation.algorithms.clone_from(&key.algorithms);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        // The library checks a claim that is there; one that is not must be required as well.
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        match &self.audience {
            Some(audience) => {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            None => validation.validate_aud = false,
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    fn current_keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The token of the only `Authorization` line: with two, upstream and gateway could read different ones.
fn bearer(headers: &HeaderMap) -> Result<&str, TokenRefused> {
    let mut headers = headers.get_all(header::AUTHORIZATION).iter();
    let line = headers.next().ok_or(TokenRefused::Absent)?;
    if headers.next().is_some() {
        return Err(TokenRefused::SeveralLines);
    }
    let line = line.to_str().map_err(|_| TokenRefused::Malformed)?.trim();
    let (scheme, token) = line.split_once(' ').ok_or(TokenRefused::NotBearer)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(TokenRefused::NotBearer);
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenRefused::TooLong);
    }
    Ok(token.trim_start())
}

/// Why a request has no verified token. The text is safe to log: it never repeats the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefused {
    NotConfigured,
    Absent,
    SeveralLines,
    NotBearer,
    TooLong,
    Malformed,
    Critical,
    UnknownKey,
    AmbiguousKey,
    Algorithm,
    Signature,
    Expired,
    NotYetValid,
    Issuer,
    Audience,
    UnexpectedAudience,
    /// The claim of this name is missing or has the wrong type.
    Claim(String),
}

impl fmt::Display for TokenRefused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotConfigured => "tokens cannot be verified without a [jwt] section",
            Self::Absent => "the request has no Authorization header",
            Self::SeveralLines => "the request has several Authorization headers",
            Self::NotBearer => "the Authorization header has no bearer token",
            Self::TooLong => "the token is longer than 16 KiB",
            Self::Malformed => "the token is not a JWT",
            Self::Critical => "the token demands an extension (crit) that is not known",
            Self::UnknownKey => "the token names a key (kid) that is not in use",
            Self::AmbiguousKey => "the token names no key (kid), and several could have signed it",
            Self::Algorithm => "the token's algorithm does not go with the key",
            Self::Signature => "the token's signature is wrong",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::UnexpectedAudience => {
                "the token is for an audience; set jwt.audience to accept it"
            }
            Self::Claim(name) if name == "exp" => {
                "the token does not say when it expires (claim exp): tokens without that are refused, let \
                 its issuer add it"
            }
            Self::Claim(name) => {
                return write!(
                    formatter,
                    "the token's claim {name} is missing or has a wrong type"
                );
            }
        })
    }
}

/// An algorithm that the library does not know, such as `none`, is an error of the header's JSON.
fn refused_header(error: &Error) -> TokenRefused {
    match error.kind() {
        ErrorKind::Json(json) if json.to_string().starts_with("unknown variant") => {
            TokenRefused::Algorithm
        }
        _ => TokenRefused::Malformed,
    }
}

fn refused_token(kind: ErrorKind) -> TokenRefused {
    match kind {
        ErrorKind::InvalidSignature => TokenRefused::Signature,
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => TokenRefused::Algorithm,
        ErrorKind::ExpiredSignature => TokenRefused::Expired,
        ErrorKind::ImmatureSignature => TokenRefused::NotYetValid,
        ErrorKind::InvalidIssuer => TokenRefused::Issuer,
        ErrorKind::InvalidAudience => TokenRefused::Audience,
        ErrorKind::MissingRequiredClaim(name) | ErrorKind::InvalidClaimFormat(name) => {
            TokenRefused::Claim(name)
        }
        _ => TokenRefused::Malformed,
    }
}
