//! Certificates of the day, made by openssl.

use std::{fs, path::Path, process::Command};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

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
