//! Whether the services that the gateway will ask accept connections. The doctor sends them nothing.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs as _},
    sync::mpsc,
    thread,
    time::Duration,
};

use http::Uri;

use super::finding::{Findings, texts};
use crate::config::{Authorize, Config};

/// How long a connection may take; all are tried at once.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn examine(config: &Config, findings: &mut Findings) {
    let mut asked: Vec<(&'static str, String, mpsc::Receiver<io::Result<()>>)> = Vec::new();
    for (role, uri) in addresses(config) {
        let Some((host, port)) = host_and_port(uri) else { continue };
        let address = format!("{host}:{port}");
        if asked.iter().any(|(known, at, _)| *known == role && *at == address) {
            continue;
        }
        let (sender, receiver) = mpsc::channel();
        // A thread of its own: looking up a name cannot be bounded otherwise.
        thread::spawn(move || sender.send(connect(&host, port)));
        asked.push((role, address, receiver));
    }
    for (role, address, receiver) in asked {
        let reason = match receiver.recv_timeout(CONNECT_TIMEOUT * 2) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        let texts = texts(
            format!("{address} does not accept a connection: {reason}"),
            means(role),
            format!("start it, or correct `{role}`; --offline leaves this out"),
        );
        findings.warning("unreachable", role, texts);
    }
}

fn means(role: &str) -> &'static str {
    match role {
        "upstream" => "clients get 502 `upstream-unreachable`, and their keys stay free",
        "authorize" => "the gateway shows no stored answers while this service cannot allow it",
        _ => "unknown outcomes stay unknown while this service cannot resolve them",
    }
}

fn addresses(config: &Config) -> Vec<(&'static str, &Uri)> {
    let mut addresses = Vec::new();
    if config.serves {
        addresses.push(("upstream", &config.upstream));
    }
    addresses.extend(config.sinks.iter().map(|sink| ("sink", &sink.url)));
    for route in config.routes.iter().filter(|route| route.takes_keys()) {
        if let Authorize::Url(uri) = &route.authorize {
            addresses.push(("authorize", uri));
        }
        addresses.extend(route.reconcile.iter().map(|uri| ("reconcile", uri)));
    }
    addresses
}

fn host_and_port(uri: &Uri) -> Option<(String, u16)> {
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    let usual = match uri.scheme_str() {
        Some("https" | "h2") => 443,
        _ => 80,
    };
    Some((host, uri.port_u16().unwrap_or(usual)))
}

fn connect(host: &str, port: u16) -> io::Result<()> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}
