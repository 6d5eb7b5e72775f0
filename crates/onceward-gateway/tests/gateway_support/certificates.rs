//! Certificates of the day, made by openssl.

use std::{fs, path::Path, process::Command};

use base64ct::Encoding as _;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use x509_parser::prelude::{FromDer as _, X509Certificate};

/// In a directory: `ca.pem`, `server.pem` with `server.key`, and one pair for each client.
pub(crate) struct Certificates;

impl Certificates {
    /// `None`, loudly, without openssl.
    pub(crate) fn make(directory: &Path, clients: &[&str]) -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("SKIPPED: openssl is not on this machine, TLS is not tested");
            return None;
        }
        one(directory, "ca", "basicConstraints = critical, CA:TRUE", None);
        let server = "basicConstraints = CA:FALSE\nsubjectAltName = IP:127.0.0.1";
        one(directory, "server", server, Some("ca"));
        for client in clients {
            one(directory, client, "basicConstraints = CA:FALSE", Some("ca"));
        }
        Some(Self)
    }

    /// Another authority, for whose clients `clients` speaks from now on.
    pub(crate) fn add_authority(directory: &Path, authority: &str, clients: &[&str]) {
        one(directory, authority, "basicConstraints = critical, CA:TRUE", None);
        for client in clients {
            one(directory, client, "basicConstraints = CA:FALSE", Some(authority));
        }
    }

    /// Has the authority sign another certificate of this client, with these bytes as its subject:
    /// openssl itself would not write every name.
    pub(crate) fn rename(directory: &Path, authority: &str, client: &str, subject: &[u8]) {
        let pem = |name: &str| directory.join(format!("{name}.pem"));
        let old = CertificateDer::from_pem_file(pem(client)).unwrap();
        let (_, parsed) = X509Certificate::from_der(&old).unwrap();
        let body = parsed.tbs_certificate.as_ref();
        let at = parsed.subject().as_raw().as_ptr() as usize - body.as_ptr() as usize;
        let end = at + parsed.subject().as_raw().len();
        let start = body.len() - element_content(body).len();
        let body = element(0x30, &[&body[start..at], subject, &body[end..]].concat());
        fs::write(directory.join("body.der"), &body).unwrap();
        let key = format!("{authority}.key");
        let signed = Command::new("openssl")
            .current_dir(directory)
            .args(["dgst", "-sha256", "-sign", &key, "body.der"])
            .output()
            .unwrap();
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        let ecdsa_with_sha256 = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
        let signature = element(3, &[&[0], &signed.stdout[..]].concat());
        let whole = element(0x30, &[&body[..], ecdsa_with_sha256, &signature].concat());
        let text = base64ct::Base64::encode_string(&whole);
        let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        fs::write(pem(client), text).unwrap();
    }

    /// Shows the certificate of the server, and speaks both versions.
    pub(crate) fn server(directory: &Path) -> ServerConfig {
        let certificate = CertificateDer::from_pem_file(directory.join("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).unwrap();
        let builder = ServerConfig::builder().with_no_client_auth();
        let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// Trusts the authority, and shows the certificate of this client.
    pub(crate) fn client(directory: &Path, name: Option<&str>) -> ClientConfig {
        let certificate =
            |name: &str| CertificateDer::from_pem_file(directory.join(format!("{name}.pem")));
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca").unwrap()).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let Some(name) = name else { return builder.with_no_client_auth() };
        let key = PrivateKeyDer::from_pem_file(directory.join(format!("{name}.key"))).unwrap();
        builder.with_client_auth_cert(vec![certificate(name).unwrap()], key).unwrap()
    }
}

/// One element of DER.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut bytes = match content.len() {
        short @ 0..128 => vec![tag, short as u8],
        _ => [&[tag, 0x80 | length.len() as u8], length].concat(),
    };
    bytes.extend(content);
    bytes
}

fn element_content(bytes: &[u8]) -> &[u8] {
    match bytes[1] {
        short @ 0..128 => &bytes[2..2 + usize::from(short)],
        long => &bytes[2 + usize::from(long & 0x7f)..],
    }
}

fn one(directory: &Path, name: &str, extensions: &str, signer: Option<&str>) {
    let text = format!(
        "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = more\n\
         [name]\nCN = {name}\n[more]\n{extensions}\n"
    );
    fs::write(directory.join("openssl.cnf"), text).unwrap();
    let mut command = Command::new("openssl");
    command.current_dir(directory).args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config", "openssl.cnf"]);
    command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    if let Some(signer) = signer {
        command.args(["-CA", &format!("{signer}.pem"), "-CAkey", &format!("{signer}.key")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
