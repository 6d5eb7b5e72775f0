//! Who holds how many of the places at the upstream: no client, no connection and no kind of request
//! takes them all.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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

/// The shares of some places, behind a lock; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct SharedShares(Arc<Mutex<Shares>>);

impl SharedShares {
    pub(crate) fn admit(&self, holder: &Holder, places: u32) -> bool {
        self.lock().admit(holder, places)
    }

    /// Takes a place, if every share allows that.
    pub(crate) fn try_take(&self, holder: Holder, places: u32) -> Option<HeldShare> {
        let mut shares = self.lock();
        shares.admit(&holder, places).then(|| {
            shares.take(&holder);
            HeldShare { of: self.clone(), holder }
        })
    }

    /// A place for another request of a holder that was admitted.
    pub(crate) fn take(&self, holder: Holder) -> HeldShare {
        self.lock().take(&holder);
        HeldShare { of: self.clone(), holder }
    }

    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, until it is dropped.
pub(crate) struct HeldShare {
    of: SharedShares,
    holder: Holder,
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.of.lock().give_back(&self.holder);
    }
}

/// What one place at the upstream counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// All requests that no route speaks of.
    Unmatched,
    /// All requests whose body was not there.
    Arriving,
    Address(IpAddr),
    UnmatchedFrom(IpAddr),
    ArrivingFrom(IpAddr),
    Connection(u64),
}

impl Holder {
    fn parts(&self) -> impl Iterator<Item = Part> {
        let Self { origin: Origin { address, connection }, .. } = *self;
        let (unmatched, arriving) = (self.is_unmatched, self.is_arriving);
        [
            unmatched.then_some(Part::Unmatched),
            arriving.then_some(Part::Arriving),
            address.map(Part::Address),
            address.filter(|_| unmatched).map(Part::UnmatchedFrom),
            address.filter(|_| arriving).map(Part::ArrivingFrom),
            connection.map(Part::Connection),
        ]
        .into_iter()
        .flatten()
    }
}

#[derive(Debug)]
pub(crate) struct Shares {
    least: u32,
    held: HashMap<Part, u32>,
}

impl Default for Shares {
    fn default() -> Self {
        Self::of_at_least(LEAST)
    }
}

impl Shares {
    pub(crate) fn of_at_least(least: u32) -> Self {
        Self { least, held: HashMap::new() }
    }

    /// Whether another place would be within every share.
    ///
    /// Requests without a route have half of the places, and so have requests whose body still arrives:
    /// complete requests with a route always find some. One connection has half of what its address may
    /// hold, and so has each of those two kinds. Requests of both kinds have half of that: bodies that
    /// never end leave places to the same client.
    pub(crate) fn admit(&self, holder: &Holder, places: u32) -> bool {
        let share = |share| part(places, share).max(self.least);
        let peer = holder.peer_share;
        let arriving = if holder.is_unmatched { peer / 4.0 } else { peer / 2.0 };
        holder.parts().all(|part| {
            let most = match part {
                Part::Unmatched | Part::Arriving => share(0.5),
                // The address has no share of its own.
                _ if holder.origin.address.is_none() || peer >= 1.0 => return true,
                Part::Address(_) => share(peer),
                Part::UnmatchedFrom(_) | Part::Connection(_) => share(peer / 2.0),
                Part::ArrivingFrom(_) => share(arriving),
            };
            self.held.get(&part).is_none_or(|held| *held < most)
        })
    }

    pub(crate) fn take(&mut self, holder: &Holder) {
        for part in holder.parts() {
            *self.held.entry(part).or_default() += 1;
        }
    }

    pub(crate) fn give_back(&mut self, holder: &Holder) {
        for part in holder.parts() {
            if let Entry::Occupied(mut held) = self.held.entry(part) {
                *held.get_mut() -= 1;
                if *held.get() == 0 {
                    held.remove();
                }
            }
        }
    }
}

/// A part of the places, rounded down.
fn part(places: u32, share: f64) -> u32 {
    // Not negative, and not more than the places: the share is between 0 and 1.
    (f64::from(places) * share) as u32
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
        let unknown = Origin { address: None, connection: None };
        let holder = Holder { origin: unknown, is_unmatched: true, ..from(1, 1) };
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
        let mut shares = Shares::default();
        (0..15).for_each(|connection| shares.take(&from(1, connection)));
        assert!(shares.admit(&from(1, 15), 20));
        shares.take(&from(1, 15));
        assert!(!shares.admit(&from(1, 16), 20));
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
