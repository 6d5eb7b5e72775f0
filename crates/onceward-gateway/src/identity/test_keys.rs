//! Keys for tests only, made with openssl for this file: every reader of it can sign with them.

use base64ct::{Base64, Encoding as _};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

/// An RSA key of 2048 bits, PKCS#1.
const RSA: &str = "MIIEpAIBAAKCAQEAuB+EwIa+Oq2c0CM1RfDLeCWofIRNP7LrQYQ9uUCGRBF+cV6rwi4/wHYtmIL2JOTBWMy8DRcd89\
    yxRbHq+Lfk0UL8TdMVbqXf/l1QP7eDIhrb0D5jXCshY/ZVQI7147bHy2sm5Hf7TPMkC1/xKMT24GdlVfhE6vcChpfq\
    RnE63c3mKkwS36+3mEva+d/y1lGOqMwzGCd3S6SgQzY5qkSbo4r5nPpBwI/890FNbyeHANgt5ppQjuzF5LE9I/ZFVV\
    VWSYHk7DGBfh1xJsDb7xztCuN9TMzpJfY/kZuS+sUo1S2XbAO5ZoVPdBcyfjdbUGwMqtEb7Elzj9fcrJdQg+AzGQID\
    AQABAoIBAAYO/3LIXEUZBmJw7iVVhZR4BMHIJrSUYhpfTBqm7WQbAUKgv10d4XonSVvN32SaZGRUJFH380PdfLXS42\
    z4vB5Iqn2zFu7zpVm831Gha765DIefLezP/ILKDccYjS3Hi259oaN98TZ4f7SiHRDe3lLHBDYee8IRi7M7F3nm6u12\
    dQ27gTxXCdFR0j77Uo0us73c+7ao1rVsJcOIYhzDpJEbdFT7rOu4w38X/lycBohzlpI7+Tq/TW+BltcjKN2dVf7IQA\
    FWiHqV7Tc32kfPPaTOjfHqBFs1kxnXOuj/6vqQlyzP6XACdWIWEpAvWZ5iubbTPRBtd7rF3+h+buH4KykCgYEA+2oV\
    vjs1wvo9MYhjXzCpBFCn2wXp/QQ+fwMT5MoyH7/8EZBis/0+zWBqbs7qNOhOsdX8RCUv9UWOsPwGPBOejHEqYHGKVJ\
    2IMWer7hexzuR51j0MkhVCqtRY0X7yPrq7DAsIQW919jmHd1lK4HDZu1frM3rHusjOFOzk8mFiIn0CgYEAu3s7+SKD\
    yjH0XBE0N/E/QLxd2a/DZi+OHQPPwDtUoD58/QJSmBpeojiz6iDvfSGaornz/9ziILb+LknFLmFx+4L1qmWTya4kYO\
    iuioVEmgTppwGCsnIcqaR4YiGu8pfbdNXXxC/Q61tFhNzgZQ/YlSk8dhrnQqGw9olYk9zr+c0CgYEArHQWOgivVfEE\
    bKebUj40kWsp2Ijz+cQhgkoAKV2wiCrOotWhfsjlfUb3es6fxG7dHAsmITBI9zshJ7GYLTlf9gHiCYmYU3ZDZ3AvdP\
    /3zWzXTedOah3/PuKtkfY8AF9h0l726Lul9KF9lJZBUDbYgzNJeGRuAGehRKVCXigCgpkCgYAvL+o9X2mKR554WcAp\
    4GeKNJ7ufmWQ36FGPkJY4NYA6xlsWNxO+jwdWmY2JIoClaWlFWaLXJ3xm/1Hyzt82/vjUOfiNmTHGzR+y7G6naZRmb\
    DxXtj1bvE15XaDRHUTDBOpSXVgJKTRyAwsT6eO6Dkb+eAE3eqdA7NVqeYIeU9PdQKBgQDjXKmQFEHOoMFKCTzX2nMK\
    Bu1v0kRDm6UObCRfNmShG8SiCTstDTqzN2QYvdLSEfX1ciTkfJgilX1sjoNzKFTf5znB8Nzv7SaN07RKV+lh2gRVpB\
    QTklw0MN8gdOkd/LO5yWBUPcx630X2Y73NhJ/YCGZe7URivmn6Z9neA/2a4A==";

