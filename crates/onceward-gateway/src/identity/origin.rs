//! Where a request comes from, as far as shares of places and memory go.

use std::net::IpAddr;

use http::HeaderMap;
use onceward::server::peer_network;

use super::{Caller, Identity};

/// The client behind a request. Trusted proxies have no share, because all clients come through them; all
/// requests of one proxy that do not say plainly who their client is have one together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The client's address, or the network of its IPv6 address, in which one client has them all.
    pub(crate) address: Option<IpAddr>,
    /// The connection, if the client itself has opened it.
    pub(crate) connection: Option<u64>,
}

impl Identity {
    /// The client of a request, behind the proxies that are trusted.
    pub(crate) fn origin(&self, headers: &HeaderMap, caller: &Caller) -> Origin {
        let address = match self.sought_client(headers, caller) {
            Ok(client) if self.trusts(client) => None,
            Ok(client) => Some(client),
            // A client can make its own request unclear, and shall gain nothing by it.
            Err(_) => Some(caller.peer.address),
        };
        let is_direct = !caller.is_behind_trusted_proxy();
        Origin {
            address: address.map(peer_network),
            connection: is_direct.then_some(caller.peer.connection),
        }
    }
}
