//! How a connection is encrypted, and what is checked of the server's certificate.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    OpenError,
    address::{Address, Verify},
};

pub(super) fn connector(address: &Address) -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Failed(error.to_string()))?;
    let builder = match address.tls {
        Verify::Everything => builder.with_root_certificates(roots(address)?),
        less => {
            let authority = match less {
                Verify::Authority => Some(chain(address, &provider)?),
                _ => None,
            };
            let verifier = Arc::new(AnyName { provider, authority });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let config = match &address.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("sslcert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unreadable("sslkey", key, &error.to_string()))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| unfit("`sslcert` and `sslkey`", &error.to_string()))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unreadable(option, file, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unreadable(option, file, "it holds no certificate")),
        false => Ok(found),
    }
}

fn unreadable(option: &str, file: &Path, why: &str) -> OpenError {
    unfit(&format!("`{option}={}`", file.display()), why)
}

fn unfit(what: &str, why: &str) -> OpenError {
    OpenError::address(
        &format!("has {what}, which cannot be used: {why}"),
        "name a file in PEM form",
    )
}

fn roots(address: &Address) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    match &address.root {
        Some(file) => {
            for certificate in certificates("sslrootcert", file)? {
                let added = roots.add(certificate);
                added.map_err(|error| unreadable("sslrootcert", file, &error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match roots.is_empty() {
        true => Err(OpenError::address(
            "names no certificate authority, and this machine trusts none",
            "name one by `sslrootcert=FILE`",
        )),
        false => Ok(roots),
    }
}

fn chain(
    address: &Address,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, OpenError> {
    let roots = Arc::new(roots(address)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    verifier.map_err(|error| unfit("`sslrootcert`", &error.to_string()))
}

/// Less than everything: with `sslmode=verify-ca` a server of a trusted authority, whatever its name; with
/// `prefer` and `require` any server.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    authority: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end, between, name, ocsp, now) {
            // The verifier checks the name last: all else was right.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
