//! TLS for the public listener.

use std::{error::Error, sync::Arc};

use crate::config::Tls;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

/// What agrees with clients on TLS: HTTP/2 if they can, else HTTP/1.1.
pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Box<dyn Error + Send + Sync>> {
    let chain = CertificateDer::pem_file_iter(&tls.certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)?;
    let builder = ServerConfig::builder();
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file)? {
                roots.add(certificate?)?;
            }
            // A client without a certificate may still use routes that do not ask for one.
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
