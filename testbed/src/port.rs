//! Ports that nobody listens on.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::tool::Trouble;

/// An address of this machine on which nobody listens now.
///
/// ```
/// let address = testbed::free_address()?;
/// assert!(std::net::TcpListener::bind(address).is_ok());
/// # Ok::<(), testbed::Trouble>(())
/// ```
///
/// # Errors
///
/// When no port is free.
pub fn free_address() -> Result<SocketAddr, Trouble> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

/// A port that nobody listens on now.
///
/// It lies below those that the system gives to clients: a client that looks for a killed server again and
/// again would otherwise be given the port itself some day, and keep the server from coming back.
pub(crate) fn free_port() -> Result<u16, Trouble> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports = FIRST_PORT..first_of_clients(&range);
    (0..1000)
        .map(|_| fastrand::u16(ports.clone()))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| Trouble::new("no free port on 127.0.0.1"))
}

const FIRST_PORT: u16 = 11_000;

/// Reads `32768 60999`; a range that leaves too few ports is not kept out of.
fn first_of_clients(range: &str) -> u16 {
    let first = range.split_whitespace().next().and_then(|number| number.parse().ok());
    first.filter(|first| *first >= FIRST_PORT + 1000).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_none_that_clients_get() {
        assert_eq!(first_of_clients("20000 60999\n"), 20_000);
        assert_eq!(first_of_clients("1024 65000"), 32_768);
        assert_eq!(first_of_clients(""), 32_768);
        let port = free_port().unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    }
}
