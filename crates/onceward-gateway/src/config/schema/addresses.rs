//! Listeners, upstream and trusted proxies.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use http::Uri;
use ipnet::IpNet;

use crate::config::{
    SourceLocation,
    diagnostics::mistake::Mistakes,
    parse::reader::{Placed, Value},
};

pub(crate) fn listener(
    option: &str,
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
    let help = match port {
        Some(port) if text.starts_with("localhost:") => format!("write \"127.0.0.1:{port}\""),
        Some(port) if text == port || text.strip_prefix(':') == Some(port) => {
            format!("write \"127.0.0.1:{port}\" for this machine only, \"0.0.0.0:{port}\" for all")
        }
        _ => "write \"127.0.0.1:8080\" for this machine only, \"0.0.0.0:8080\" for all".to_owned(),
    };
    mistakes.error(place, format!("`{option}` is not an address and a port"), help);
    None
}

/// Where requests go: scheme, host and port, and nothing else.
pub(crate) fn upstream(text: &str, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Uri> {
    let uri = address("upstream", &["http", "https", "h2c", "h2"], text, place, mistakes)?;
    let has_path = uri.path() != "/" || uri.query().is_some();
    if has_path {
        let message = "`upstream` has a path";
        let help = "leave it out: the path of each request is passed on as it is";
        mistakes.error(place, message, help);
        return None;
    }
    Some(uri)
}

/// An `http://` or `https://` address.
pub(crate) fn url(
    option: &str,
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Uri> {
    address(option, &["http", "https"], text, place, mistakes)
}

/// An address with one of these schemes. It is never quoted: it may hold a password.
fn address(
    option: &str,
    schemes: &[&str],
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Uri> {
    const EXAMPLE: &str = "write \"http://127.0.0.1:3000\"";
    let mut refuse = |message: &str, help: &str| {
        mistakes.error(place, format!("`{option}` {message}"), help);
        None
    };
    if !text.contains("://") {
        return refuse("has no scheme", EXAMPLE);
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return refuse("is not a URL", EXAMPLE);
    };
    if !uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) {
        let known = format!("write one of {}://", schemes.join("://, "));
        return refuse("has an unknown scheme", &known);
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let message = "has a name or password in it";
        return refuse(
            message,
            "leave it out: addresses are shown in logs and in `onceward check`",
        );
    }
    if text.contains('#') {
        return refuse("has a fragment", "leave out `#` and what follows: no server sees it");
    }
    match uri.host() {
        None | Some("") => refuse("has no host", EXAMPLE),
        Some(_) if uri.port_u16() == Some(0) => refuse("has port 0", EXAMPLE),
        Some(_) => Some(uri),
    }
}

/// The name of a file that must be there; relative names start at `directory`.
pub(crate) fn file(
    option: &str,
    text: &str,
    place: &SourceLocation,
    directory: &Path,
    mistakes: &mut Mistakes,
) -> Option<PathBuf> {
    let path = directory.join(text);
    if text.contains("://") {
        let message = format!("`{option}` is a URL; it must be the name of a file");
        mistakes.error(place, message, "fetch it and name the file");
    } else if text.is_empty() || !path.is_file() {
        let message = format!("`{option}`: there is no file {}", path.display());
        mistakes.error(place, message, "relative names start where the configuration file is");
    } else {
        return Some(path);
    }
    None
}

/// `10.0.0.0/8`; an address alone is that one address.
pub(crate) fn network(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<IpNet> {
    const EXAMPLE: &str = "write an address and the length of its prefix, as \"10.0.0.0/8\"";
    let network = match value {
        Value::Text(text) => parsed_network(text),
        _ => None,
    };
    let Some(network) = network else {
        mistakes.error(place, "`trusted_proxies` has an item that is not a network", EXAMPLE);
        return None;
    };
    let (address, first, prefix) = (network.addr(), network.network(), network.prefix_len());
    if first != address {
        let message = format!("`trusted_proxies`: {network} has digits behind its prefix");
        let whole = network.max_prefix_len();
        let help = format!("write \"{first}/{prefix}\" for all, \"{address}/{whole}\" for one");
        mistakes.error(place, message, help);
        return None;
    }
    if prefix == 0 {
        let message =
            "`trusted_proxies` holds every address: any client may claim to be another one";
        mistakes.warning(place, message, "name the proxies that stand before the gateway");
    }
    Some(network)
}

fn parsed_network(text: &str) -> Option<IpNet> {
    // The parser of ipnet takes `010.0.0.0` for `10.0.0.0`; that of the standard library refuses it.
    match text.split_once('/') {
        Some((address, prefix)) => IpNet::new(address.parse().ok()?, prefix.parse().ok()?).ok(),
        None => text.parse::<IpAddr>().ok().map(IpNet::from),
    }
}

/// Requests must not come back to where they came from.
pub(crate) fn check_loops(
    listen: &Placed<SocketAddr>,
    admin: Option<&Placed<SocketAddr>>,
    upstream: Option<&Placed<Uri>>,
    mistakes: &mut Mistakes,
) {
    if let Some(admin) = admin
        && overlap(listen.value, admin.value)
    {
        let message = "`admin` and `listen` are the same address";
        mistakes.error(
            &admin.place,
            message,
            "give `admin` a port of its own, which is not public",
        );
    }
    let listeners = [("listen", Some(listen)), ("admin", admin)];
    for (option, listener) in listeners {
        if let (Some(listener), Some(upstream)) = (listener, upstream)
            && leads_to(&upstream.value, listener.value)
        {
            let message =
                format!("`upstream` is the gateway itself: it is where `{option}` listens");
            mistakes.error(&upstream.place, message, "name the address of the service behind it");
        }
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_host =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_host
}

fn leads_to(upstream: &Uri, listener: SocketAddr) -> bool {
    let usual = if matches!(upstream.scheme_str(), Some("https" | "h2")) { 443 } else { 80 };
    if upstream.port_u16().unwrap_or(usual) != listener.port() {
        return false;
    }
    let host = upstream.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    match host.parse::<IpAddr>() {
        Ok(address) if listener.ip().is_unspecified() => is_here(address),
        Ok(address) => address == listener.ip() || address.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost") && is_here(listener.ip()),
    }
}