/// A P-256 key, PKCS#8.
const P256: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgx6KWZHhCahEBX7QTX2+SLhQaN6jzr4k4MQq9emHKnf\
    WhRANCAATYXq5jdHDxDoaoMLT6KehFsRN14JJAib0vCBCM8OMoWZhI/MaT50LmvKb0o1PXvKhgC+yauPZMD2c4nwtb\
    KfD9";

/// Another P-256 key, which no file of the tests publishes unless it says so.
const OTHER_P256: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQguxfe4TZydaQ8a4DybgsaZJOvbSRe2tLP0VShbC+AKf\
    yhRANCAARZtMkaiDn8cRjZb2pwIoPkeAWtWbZa5aa0CslmnukvQ2dtJ30yzLGfRJ/m4MuDes1djpZ+AmHPBfi2g8T8\
    4Qim";

/// A P-384 key, PKCS#8.
const P384: &str = "MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDDsgeiOlkPhXfomW0l5GoOjeg0naHHovJLRPg11frUJKU\
    9LbfoV0J4ugM10+ymOSEihZANiAASTtxmsnq/+VnGp57YRLUDyqz3KF85iUZ9V6Jtt0lxYosRkvrFtwyxiRrXEcB3h\
    o7qsRI6pavZdZsD0imnxCr2qn2vrpHGlSjVGoPv998aWG+KB1xMH/7Pz84IxwrNVK5k=";

/// An Ed25519 key, PKCS#8.
const ED25519: &str = "MC4CAQAwBQYDK2VwBCIEIFAmdsEg82AHwU5sToaU26xIfXw4Wa/baLAtbd6xFclJ";

/// The public half of `ED25519`, which the library does not derive.
const ED25519_PUBLIC: &str = "CQgrhO0N8mqA90MhRWvzbDQNfeAGu3C6hCISk-yo1W8";

/// A key that can sign, with the algorithm that it signs with.
pub(super) struct SigningKey {
    pub(super) algorithm: Algorithm,
    key: EncodingKey,
}

pub(super) fn rsa() -> SigningKey {
    SigningKey { algorithm: Algorithm::RS256, key: EncodingKey::from_rsa_der(&bytes(RSA)) }
}

pub(super) fn p256() -> SigningKey {
    SigningKey { algorithm: Algorithm::ES256, key: EncodingKey::from_ec_der(&bytes(P256)) }
}

pub(super) fn other_p256() -> SigningKey {
    SigningKey { algorithm: Algorithm::ES256, key: EncodingKey::from_ec_der(&bytes(OTHER_P256)) }
}

pub(super) fn p384() -> SigningKey {
    SigningKey { algorithm: Algorithm::ES384, key: EncodingKey::from_ec_der(&bytes(P384)) }
}

pub(super) fn ed25519() -> SigningKey {
    SigningKey { algorithm: Algorithm::EdDSA, key: EncodingKey::from_ed_der(&bytes(ED25519)) }
}

pub(super) fn shared(secret: &str, algorithm: Algorithm) -> SigningKey {
    SigningKey { algorithm, key: EncodingKey::from_secret(secret.as_bytes()) }
}

impl SigningKey {
    /// The public key as a member of a JWKS, without `alg`, as many providers publish it.
    pub(super) fn jwk(&self, id: &str) -> Value {
        let mut jwk = if self.algorithm == Algorithm::EdDSA {
            json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_PUBLIC})
        } else {
            serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap())
                .unwrap()
        };
        jwk.as_object_mut().unwrap().remove("alg");
        jwk["kid"] = id.into();
        jwk
    }

    /// A token with these claims and this `kid`.
    pub(super) fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: id.map(Into::into), ..Header::new(self.algorithm) };
        self.sign_with_header(&header, claims)
    }

    pub(super) fn sign_with_header(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.key).unwrap()
    }

    /// The same key, signing in another way.
    pub(super) fn with(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }
}

/// Claims that are valid for another minute.
pub(super) fn claims() -> Value {
    json!({"sub": "ada", "exp": in_seconds(60)})
}

pub(super) fn in_seconds(seconds: i64) -> i64 {
    i64::try_from(get_current_timestamp()).unwrap() + seconds
}

pub(super) fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn bytes(base64: &str) -> Vec<u8> {
    Base64::decode_vec(base64).unwrap()
}
