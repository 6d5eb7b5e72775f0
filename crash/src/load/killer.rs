//! Starts a service, kills it, and starts it again.

use std::{
    fmt::{self, Display, Formatter},
    io,
    iter::Sum,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use testbed::Signal;

use crate::running::Running;

use super::{Addresses, World};

/// Kills one service again and again.
pub struct Killer<'a> {
    /// Whose services it kills.
    pub world: &'a World,
    /// Where it says that a new one listens.
    pub addresses: &'a Addresses,
    /// Its place in there.
    pub slot: usize,
    /// How many are to be killed, by all killers together.
    pub left: &'a AtomicUsize,
    /// When it has no more time for long pauses.
    pub hurry_after: Instant,
}

/// What a killer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// Services that had been listening.
    pub listening: usize,
    /// Services that had not come so far.
    pub starting: usize,
    /// Services that had been frozen before, for longer than a lease.
    pub frozen: usize,
    /// How long those that came so far took to listen, together.
    pub start_time: Duration,
}

impl Killed {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> usize {
        self.listening + self.starting
    }
}

impl Sum for Killed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |one, other| Self {
            listening: one.listening + other.listening,
            starting: one.starting + other.starting,
            frozen: one.frozen + other.frozen,
            start_time: one.start_time + other.start_time,
        })
    }
}

impl Display for Killed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let start_ms = self.start_time.as_millis() / self.listening.max(1) as u128;
        let (all, Self { starting, frozen, .. }) = (self.all(), self);
        write!(formatter, "{all} kills, {starting} while starting, {frozen} after a freeze; ")?;
        write!(formatter, "a start takes {start_ms} ms")
    }
}

impl Killer<'_> {
    /// Kills until none is left. `Err` if one did not start although nobody had killed it.
    pub fn kill(&self, mut random: Rng) -> io::Result<Killed> {
        let mut killed = Killed::default();
        while self.takes_one() {
            let start = Instant::now();
            let mut service = self.world.launch().spawn()?;
            if random.u8(..8) == 0 {
                thread::sleep(Duration::from_millis(random.u64(0..30)));
                service.kill()?;
                killed.starting += 1;
                continue;
            }
            service.wait_until_it_listens()?;
            killed.start_time += start.elapsed();
            self.addresses.set(self.slot, service.address);
            thread::sleep(self.pause(&mut random));
            if random.u8(..8) == 0 {
                self.freeze(&service, &mut random);
                killed.frozen += 1;
            }
            service.kill()?;
            self.addresses.clear(self.slot);
            killed.listening += 1;
        }
        Ok(killed)
    }

    /// Sleeps over the ends of its leases, and wakes up as if nothing had happened.
    fn freeze(&self, service: &Running, random: &mut Rng) {
        let lease_ms = self.world.lease().as_millis() as u64;
        service.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(random.u64(lease_ms..lease_ms * 2)));
        service.signal(Signal::CONT);
        thread::sleep(Duration::from_millis(random.u64(20..60)));
    }

    fn takes_one(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn pause(&self, random: &mut Rng) -> Duration {
        let longest = if Instant::now() < self.hurry_after { 150 } else { 20 };
        Duration::from_millis(random.u64(0..=longest))
    }
}
