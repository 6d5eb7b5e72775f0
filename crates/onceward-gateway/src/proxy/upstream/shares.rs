//! Who holds how many of the places at the upstream: no client, no connection and no kind of request
//! takes them all.

use std::{collections::HashMap, hash::Hash, net::IpAddr};

use crate::identity::Origin;

/// A share of places is never smaller than this: a route with few places has no shares.
const LEAST: u32 = 16;

/// Whose request holds a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) origin: Origin,
    /// The part of all places that one address may hold.
    pub(crate) peer_share: f64,
    pub(crate) is_unmatched: bool,
    /// Its body was not there when the place was taken.
    pub(crate) is_arriving: bool,
}

#[derive(Debug)]
pub(crate) struct Shares {
    least: u32,
    unmatched: u32,
    arriving: u32,
    addresses: HashMap<IpAddr, u32>,
    /// Only of requests that no route speaks of.
    unmatched_from: HashMap<IpAddr, u32>,
    /// Only of requests whose body was not there.
    arriving_from: HashMap<IpAddr, u32>,
    connections: HashMap<u64, u32>,
}

impl Default for Shares {
    fn default() -> Self {
        Self::of_at_least(LEAST)
    }
}

impl Shares {
    /// No share is smaller than this.
    pub(crate) fn of_at_least(least: u32) -> Self {
        Self {
            least,
            unmatched: 0,
            arriving: 0,
            addresses: HashMap::new(),
            unmatched_from: HashMap::new(),
            arriving_from: HashMap::new(),
            connections: HashMap::new(),
        }
    }

    /// Whether another place would be within every share. Requests that no route speaks of have half
    /// of the places, and so have requests whose body still arrives: what is complete and has a route
    /// always finds some. Of what one address may hold, one connection has half, and so have those two
    /// kinds, so that they leave something to other clients, too. What is of both kinds has half of that:
    /// bodies that never end leave something to the same client.
    pub(crate) fn admit(&self, holder: &Holder, places: u32) -> bool {
        let part = |share| part(places, share).max(self.least);
        let half = part(0.5);
        if (holder.is_unmatched && self.unmatched >= half)
            || (holder.is_arriving && self.arriving >= half)
        {
            return false;
        }
        let Some(address) = holder.origin.address.filter(|_| holder.peer_share < 1.0) else {
            return true;
        };
        let (whole, half) = (part(holder.peer_share), part(holder.peer_share / 2.0));
        let arriving = if holder.is_unmatched { part(holder.peer_share / 4.0) } else { half };
        let connection = holder.origin.connection;
        count(&self.addresses, &address) < whole
            && connection.is_none_or(|connection| count(&self.connections, &connection) < half)
            && !(holder.is_unmatched && count(&self.unmatched_from, &address) >= half)
            && !(holder.is_arriving && count(&self.arriving_from, &address) >= arriving)
    }

    pub(crate) fn take(&mut self, holder: &Holder) {
        self.unmatched += u32::from(holder.is_unmatched);
        self.arriving += u32::from(holder.is_arriving);
        if let Some(address) = holder.origin.address {
            *self.addresses.entry(address).or_default() += 1;
            if holder.is_unmatched {
                *self.unmatched_from.entry(address).or_default() += 1;
            }
            if holder.is_arriving {
                *self.arriving_from.entry(address).or_default() += 1;
            }
        }
        if let Some(connection) = holder.origin.connection {
            *self.connections.entry(connection).or_default() += 1;
        }
    }

    pub(crate) fn give_back(&mut self, holder: &Holder) {
        self.unmatched -= u32::from(holder.is_unmatched);
        self.arriving -= u32::from(holder.is_arriving);
        if let Some(address) = holder.origin.address {
            lower(&mut self.addresses, &address);
            if holder.is_unmatched {
                lower(&mut self.unmatched_from, &address);
            }
            if holder.is_arriving {
                lower(&mut self.arriving_from, &address);
            }
        }
        if let Some(connection) = holder.origin.connection {
            lower(&mut self.connections, &connection);
        }
    }
}

