//! How a connection is opened: found, encrypted, and let in.

use std::{path::Path, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, RedisConnectionInfo, aio::MultiplexedConnection};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::AbortHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    OpenError,
    address::{Address, Login},
    error::{Trouble, Why},
    keys::Keys,
};

/// How the store reaches its servers.
pub(super) struct ConnectOptions {
    pub(super) address: Address,
    pub(super) tls: Option<TlsConnector>,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) connections: usize,
    pub(super) keys: Keys,
    pub(super) wait: Wait,
}

/// Until how many have a change it is not called made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    pub(super) replicas: u32,
    /// The server itself (0 or 1), and so many replicas, have it in their logs on disk.
    pub(super) logs: Option<(u32, u32)>,
    pub(super) timeout: Duration,
}

impl Wait {
    pub(super) fn is_asked(&self) -> bool {
        self.replicas > 0 || self.logs.is_some()
    }

    /// How long a change may take in all.
    pub(super) fn longest(&self) -> Duration {
        let times = u32::from(self.replicas > 0) + u32::from(self.logs.is_some());
        self.timeout * times
    }
}

/// Anything that bytes go over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// An open connection, which many callers share. It ends when it is dropped, also while a server is silent.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: AbortHandle,
}

/// Opens a connection for questions.
pub(super) async fn open(
    how: &ConnectOptions,
    (host, port): (&str, u16),
    login: &Login,
    database: i64,
) -> Result<Opened, Trouble> {
    let opening = async {
        let stream = stream(how, host, port).await?;
        let longest = how.timeout + how.wait.longest();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(longest));
        let config = config.set_pipeline_buffer_size(1024);
        let info = info(login, database);
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = opened.map_err(|error| refused(&error))?;
        Ok(Opened { connection, driver: tokio::spawn(driver).abort_handle() })
    };
    within(how.connect_timeout, (host, port), opening).await
}

/// Opens a connection that listens.
pub(super) async fn open_listener(
    how: &ConnectOptions,
    (host, port): (&str, u16),
) -> Result<redis::aio::PubSub, Trouble> {
    let opening = async {
        let stream = stream(how, host, port).await?;
        let info = info(&how.address.login, 0);
        redis::aio::PubSub::new(&info, stream).await.map_err(|error| refused(&error))
    };
    within(how.connect_timeout, (host, port), opening).await
}

async fn within<T>(
    longest: Duration,
    (host, port): (&str, u16),
    opening: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let opened = timeout(longest, opening).await.unwrap_or_else(|_| {
        Err(Trouble::new(Why::Unreachable, format!("no answer within {longest:?}")))
    });
    opened.map_err(|trouble| Trouble {
        words: format!("{host}:{port}: {}", trouble.words),
        ..trouble
    })
}

/// Before it is let in, nothing was asked.
fn refused(error: &redis::RedisError) -> Trouble {
    let trouble = Trouble::of(error);
    match trouble.why {
        Why::Broken => Trouble { why: Why::Unreachable, ..trouble },
        _ => trouble,
    }
}

fn info(login: &Login, database: i64) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name().set_db(database);
    if let Some(user) = &login.user {
        info = info.set_username(user);
    }
    if let Some(password) = &login.password {
        info = info.set_password(password);
    }
    info
}

async fn stream(how: &ConnectOptions, host: &str, port: u16) -> Result<Box<dyn Stream>, Trouble> {
    let unreachable = |error: std::io::Error| Trouble::new(Why::Unreachable, error.to_string());
    let plain = TcpStream::connect((host, port)).await.map_err(unreachable)?;
    // A change is one small packet, and a client waits for it.
    plain.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = &how.tls else { return Ok(Box::new(plain)) };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| Trouble::new(Why::Unreachable, error.to_string()))?;
    Ok(Box::new(tls.connect(name, plain).await.map_err(unreachable)?))
}

/// How connections are encrypted, if they are: with ring, whatever else the program was built with.
pub(super) fn connector(address: &Address) -> Result<Option<TlsConnector>, OpenError> {
    if !address.is_encrypted {
        return Ok(None);
    }
    let failed = |error: rustls::Error| OpenError::Failed(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots(address)?);
    let config = match &address.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("cert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unfit("key", key, &error.to_string()))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| unfit("cert", certificate, &error.to_string()))?
        }
    };
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

fn roots(address: &Address) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    match &address.authority {
        Some(file) => {
            for certificate in certificates("cacert", file)? {
                let added = roots.add(certificate);
                added.map_err(|error| unfit("cacert", file, &error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match roots.is_empty() {
        true => Err(OpenError::address(
            "names no certificate authority, and this machine trusts none",
            "name one by `cacert=FILE`",
        )),
        false => Ok(roots),
    }
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unfit(option, file, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unfit(option, file, "it holds no certificate")),
        false => Ok(found),
    }
}

fn unfit(option: &str, file: &Path, why: &str) -> OpenError {
    OpenError::address(
        &format!("has `{option}={}`, which cannot be used: {why}", file.display()),
        "name a file in PEM form",
    )
}
