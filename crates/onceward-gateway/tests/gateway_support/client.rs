//! Clients: HTTP/1.1 and HTTP/2 by hyper, in the clear or with TLS, and plain bytes.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

pub(crate) use testbed::Pipe;

use super::{Reply, TEST_TIMEOUT};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    /// In the clear: with prior knowledge.
    Http2,
}

impl Version {
    pub(crate) const BOTH: [Self; 2] = [Self::Http1, Self::Http2];
}

/// A request that can be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

impl Call {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let body = Bytes::new();
        Self { method: method.into(), path: path.into(), headers: Vec::new(), body }
    }

    pub(crate) fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    /// Adds a line, also if the name is there already.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.without_key().header("idempotency-key", key)
    }

    pub(crate) fn without_key(self) -> Self {
        self.without("idempotency-key")
    }

    /// What the upstream shall do; replaces what it was told before.
    pub(crate) fn told(self, what: impl Into<Value>) -> Self {
        let plain = |letter: char| match letter {
            ' '..='~' => letter.to_string(),
            _ => format!("\\u{:04x}", u32::from(letter)),
        };
        let text: String = what.into().to_string().chars().map(plain).collect();
        self.without("x-do").header("x-do", text)
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, value: impl Into<Value>) -> Self {
        let call = self.without("content-type").header("content-type", "application/json");
        call.body(value.into().to_string())
    }

    /// The same lines to another place, without a body.
    pub(crate) fn retarget(mut self, method: &str, path: &str) -> Self {
        (self.method, self.path) = (method.into(), path.into());
        self.body(Bytes::new())
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    /// As hyper wants it; `base` is scheme, host and port.
    pub(crate) fn request(&self, base: &str) -> Request<BoxBody<Bytes, Infallible>> {
        let mut request = Request::builder().method(self.method.as_str());
        request = request.uri(format!("{base}{}", self.path));
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().unwrap();
            request = request.header(name, HeaderValue::from_bytes(value).unwrap());
        }
        request.body(Full::new(self.body.clone()).boxed()).unwrap()
    }
}

/// One connection.
pub(crate) struct Link {
    sender: Sender,
    base: String,
}

enum Sender {
    Http1(http1::SendRequest<BoxBody<Bytes, Infallible>>),
    Http2(http2::SendRequest<BoxBody<Bytes, Infallible>>),
}

impl Link {
    pub(crate) async fn open(address: SocketAddr, version: Version) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::over(stream, version, format!("http://{address}")).await
    }

    /// With TLS; what is agreed on must be this version.
    pub(crate) async fn open_tls(
        address: SocketAddr,
        version: Version,
        mut config: ClientConfig,
    ) -> Self {
        let protocol: &[u8] = if version == Version::Http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        Self::over(stream, version, format!("https://{address}")).await
    }

    async fn over<S>(stream: S, version: Version, base: String) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        let sender = match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Version::Http2 => {
                let shaken = http2::handshake(TokioExecutor::new(), stream).await;
                let (sender, connection) = shaken.unwrap();
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Self { sender, base }
    }

    /// Sends it and reads the whole answer; panics if there is none in time.
    pub(crate) async fn send(&mut self, call: &Call) -> Reply {
        self.try_send(call).await.unwrap_or_else(|error| panic!("{error:?} after {call:?}"))
    }

    pub(crate) async fn try_send(&mut self, call: &Call) -> Result<Reply, hyper::Error> {
        let base = self.base.clone();
        let exchange = async {
            let response = self.start(call.request(&base)).await?;
            Reply::read(response).await
        };
        timeout(TEST_TIMEOUT, exchange).await.unwrap_or_else(|_| panic!("no answer to {call:?}"))
    }

    /// Sends it with a body that is still to come; gives the head of the answer.
    pub(crate) async fn stream(
        &mut self,
        call: &Call,
        body: Pipe,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let request = call.request(&self.base).map(|_| body.boxed());
        timeout(TEST_TIMEOUT, self.start(request))
            .await
            .unwrap_or_else(|_| panic!("no answer: {call:?}"))
    }

    async fn start(
        &mut self,
        mut request: Request<BoxBody<Bytes, Infallible>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                let host = request.uri().authority().unwrap().as_str().parse().unwrap();
                request.headers_mut().entry("host").or_insert(host);
                let path = request.uri().path_and_query().unwrap().as_str().parse().unwrap();
                *request.uri_mut() = path;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Sends these bytes and gives everything that comes back until the other side closes.
pub(crate) async fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is an end, too.
    let _ =
        timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await.expect("it is never closed");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until this text has come, or the end.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = Vec::new();
    let reading = async {
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&answer).contains(text) {
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(count) => answer.extend_from_slice(&piece[..count]),
            }
        }
    };
    timeout(TEST_TIMEOUT, reading).await.expect("it does not come");
    String::from_utf8_lossy(&answer).into_owned()
}