/// A part of the places, rounded down.
fn part(places: u32, share: f64) -> u32 {
    // Not negative, and not more than the places: the share is between 0 and 1.
    (f64::from(places) * share) as u32
}

fn count<K: Hash + Eq>(counts: &HashMap<K, u32>, key: &K) -> u32 {
    counts.get(key).copied().unwrap_or_default()
}

fn lower<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(held) = counts.get_mut(key) {
        *held -= 1;
        if *held == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u32 = 1_000;

    fn from(last: u8, connection: u64) -> Holder {
        let origin =
            Origin { address: Some([10, 0, 0, last].into()), connection: Some(connection) };
        Holder { origin, peer_share: 0.5, is_unmatched: false, is_arriving: false }
    }

    /// How many of these places are given, one connection after the other.
    fn taken(shares: &mut Shares, holders: impl Iterator<Item = Holder>) -> usize {
        let mut take = |holder: &Holder| {
            let admitted = shares.admit(holder, PLACES);
            if admitted {
                shares.take(holder);
            }
            admitted
        };
        holders.filter(|holder| take(holder)).count()
    }

    #[test]
    fn one_address_has_its_share_and_one_connection_half_of_it() {
        let mut shares = Shares::default();
        assert_eq!(taken(&mut shares, (0..PLACES).map(|_| from(1, 1))), 250);
        assert_eq!(taken(&mut shares, (0..PLACES).map(|n| from(1, u64::from(n)))), 250);
        assert_eq!(taken(&mut shares, (0..PLACES).map(|n| from(2, u64::from(n)))), 500);
    }

    #[test]
    fn what_still_arrives_leaves_half_for_what_is_there() {
        let mut shares = Shares::default();
        let arriving = |last| {
            let holder = move |n| Holder { is_arriving: true, ..from(last, n) };
            (0..u64::from(PLACES)).map(holder)
        };
        assert_eq!(taken(&mut shares, arriving(1)), 250, "half of what one address may hold");
        assert_eq!(taken(&mut shares, (0..).map(|n| from(1, n)).take(300)), 250);
        assert_eq!(taken(&mut shares, arriving(2).chain(arriving(3))), 250, "half of all");
    }

    #[test]
    fn what_has_no_route_leaves_half_for_what_has_one() {
        let mut shares = Shares::default();
        let nobody = Origin { address: None, connection: None };
        let holder = Holder { origin: nobody, is_unmatched: true, ..from(1, 1) };
        assert_eq!(taken(&mut shares, (0..PLACES).map(|_| holder)), 500);
        let matched = Holder { is_unmatched: false, ..holder };
        assert_eq!(
            taken(&mut shares, (0..PLACES).map(|_| matched)),
            1000,
            "the limit is elsewhere"
        );
    }

    #[test]
    fn what_one_client_sends_without_a_route_leaves_half_to_others() {
        let mut shares = Shares::default();
        let unmatched = |last| {
            let holder = move |n| Holder { is_unmatched: true, ..from(last, n) };
            (0..u64::from(PLACES)).map(holder)
        };
        let arriving = |holder| Holder { is_arriving: true, ..holder };
        assert_eq!(taken(&mut shares, unmatched(1).map(arriving)), 125, "a half of the half");
        assert_eq!(taken(&mut shares, unmatched(1)), 125, "half of what one address may hold");
        assert_eq!(taken(&mut shares, unmatched(2)), 250, "half of all");
    }

    #[test]
    fn few_places_are_not_shared_out() {
        let shares = Shares { addresses: [([10, 0, 0, 1].into(), 15)].into(), ..Shares::default() };
        assert!(shares.admit(&from(1, 1), 20));
        let shares = Shares { addresses: [([10, 0, 0, 1].into(), 16)].into(), ..Shares::default() };
        assert!(!shares.admit(&from(1, 1), 20));
    }

    #[test]
    fn what_is_given_back_leaves_no_trace() {
        let mut shares = Shares::default();
        let holder = Holder { is_arriving: true, is_unmatched: true, ..from(1, 1) };
        shares.take(&holder);
        shares.give_back(&holder);
        assert_eq!(format!("{shares:?}"), format!("{:?}", Shares::default()));
    }
}
