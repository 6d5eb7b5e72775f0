//! A bound on what all requests and answers together hold in memory, and a share of it for one peer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;

use super::{Code, Problem};
use crate::telemetry;

/// The bytes that all peers share; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Debug)]
struct Ledger {
    left: usize,
    /// What each peer holds; a peer that holds nothing is not listed.
    held: HashMap<IpAddr, usize>,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        let ledger = Ledger { left: bytes, held: HashMap::new() };
        Self { ledger: Arc::new(Mutex::new(ledger)) }
    }

    /// The memory as this peer may use it: at most so many bytes; without a peer, all of them.
    pub(super) fn of(&self, peer: Option<(IpAddr, usize)>) -> PeerMemory {
        PeerMemory { memory: self.clone(), peer }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn take(&mut self, peer: Option<(IpAddr, usize)>, bytes: usize) -> bool {
        let Some(left) = self.left.checked_sub(bytes) else { return false };
        if let Some((address, most)) = peer.filter(|_| bytes > 0) {
            let held = self.held.get(&address).copied().unwrap_or_default();
            if bytes > most.saturating_sub(held) {
                return false;
            }
            self.held.insert(address, held + bytes);
        }
        self.left = left;
        true
    }

    fn give_back(&mut self, peer: Option<(IpAddr, usize)>, bytes: usize) {
        self.left += bytes;
        let Some((address, _)) = peer else { return };
        if let Some(held) = self.held.get_mut(&address) {
            *held -= bytes;
            if *held == 0 {
                self.held.remove(&address);
            }
        }
    }
}

/// The memory that the requests and answers of one peer may take up, out of what all of them share.
///
/// For code around a layer that keeps bytes of requests itself: see
/// [`Idempotency::memory_of`](super::Idempotency::memory_of).
///
/// ```
/// use onceward::server::PeerMemory;
///
/// fn kept(memory: &PeerMemory, bytes: bytes::Bytes) -> Option<bytes::Bytes> {
///     let mut reservation = memory.nothing();
///     reservation.grow_to(bytes.len()).then(|| reservation.hold(bytes))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct PeerMemory {
    memory: Memory,
    /// The peer's address, and how many bytes it may hold.
    peer: Option<(IpAddr, usize)>,
}

impl PeerMemory {
    /// Takes nothing yet.
    #[must_use]
    pub fn nothing(&self) -> Reservation {
        Reservation { of: self.clone(), bytes: 0 }
    }

    /// Counts bytes until the last clone of them is dropped; `None`: there is no room for them.
    pub(super) fn hold(&self, bytes: Bytes) -> Option<Bytes> {
        let mut reservation = self.nothing();
        reservation.grow_to(bytes.len()).then(|| reservation.hold(bytes))
    }
}

/// A part of the memory; given back when it is dropped.
///
/// ```
/// use onceward::server::Reservation;
///
/// fn has_room(reservation: &mut Reservation, next: &[u8], read: usize) -> bool {
///     reservation.grow_to(read + next.len())
/// }
/// ```
#[derive(Debug)]
pub struct Reservation {
    of: PeerMemory,
    bytes: usize,
}

impl Reservation {
    /// Whether there is room for so many bytes in all; if so they are reserved.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let taken = more == 0 || self.of.memory.ledger().take(self.of.peer, more);
        if taken {
            self.bytes += more;
            telemetry::BUFFERED_BYTES.raise_of((), more as u64);
        }
        taken
    }

    /// Keeps the reservation until the last clone of these bytes is dropped.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        match self.bytes {
            0 => bytes,
            _ => Bytes::from_owner(ReservedBytes { bytes, _reserved: self }),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.of.memory.ledger().give_back(self.of.peer, self.bytes);
            telemetry::BUFFERED_BYTES.lower_of((), self.bytes as u64);
        }
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reserved: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One peer: an IPv4 address, or the network of an IPv6 address, in which one client has them all.
///
/// ```
/// use onceward::server::peer_network;
///
/// let address = |text: &str| text.parse().unwrap();
/// assert_eq!(peer_network(address("2001:db8::7")), address("2001:db8::"));
/// assert_eq!(peer_network(address("::ffff:192.0.2.7")), address("192.0.2.7"));
/// ```
#[must_use]
pub fn peer_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// What the layer answers to a request that finds no memory.
pub(super) fn full() -> Problem {
    let text = "too many bytes are held in memory here; try again with the same key";
    Problem::new(Code::Overloaded, text).retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(memory: &Memory) -> (usize, usize) {
        let ledger = memory.ledger();
        (ledger.left, ledger.held.len())
    }

    #[test]
    fn memory_is_taken_up_to_the_limit_and_given_back() {
        let memory = Memory::new(10);
        let anyone = memory.of(None);
        let (mut first, mut second) = (anyone.nothing(), anyone.nothing());
        assert!(first.grow_to(4) && first.grow_to(6) && second.grow_to(4));
        assert!(!second.grow_to(5), "one byte too many");
        drop(first);
        assert!(second.grow_to(10));
        drop(second);
        assert_eq!(left(&memory), (10, 0));
    }

    #[test]
    fn a_peer_takes_its_share_and_leaves_the_rest() {
        let memory = Memory::new(10);
        let peer = |last: u8| memory.of(Some(([10, 0, 0, last].into(), 5)));
        let (mut first, mut again, mut other) =
            (peer(1).nothing(), peer(1).nothing(), peer(2).nothing());
        assert!(first.grow_to(4) && again.grow_to(1), "together it is the share");
        assert!(!again.grow_to(2), "one byte over the share");
        assert!(other.grow_to(5), "another peer has a share of its own");
        drop(first);
        assert!(again.grow_to(5));
        drop((again, other));
        assert_eq!(left(&memory), (10, 0));
    }

    #[test]
    fn bytes_count_until_the_last_clone_is_gone() {
        let memory = Memory::new(10);
        let held = memory.of(None).hold(Bytes::from_static(b"12345678")).unwrap();
        let part = held.slice(2..3);
        drop(held);
        assert_eq!((&part[..], left(&memory).0), (&b"3"[..], 2));
        assert!(memory.of(None).hold(Bytes::from_static(b"123")).is_none());
        drop(part);
        assert_eq!(left(&memory).0, 10);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let of = |text: &str| peer_network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
