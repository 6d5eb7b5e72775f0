//! Whom a verified client certificate names, as the value of a scope.
//!
//! A name is compared by its bytes. A text would join what the authority keeps apart: one attribute
//! `CN="alice, O=Acme"` reads like the two attributes `CN=alice, O=Acme`, and names that cannot be
//! shown read alike. The issuer counts too, because two authorities may each have their own Alice.

use onceward::telemetry::event;
use sha2::{Digest as _, Sha256};
use x509_parser::{
    asn1_rs::Any,
    prelude::{FromDer as _, X509Certificate, X509Name},
};

use super::hexadecimal;

/// The digest of issuer and subject; empty for a certificate whose subject is, `None` for one that cannot
/// be read.
pub(crate) fn certified(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let (issuer, subject) = (whole(certificate.issuer())?, whole(certificate.subject())?);
    if certificate.subject().iter_attributes().next().is_none() {
        return Some(String::new());
    }
    let digest = digest_of_names(issuer, subject);
    // The digest alone is stored: this line tells operators whose it is.
    tracing::debug!(
        event = event::CERTIFICATE_SHOWN,
        subject = ?certificate.subject().to_string(),
        issuer = ?certificate.issuer().to_string(),
        scope = %digest,
        "a client showed its certificate"
    );
    Some(digest)
}

/// All bytes of a name. The parser stops at an attribute that it does not understand, and calls what comes
/// before it the whole: two names that differ only behind it would be one.
fn whole<'a>(name: &X509Name<'a>) -> Option<&'a [u8]> {
    let bytes = name.as_raw();
    matches!(Any::from_der(bytes), Ok(([], _))).then_some(bytes)
}

pub(super) fn digest_of_names(issuer: &[u8], subject: &[u8]) -> String {
    let mut hash = Sha256::new().chain_update(b"onceward certificate scope v1\0");
    for name in [issuer, subject] {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
    }
    hexadecimal(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_name_stays_the_same_in_every_version() {
        // Computed by another program: sha256 of the domain and of both names with their lengths.
        let expected = "dbc2848ef6e8b84d3dfd657743726f4d8a0e253cf91c4429e9bf20e0a170fdb2";
        assert_eq!(digest_of_names(b"issuer", b"subject"), expected);
    }
}
